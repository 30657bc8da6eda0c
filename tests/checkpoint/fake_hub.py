"""A Hub on the loopback interface, small and obedient, which can also misbehave.

`Hub.trouble` maps a repository to the status (and error code) that every request for it gets.
"""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/(?P<what>revision|tree)/(?P<rev>[^/]+))?.*")
FILE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<name>.+)")


class Hub(ThreadingHTTPServer):
    """Serves directories as repositories.

    Attributes:
        repos: Directory by `org/name`.
        trouble: (status, error code) by `org/name`.
        requests: (method, path, range) of every request, in order.
        ranges: Whether parts of files are given.
    """

    daemon_threads = True

    def __init__(self, repos: Mapping[str, Path]) -> None:
        """Start to serve."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos = dict(repos)
        self.trouble: dict[str, tuple[int, str]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.ranges = True
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Return what HF_ENDPOINT must be."""
        return f"http://127.0.0.1:{self.server_port}"

    def sha(self, repo: str) -> str:
        """Return the commit, which changes when a file does."""
        parts = [name + digest(path) for name, path in files(self.repos[repo]).items()]
        return hashlib.sha1("".join(parts).encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer."""
        path = unquote(urlsplit(self.path).path)
        asked = self.headers.get("Range") or ""
        self.server.requests.append((self.command, path, asked))
        match = API.fullmatch(path) or FILE.fullmatch(path)
        if match is None:
            return self.answer(404, b"")
        repo = match["repo"]
        if repo in self.server.trouble:
            status, code = self.server.trouble[repo]
            return self.answer(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})
        if repo not in self.server.repos:
            return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        sha = self.server.sha(repo)
        if match["rev"] not in (None, "main", sha):
            return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        held = files(self.server.repos[repo])
        if match.re is API:
            return self.describe(repo, sha, held, match["what"] == "tree")
        if match["name"] not in held:
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
        return self.file(held[match["name"]], sha, asked)

    def describe(self, repo: str, sha: str, held: Mapping[str, Path], tree: bool) -> None:
        """Answer what a repository holds."""
        entries = [
            {"type": "file", "path": name, "size": path.stat().st_size, "oid": digest(path)}
            for name, path in held.items()
        ]
        if tree:
            return self.answer(200, json.dumps(entries).encode())
        siblings = [{"rfilename": entry["path"], "size": entry["size"]} for entry in entries]
        info = {"id": repo, "modelId": repo, "sha": sha, "private": False, "siblings": siblings}
        return self.answer(200, json.dumps(info).encode())

    def file(self, path: Path, sha: str, asked: str) -> None:
        """Answer a file or a part of it."""
        data = path.read_bytes()
        headers = {"ETag": f'"{digest(path)}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
        if part is None or self.command == "HEAD" or not self.server.ranges:
            return self.answer(200, data, headers)
        first, last = int(part[1]), min(int(part[2] or len(data)), len(data) - 1)
        if first >= len(data):
            return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return self.answer(206, data[first : last + 1], headers)

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send it."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def files(root: Path) -> dict[str, Path]:
    """Return the files of a repository by name."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path for path in found}


def digest(path: Path) -> str:
    """Return what stands for the content of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
