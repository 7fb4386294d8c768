"""Tables as Markdown, LaTeX and plain values."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from gmaflow.evaluation.paper_tables import PaperTable, Row

_LATEX = str.maketrans({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "$": r"\$"})


def as_markdown(tables: Sequence[PaperTable], notes: Sequence[str]) -> str:
    """Write tables for a page; bold is the best of its block, underlined what the paper chose."""
    parts = []
    for table in tables:
        header = [*table.labels, *(column.title for column in table.columns)]
        marks = ["---"] * len(table.labels) + ["---:"] * len(table.columns)
        lines = [header, marks]
        for row, heads in table.lines():
            marked = [f"<u>{head}</u>" if is_final(row, head) else head for head in heads]
            lines.append([*marked, *_figures(table, row, "**", "**")])
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"## Table {table.number}: {table.title}\n\n{body}\n")
    return "\n".join(parts) + "".join(f"\n- {note}" for note in notes) + "\n"


def as_latex(tables: Sequence[PaperTable], notes: Sequence[str]) -> str:
    """Write tables for a paper; they need the package booktabs."""
    parts = [f"% {note}" for note in notes]
    for table in tables:
        kinds = "l" * len(table.labels) + "r" * len(table.columns)
        header = [*table.labels, *(column.title for column in table.columns)]
        blocks = [
            "\n".join(_latex_row(table, row, heads) for row, heads in lines)
            for _, lines in groupby(table.lines(), lambda line: line[0].block)
        ]
        parts += [
            rf"% Table {table.number}: {table.title}",
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            " & ".join(title.translate(_LATEX) for title in header) + r" \\",
            r"\midrule",
            "\n\\midrule\n".join(blocks),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    return "\n".join(parts) + "\n"


def as_plain(tables: Sequence[PaperTable], notes: Sequence[str]) -> dict[str, object]:
    """Return tables as plain values; null where there is no figure."""
    return {
        "tables": [
            {
                "number": table.number,
                "title": table.title,
                "rows": [
                    {
                        "block": row.block,
                        "label": row.label,
                        "source": row.source,
                        "figures": {
                            column.title: value
                            for column, value in zip(table.columns, row.values, strict=True)
                        },
                    }
                    for row in table.rows
                ],
            }
            for table in tables
        ],
        "notes": list(notes),
    }


def _figures(table: PaperTable, row: Row, before: str, after: str) -> Iterator[str]:
    for index in range(len(table.columns)):
        told = table.text(row, index)
        yield f"{before}{told}{after}" if table.is_best(row, index) else told


def is_final(row: Row, head: str) -> bool:
    """Whether a cell names a setting of the final model, which the paper underlines."""
    return row.underlined and head == row.label


def _latex_row(table: PaperTable, row: Row, heads: list[str]) -> str:
    cells = []
    for head in heads:
        escaped = r"$\alpha$" if head == "alpha" else head.translate(_LATEX)
        cells.append(rf"\underline{{{escaped}}}" if is_final(row, head) else escaped)
    return " & ".join([*cells, *_figures(table, row, r"\textbf{", "}")]) + r" \\"
