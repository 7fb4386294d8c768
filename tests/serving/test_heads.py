"""HEAD gets what GET gets, but the body."""

import pytest

from gmaflow.serving.shelf import ModelShelf
from tests.serving.conftest import Running, running


@pytest.mark.parametrize(
    "path", ["/", "/health", "/version", "/docs", "/api/models", "/static/main.js", "/nowhere"]
)
def test_a_head_is_that_of_get(site: Running, path: str) -> None:
    whole, head = site.client.get(path), site.client.head(path)
    assert head.status_code == whole.status_code
    assert not head.content
    own = dict(head.headers), dict(whole.headers)
    for headers in own:
        headers.pop("date")
    assert own[0] == own[1]
    assert int(head.headers["content-length"]) == len(whole.content)


def test_the_head_of_a_stream_does_not_wait_for_its_end(shelf: ModelShelf) -> None:
    with running(shelf) as site:
        url = site.start(iters="64", size=(240, 320))
        assert site.client.head(f"{url}/events").headers["content-type"].startswith("text/event")
        # The next answer comes over the same connection, so only after the end of that one.
        assert site.client.get(url).json()["state"] in ("queued", "running")
        site.client.delete(url)


def test_what_takes_no_get_takes_no_head(site: Running) -> None:
    assert site.client.head("/api/flow").status_code == 405
