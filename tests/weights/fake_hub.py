"""A Hugging Face Hub on localhost that knows the few requests gmaflow causes."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WRITER = "hf_may_write"
"""The only token that may create and write."""


class FakeHub(ThreadingHTTPServer):
    """Repositories are folders of bytes in memory, each with the one branch main."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.private: set[str] = set()
        self.written_to: list[str] = []
        """The revision of each commit."""
        self.broken = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Answers as the Hub does, including errors in the header X-Error-Code."""

    server: FakeHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/"):
            self.describe("/".join(self.path.split("/")[3:5]))
            return
        repository, _, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        files = self.server.repositories.get(repository)
        if self.server.broken:
            self.fail(500, "")
        elif files is None:
            self.fail(401, "RepoNotFound")
        elif repository in self.server.gated:
            self.fail(403, "GatedRepo")
        elif revision not in ("main", COMMIT):
            self.fail(404, "RevisionNotFound")
        elif name not in files:
            self.fail(404, "EntryNotFound")
        else:
            etag = hashlib.sha256(files[name]).hexdigest()
            self.answer(200, files[name], {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    def describe(self, repository: str) -> None:
        if repository in self.server.repositories:
            self.json({"id": repository, "private": False, "downloads": 0, "likes": 0, "tags": []})
        else:
            self.fail(401, "RepoNotFound")

    def do_POST(self) -> None:
        content = self.body()
        if self.path == "/api/validate-yaml":
            self.json({"errors": [], "warnings": []})
        elif self.headers.get("Authorization") != f"Bearer {WRITER}":
            self.fail(403, "")
        elif self.path == "/api/repos/create":
            about = json.loads(content)
            repository = f"{about['organization']}/{about['name']}"
            self.server.repositories.setdefault(repository, {})
            if about.get("private") or about.get("visibility") == "private":  # by version
                self.server.private.add(repository)
            self.json({"url": f"{self.server.url}/{repository}"})
        elif "/preupload/" in self.path:
            paths = [file["path"] for file in json.loads(content)["files"]]
            self.json(
                {
                    "files": [
                        {"path": path, "uploadMode": "regular", "shouldIgnore": False}
                        for path in paths
                    ]
                }
            )
        elif "/commit/" in self.path:
            repository, _, revision = self.path.removeprefix("/api/models/").partition("/commit/")
            self.server.written_to.append(revision)
            self.commit(repository, content)
        else:
            self.fail(404, "")

    def commit(self, repository: str, content: bytes) -> None:
        for line in content.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                data = base64.b64decode(entry["value"]["content"])
                self.server.repositories[repository][entry["value"]["path"]] = data
        url = f"{self.server.url}/{repository}/commit/{COMMIT}"
        self.json({"success": True, "commitOid": COMMIT, "commitUrl": url, "hookOutput": ""})

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while length := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def json(self, content: object) -> None:
        self.answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def fail(self, status: int, code: str) -> None:
        self.answer(status, b"", {"X-Error-Code": code} if code else {})

    def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serve_hub() -> Iterator[FakeHub]:
    """Run a fake Hub."""
    with FakeHub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
