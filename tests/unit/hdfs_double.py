"""A name node and its data node behind WebHDFS, in a thread, as small as the store of the log needs them."""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.unit.http_double import served

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = "/webhdfs/v1"


@dataclass(frozen=True)
class Fault:
    """One misleading answer: an exception of the name node, or none (``cut``), before or after it was ``done``."""

    exception: str = "StandbyException"
    status: int = 403
    done: bool = False
    cut: bool = False


@dataclass
class HdfsDouble:
    """What the file system holds, by paths. ``old_rename`` is that of HttpFS, which says no and not why."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    permissions: dict[str, str] = field(default_factory=dict)
    operations: list[str] = field(default_factory=list)
    overwrites: bool = False
    old_rename: bool = False
    user: str = ""
    host: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def reset(self) -> None:
        """Hold nothing, and be honest."""
        self.overwrites = self.old_rename = False
        for each in (self.files, self.permissions, self.faults, self.operations):
            each.clear()

    def fault(self, operation: str, *faults: Fault) -> None:
        self.faults.setdefault(operation, deque()).extend(faults)


def serve(double: HdfsDouble) -> Iterator[HdfsDouble]:
    """Serve until the generator is closed."""
    for address in served(type("Handler", (_Handler,), {"double": double})):
        double.host = address
        yield double


class _Refusal(Exception):  # noqa: N818  an answer, not a fault of the double
    pass


class _Handler(BaseHTTPRequestHandler):
    double: HdfsDouble
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        operation, path = query["op"], unquote(url.path).removeprefix(_ROOT)
        double = self.double
        if operation in {"CREATE", "OPEN"} and "node" not in query:
            with double.lock:
                double.operations.append(operation)
                fault = self._fault(operation)
            if fault is not None:
                return self._fail(fault)
            if operation == "OPEN" and path not in double.files:
                return self._error("FileNotFoundException", 404)
            to = f"http://{double.host}{url.path}?{urlencode({**query, 'node': '1'})}"
            return self._answer(307, b"", {"Location": to})
        with double.lock:
            if operation not in {"CREATE", "OPEN"}:
                double.operations.append(operation)
            double.user = query.get("user.name", "")
            fault = None if "node" in query else self._fault(operation)
            if fault is not None and not fault.done:
                return self._fail(fault)
            try:
                status, answer = self._carry_out(operation, path, query, body)
            except _Refusal as refusal:
                return self._error(str(refusal), 404 if "NotFound" in str(refusal) else 403)
        return self._answer(status, answer) if fault is None else self._fail(fault)

    def do_PUT(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base's name
        pass

    def _fault(self, operation: str) -> Fault | None:
        waiting = self.double.faults.get(operation)
        return waiting.popleft() if waiting else None

    def _carry_out(self, operation: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes]:
        files = self.double.files
        if operation == "CREATE":
            files[path] = body
            self.double.permissions[path] = query.get("permission", "")
            return 201, b""
        if operation == "OPEN":
            return 200, files[path]
        if operation == "DELETE":
            return 200, json.dumps({"boolean": files.pop(path, None) is not None}).encode()
        if operation == "RENAME":
            return 200, self._rename(path, query)
        if operation == "LISTSTATUS":
            return 200, json.dumps({"FileStatuses": {"FileStatus": self._listed(path)}}).encode()
        if path not in files:
            raise _Refusal("FileNotFoundException")
        if operation == "SETTIMES":
            return 200, b""
        return 200, json.dumps({"FileStatus": _status("", "FILE", len(files[path]))}).encode()

    def _rename(self, path: str, query: dict[str, str]) -> bytes:
        files, to = self.double.files, query["destination"]
        self.double.permissions[to] = self.double.permissions.get(path, "")
        taken = to in files and query.get("renameoptions") != "OVERWRITE" and not self.double.overwrites
        if self.double.old_rename:
            done = path in files and not taken
            if done:
                files[to] = files.pop(path)
            return json.dumps({"boolean": done}).encode()
        if path not in files:
            raise _Refusal("FileNotFoundException")
        if taken:
            raise _Refusal("FileAlreadyExistsException")
        files[to] = files.pop(path)
        return b""

    def _listed(self, path: str) -> list[dict[str, Any]]:
        folder = path.rstrip("/") + "/"
        found: dict[str, dict[str, Any]] = {}
        for name, data in self.double.files.items():
            if name.startswith(folder):
                head, slash, _ = name.removeprefix(folder).partition("/")
                found[head] = _status(head, "DIRECTORY" if slash else "FILE", 0 if slash else len(data))
        if not found:
            raise _Refusal("FileNotFoundException")
        return list(found.values())

    def _fail(self, fault: Fault) -> None:
        if fault.cut:
            self.close_connection = True
            self.connection.close()
        else:
            self._error(fault.exception, fault.status)

    def _error(self, name: str, status: int) -> None:
        told = {"RemoteException": {"exception": name, "message": f"about {name}\n at stack"}}
        self._answer(status, json.dumps(told).encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _status(name: str, kind: str, length: int) -> dict[str, Any]:
    return {"pathSuffix": name, "type": kind, "length": length, "modificationTime": 1_700_000_000_000}
