"""By which names the server may be called."""

import pytest
from starlette.types import Receive, Scope, Send

from gmaflow.serving.security import Security


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that never answers."""


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "LOCALHOST", "127.0.0.1:1", "[::1]:8000", "10.1.2.3", "lab:80"],
)
def test_addresses_and_given_names_are_ours(host: str) -> None:
    assert Security(nothing, ("Lab",)).is_ours(host)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "[::1", "lab.x", "0x7f.1"],
)
def test_other_names_are_not(host: str) -> None:
    assert not Security(nothing, ("lab",)).is_ours(host)
