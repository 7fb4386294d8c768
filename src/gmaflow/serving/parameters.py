"""Parameters that a route does not take are refused; ignored, they would seem to count."""

from collections import Counter

from fastapi import Request

from gmaflow.errors import suggest
from gmaflow.serving.bodies import media_type
from gmaflow.serving.documentation import Parameter, parameters_of
from gmaflow.serving.refusals import RefusedError

LONGEST_NAME = 40
"""Characters of a name that are said back."""


async def check_parameters(request: Request) -> None:
    """Refuse parameters that are unknown, in the wrong place, or given twice; for `Depends`.

    Raises:
        RefusedError: One is.
    """
    path, openapi = request.scope["route"].path, request.app.openapi()
    known = parameters_of(openapi, openapi["paths"][path][request.method.lower()])
    given = Counter(("query", name) for name, _ in request.query_params.multi_items())
    body = next((parameter.place for parameter in known if parameter.in_body), None)
    if body is not None:
        given += Counter((body, name) for name in await names_in_body(request, body))
    for (place, name), times in given.items():
        check_place(path, known, place, name[:LONGEST_NAME])
        if times > 1:
            raise RefusedError(422, f"{name} was given {times} times; give it once")


async def names_in_body(request: Request, place: str) -> list[str]:
    """Return the names of a form's fields, or of those of a JSON object, as they came."""
    if place == "form":
        return [name for name, _ in (await request.form()).multi_items()]
    is_json = media_type(request.headers) == "application/json"
    sent = await request.json() if is_json else None
    return list(sent) if isinstance(sent, dict) else []  # what else it is, FastAPI refuses


def check_place(path: str, known: list[Parameter], place: str, name: str) -> None:
    """Refuse a parameter that is not one of those known, or not in that place.

    Raises:
        RefusedError: It is not.
    """
    places = [parameter.place for parameter in known if parameter.name == name]
    if place in places:
        return
    if places:
        where = {
            "path": f"the path: {path}",
            "query": f"the address: {path}?{name}=...",
            "form": f"the form: with curl write -F {name}=...",
            "JSON": f'the body: {{"{name}": ...}}',
        }
        raise RefusedError(422, f"{name} belongs in {where[places[0]]}")
    names = [parameter.name for parameter in known if parameter.place != "path"]
    advice = suggest(name, names) if names else f"{path} takes none"
    raise RefusedError(422, f"there is no parameter {name!r}; {advice}")
