"""A Hub on the loopback interface, small and obedient, which counts, and can also misbehave.

Files are read from disk a piece at a time, so sparse ones of gigabytes cost nothing. Each attribute
of `Hub` below `repos` is a way to make it worse, by repository where it is a dictionary.
"""

import hashlib
import json
import math
import re
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

API = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/(?P<what>revision|tree)/(?P<rev>[^/]+))?.*")
FILE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<name>.+)")
PIECE = 1 << 20


class Hub(ThreadingHTTPServer):
    """Serves directories as repositories.

    Attributes:
        repos: Directory by `org/name`.
        refs: Branches and tags beside `main` by `org/name`.
        trouble: (status, error code) that every request for a repository gets.
        file_trouble: The same for requests of its files alone.
        passing: Like `file_trouble`, and how often before it passes.
        ranges: What is done with a Range: `given`, `ignored` (the whole file), `shifted` (another
            range), `short` (fewer bytes, and says so), `broken` (fewer bytes than it says), `long`
            (more bytes than asked for), `resized` (of a file of another size), `silent` (nothing).
        break_once: The next range breaks, and the ones after it do not.
        requests: (method, path, range) of every request, in order.
        served: Bytes of bodies sent by path; of files that broke off, what was sent.
    """

    daemon_threads = True

    def __init__(self, repos: Mapping[str, Path]) -> None:
        """Start to serve."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos = dict(repos)
        self.refs: dict[str, set[str]] = {}
        self.trouble: dict[str, tuple[int, str]] = {}
        self.file_trouble: dict[str, tuple[int, str]] = {}
        self.passing: dict[str, tuple[int, str, int]] = {}
        self.ranges = "given"
        self.break_once = False
        self.requests: list[tuple[str, str, str]] = []
        self.served: Counter[str] = Counter()
        self._lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Return what HF_ENDPOINT must be."""
        return f"http://127.0.0.1:{self.server_port}"

    def sha(self, repo: str) -> str:
        """Return the commit, which changes when a file does."""
        parts = [name + digest(path) for name, path in files(self.repos[repo]).items()]
        return hashlib.sha1("".join(parts).encode()).hexdigest()

    def count(self, path: str, size: int) -> None:
        """Add to what was served."""
        with self._lock:
            self.served[path] += size

    def trouble_with(self, repo: str, is_file: bool) -> tuple[int, str] | None:
        """Return the status and error code that a request gets instead of an answer."""
        with self._lock:
            if is_file and repo in self.passing:
                status, code, left = self.passing[repo]
                if left:
                    self.passing[repo] = (status, code, left - 1)
                    return status, code
            return self.trouble.get(repo) or (self.file_trouble.get(repo) if is_file else None)

    def breaks(self) -> bool:
        """Say whether this range breaks."""
        with self._lock:
            once, self.break_once = self.break_once, False
            return once or self.ranges == "broken"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients hang up on purpose."""


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
        quoted = urlsplit(self.path).path
        asked = self.headers.get("Range") or ""
        self.server.requests.append((self.command, unquote(quoted), asked))
        match = API.fullmatch(quoted) or FILE.fullmatch(quoted)
        if match is None:
            return self.answer(404, b"")
        repo, revision = match["repo"], unquote(match["rev"] or "main")
        trouble = self.server.trouble_with(repo, match.re is FILE)
        if trouble:
            status, code = trouble
            return self.answer(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})
        if repo not in self.server.repos:
            return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        sha = self.server.sha(repo)
        if revision not in {"main", sha} | self.server.refs.get(repo, set()):
            return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        held = files(self.server.repos[repo])
        if match.re is API:
            return self.describe(repo, sha, held, match["what"] == "tree")
        name = unquote(match["name"])
        if name not in held:
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
        return self.file(held[name], sha, asked)

    def describe(self, repo: str, sha: str, held: Mapping[str, Path], tree: bool) -> None:
        """Answer what a repository holds."""
        entries = [
            {"type": "file", "path": name, "size": path.stat().st_size, "oid": digest(path)}
            for name, path in held.items()
        ]
        if tree:
            return self.answer(200, json.dumps(entries).encode())
        siblings = [
            {
                "rfilename": entry["path"],
                "size": entry["size"],
                # As git-lfs has it, for the weights alone.
                **({"lfs": lfs(entry)} if entry["path"].endswith(".safetensors") else {}),
            }
            for entry in entries
        ]
        info = {"id": repo, "modelId": repo, "sha": sha, "private": False, "siblings": siblings}
        return self.answer(200, json.dumps(info).encode())

    def file(self, path: Path, sha: str, asked: str) -> None:
        """Answer a file or a part of it."""
        size, mood = path.stat().st_size, self.server.ranges
        headers = {"ETag": f'"{digest(path)}"', "X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
        if part is None or self.command == "HEAD" or mood == "ignored":
            return self.send(200, path, 0, size, headers)
        if mood == "silent":
            self.close_connection = True
            self.connection.recv(1)  # until the client gives up
            return None
        first, last = int(part[1]), min(int(part[2] or size), size - 1)
        if first >= size:
            return self.answer(416, b"", {"Content-Range": f"bytes */{size}"})
        if mood == "shifted":
            first, last = max(first - 1, 1), last + 1
        total = size + 1 if mood == "resized" else size
        headers["Content-Range"] = f"bytes {first}-{last}/{total}"
        length = last - first + 1
        if mood == "short":
            length -= 1
        if mood == "long":
            length += 64 * PIECE
        return self.send(206, path, first, length, headers, self.server.breaks())

    def send(
        self,
        status: int,
        path: Path,
        first: int,
        length: int,
        headers: Mapping[str, str],
        breaks: bool = False,
    ) -> None:
        """Send a part of a file, or half of it; past the end of the file come zeros."""
        self.head(status, length, headers)
        if self.command == "HEAD":
            return
        left = length // 2 if breaks else length
        with open(path, "rb") as file:
            file.seek(first)
            while left:
                piece = file.read(min(PIECE, left)) or bytes(min(PIECE, left))
                self.connection.sendall(piece)
                self.server.count(urlsplit(self.path).path, len(piece))
                left -= len(piece)
        if breaks:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a small answer."""
        self.head(status, len(body), headers or {})
        if self.command != "HEAD":
            self.wfile.write(body)
            self.server.count(urlsplit(self.path).path, len(body))

    def head(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        """Send status and headers."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def files(root: Path) -> dict[str, Path]:
    """Return the files of a repository by name."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path for path in found}


def lfs(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the Hub says of a large file."""
    return {"size": entry["size"], "sha256": entry["oid"], "pointerSize": 134}


def digest(path: Path) -> str:
    """Return what stands for the content of a file; of a large one, size and time are enough."""
    status = path.stat()
    if status.st_size > PIECE:
        return hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sparse_model(
    path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]], data: Mapping[str, bytes]
) -> Path:
    """Write a safetensors file that takes no room: zeros, but for the tensors given with data."""
    width = {"I64": 8, "BOOL": 1, "BF16": 2}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + width[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, given in data.items():
            file.seek(8 + len(text) + header[name]["data_offsets"][0])
            file.write(given)
        file.truncate(8 + len(text) + end)
    return path
