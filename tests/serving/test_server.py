import socket

import pytest

from gmaflow.errors import FlowError
from gmaflow.serving.server import bind, url_of


def test_answers_are_sent_at_once() -> None:
    """asyncio turns Nagle's delay off for sockets that say they are TCP, and for no others."""
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_the_address_can_be_opened(host: str, shown: str) -> None:
    with bind(host, 0) as listener:
        assert url_of(listener) == f"http://{shown}:{listener.getsockname()[1]}/"


@pytest.mark.parametrize("host", [".", "a..b", 70 * "a"])
def test_names_are_names(host: str) -> None:
    with pytest.raises(FlowError, match="cannot be the name of a computer; give a name or an IP"):
        bind(host, 0)


@pytest.mark.parametrize("port", [-1, 65536])
def test_ports_are_ports(port: int) -> None:
    with pytest.raises(FlowError, match="out of range; give 1 to 65535"):
        bind("127.0.0.1", port)
