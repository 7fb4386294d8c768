"""The documentation page of the API: plain HTML, no scripts, no external resources."""

from dataclasses import dataclass
from html import escape
from json import dumps
from typing import Any

from gmaflow.version import __version__

BODIES = {"multipart/form-data": "form", "application/json": "JSON"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operation."""

    name: str
    place: str
    """path, query, form or JSON."""
    about: str
    repeated: bool = False
    """Whether it may be given more than once."""

    @property
    def in_body(self) -> bool:
        """Whether it is sent in the body of a request."""
        return self.place in BODIES.values()


def document(openapi: dict[str, Any]) -> str:
    """Return an HTML page that lists all operations of an OpenAPI description."""
    parts = [
        describe(openapi, path, method, operation)
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
    ]
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>gmaflow {__version__}: API</title><link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/docs.css"></head>
<body><main>
<h1>gmaflow {__version__}: API</h1>
<p>{escape(openapi["info"].get("description", ""))}</p>
<p>Machine-readable: <a href="/openapi.json">openapi.json</a>.</p>
{"".join(parts)}
</main></body></html>
"""


def describe(openapi: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    paragraphs = operation.get("description", "").split("\n\n")
    text = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    rows = [row(parameter) for parameter in parameters_of(openapi, operation)]
    table = f"<table>{''.join(rows)}</table>" if rows else ""
    return (
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2>{text}{table}</section>\n"
    )


def row(parameter: Parameter) -> str:
    name, place, about = map(escape, (parameter.name, parameter.place, parameter.about))
    return f"<tr><th>{name}</th><td>{place}</td><td>{about}</td></tr>"


def parameters_of(openapi: dict[str, Any], operation: dict[str, Any]) -> list[Parameter]:
    """Return the parameters of an operation, in path, query and body."""
    parameters = [
        Parameter(parameter["name"], parameter["in"], parameter.get("description", ""))
        for parameter in operation.get("parameters", [])
    ]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        fields = resolve(openapi, content["schema"]).get("properties", {})
        parameters += [
            Parameter(name, BODIES[kind], about.get("description", ""), '"array"' in dumps(about))
            for name, about in fields.items()
        ]
    return parameters


def resolve(openapi: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference to the components of the description."""
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].rsplit("/", 1)[-1]
    resolved: dict[str, Any] = openapi["components"]["schemas"][name]
    return resolved
