import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from tests.cli.conftest import Run


def test_a_taken_port_is_one_sentence(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run("serve", "--port", str(port), "--no-open")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"gmaflow: port {port} is in use; choose another with --port\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--host", "no.such.host.invalid"), "; choose another --host or --port"),
        (("--port", "70000"), "--port 70000 is out of range"),
        (("--weights", "nothing.pth"), "nothing.pth"),
        (("--device", "abacus"), "abacus"),
        (("--queue", "0"), "the limit queue is 0"),
        (("--precision", "fp8"), "fp8"),
        (("--max-memory", "lots"), "'lots' is not an amount of memory"),
    ],
)
def test_wrong_options_are_one_sentence(run: Run, options: tuple[str, ...], sentence: str) -> None:
    port = () if "--port" in options else ("--port", "0")
    outcome = run("serve", "--no-open", *port, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("gmaflow: ")
    assert outcome.err.count("\n") == 1
    assert sentence in outcome.err


def test_without_the_extra_the_error_names_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    outcome = run("serve", "--no-open", "--port", "0")
    assert (outcome.code, outcome.out) == (2, "")
    assert "needs uvicorn" in outcome.err
    assert "pip install 'gmaflow[serve]'" in outcome.err


def test_it_serves_until_it_is_stopped() -> None:
    command = [sys.executable, "-m", "gmaflow", "serve", "--port", "0", "--no-open"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as server:
        assert server.stdout
        assert server.stderr
        line = server.stdout.readline()
        url = line.split()[3]
        with urllib.request.urlopen(f"{url}health") as answer:
            assert b'"ok"' in answer.read()
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        assert server.stderr.read() == ""
