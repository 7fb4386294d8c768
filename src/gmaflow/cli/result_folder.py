"""A folder with files for each of many pairs, which a later run can go on with."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.cli.flow_record import FolderRecord, endings_before
from gmaflow.cli.last_flows import LastFlows
from gmaflow.cli.outputs import is_written

if TYPE_CHECKING:
    from gmaflow.inference import Flow


class ResultFolder:
    """What is there already, and how more is added.

    A pair has a name, and a file with each of the endings.
    """

    def __init__(
        self,
        record: FolderRecord,
        endings: Sequence[str],
        *,
        pair_of: Callable[[str, str], str | None],
        warm_start: bool,
    ) -> None:
        """Look at what is there; nothing is changed before the first pair is added.

        Args:
            record: How the files are made.
            endings: How their names end.
            pair_of: Returns the name of the pair that a file is of, by what stands before its
                ending, and the ending; None for files of others, which are left alone. Those of
                pairs are replaced, unless the record tells of them.
            warm_start: Keep the last flows too, for a run that goes on.

        Raises:
            OutputError: What was kept for a warm start is broken.
        """
        self.record = record
        self.endings = endings
        self._pair_of = pair_of
        self._flows = LastFlows(record.folder) if warm_start else None
        self._begun = False
        self.finished = self._find_finished() if record.goes_on else set()
        """Names of pairs that need nothing more."""
        self.flows = self._flows.load() if self._flows is not None and self.finished else {}
        """The last flows by name, as far as they are known, to begin a warm start from."""
        self.scale = record.scale
        """The length at full colour; None as long as nobody chose one, or nothing is drawn."""

    def add(self, name: str, flow: "Flow | None", write: Callable[[], None]) -> None:
        """Add the files of a pair, the last of which makes it finished.

        Args:
            name: The pair's name.
            flow: Its flow, for the warm start of the next one; None if it has none.
            write: Writes the files.
        """
        if not self._begun:
            self._begin()
            self._begun = True
        if self._flows is not None and flow is not None:
            self._flows.keep(name, flow)
        write()

    def _begin(self) -> None:
        """Write down how the files are made; what is to be replaced goes first."""
        # Else an interrupted run would leave it under a record that is not its own.
        if not self.record.goes_on:
            earlier = endings_before(self.record.folder, str(self.record.now["verb"]))
            for ending in dict.fromkeys([*self.endings, *earlier]):
                for _, path in self._files(ending):
                    path.unlink()
        self.record.write(scale=self.scale)

    def _find_finished(self) -> set[str]:
        written = (
            {name for name, path in self._files(ending) if is_written(path)}
            for ending in self.endings
        )
        return set.intersection(*written)

    def _files(self, ending: str) -> Iterator[tuple[str, Path]]:
        """Find the files of an ending, with the names of their pairs."""
        folder = self.record.folder
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name.endswith(ending) and path.is_file():
                name = self._pair_of(path.name.removesuffix(ending), ending)
                if name is not None:
                    yield name, path
