"""A real S3 server on localhost: the same bytes, kills during uploads, missing buckets."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from gmaflow.batch import BatchConfig, run_batch
from gmaflow.batch.destination import RECORDS, Destination
from gmaflow.errors import FlowError
from tests.batch.conftest import Command, contents

pytest.importorskip("s3fs")
pytest.importorskip("moto")


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[bytes]]:
    """A server of S3 with a bucket; s3fs finds it by environment variables."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    variables = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    for _ in range(300):
        with suppress(OSError), urlopen(f"{url}/moto-api/data.json"):
            break
        time.sleep(0.1)
    import s3fs

    s3fs.S3FileSystem().mkdir("flow")
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


def test_a_job_that_is_killed_during_an_upload_is_continued(
    config: BatchConfig, small_weights: Path, clips: Path, server: subprocess.Popen[bytes]
) -> None:
    run_batch(config, [str(clips)], "memory://s3-reference")
    # Sources on S3, too.
    source = Destination("s3://flow/clips")
    for path in clips.rglob("*.png"):
        source.write(str(path.relative_to(clips)), path.read_bytes())
    url = "s3://flow/out/deep"
    options = ("--weights", small_weights, "--iters", "1", "--workers", "1")
    command = Command("s3://flow/clips", "-o", url, *options)
    command.read()
    # The server hangs in the middle of a transfer, whatever it is; then all processes are killed.
    server.send_signal(signal.SIGSTOP)
    time.sleep(0.2)
    command.kill()
    server.send_signal(signal.SIGCONT)
    finished = [name for name in contents(url) if name.startswith(RECORDS)]
    assert 0 < len(finished) < 8
    # Files without a record are not taken for a clip, not even if all are there.
    import s3fs

    s3fs.S3FileSystem().rm(f"{url}/{finished[0]}")
    Destination(url).write(f"{Path(finished[0]).name.partition('.')[0]}/frame1.flo", b"half")
    progress = run_batch(replace(config, workers=1), ["s3://flow/clips"], url)
    assert (progress.finished_before, progress.failed) == (len(finished) - 1, 1)
    stored, wanted = contents(url), contents("memory://s3-reference")
    flows = {name: data for name, data in wanted.items() if name.endswith(".flo")}
    assert len(flows) == 16
    assert {name: data for name, data in stored.items() if name.endswith(".flo")} == flows
    assert stored["failures.jsonl"].count(b"\n") == 1
    assert len([name for name in stored if name.startswith(RECORDS)]) == 8


@pytest.mark.usefixtures("server")
def test_unusable_buckets_give_one_clear_error(config: BatchConfig, clips: Path) -> None:
    with pytest.raises(FlowError, match=r"s3://nowhere/x.* does not exist"):
        run_batch(config, [str(clips)], "s3://nowhere/x")
    with pytest.raises(FlowError, match=r"s3://nowhere/m.csv does not exist"):
        run_batch(config, ["s3://nowhere/m.csv"], "s3://flow/x")
    require_credentials("0")  # of a user that the server knows, from the next request on
    try:
        with pytest.raises(FlowError, match=r"access to s3://flow/y.* is denied"):
            run_batch(config, [str(clips)], "s3://flow/y")
    finally:
        require_credentials("inf")


def require_credentials(after: str) -> None:
    url = f"{os.environ['AWS_ENDPOINT_URL']}/moto-api/reset-auth"
    plain = {"Content-Type": "text/plain"}
    with urlopen(Request(url, data=after.encode(), headers=plain, method="POST")):
        pass
