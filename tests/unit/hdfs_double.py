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
    """One misleading answer: an exception of the name node, or none (``cut``), before or after it was ``done``.

    A ``page`` is for people: what its web server says by itself. ``message`` is what the exception says.
    """

    exception: str = "StandbyException"
    status: int = 403
    done: bool = False
    cut: bool = False
    page: str = ""
    message: str = ""


@dataclass
class HdfsDouble:
    """What the file system holds, by paths. ``old_rename`` is that of HttpFS, which says no and not why."""

    files: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    permissions: dict[str, str] = field(default_factory=dict)
    operations: list[str] = field(default_factory=list)
    overwrites: bool = False
    old_rename: bool = False
    user: str = ""
    owner: str = ""
    closed: set[str] = field(default_factory=set)
    unlisted: set[str] = field(default_factory=set)
    token: str = ""
    host: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def reset(self) -> None:
        """Hold nothing, and be honest."""
        self.overwrites = self.old_rename = False
        for each in (
            self.files, self.folders, self.permissions, self.faults, self.operations, self.closed, self.unlisted,
        ):  # fmt: skip
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
    disable_nagle_algorithm = True  # headers and body are two writes

    def do_GET(self) -> None:
        body = self._body()
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
            double.user, double.token = query.get("user.name", ""), query.get("delegation", "")
            fault = None if "node" in query else self._fault(operation)
            if fault is not None and not fault.done:
                return self._fail(fault)
            try:
                status, answer = self._carry_out(operation, path, query, body)
            except _Refusal as refusal:
                return self._error(str(refusal), 404 if "NotFound" in str(refusal) else 403)
        return self._answer(status, answer) if fault is None else self._fail(fault)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline() or b"0", 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

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
            return self._create(path, query, body)
        if operation == "OPEN":
            begin = int(query.get("offset", 0))
            return 200, files[path][begin : begin + int(query.get("length", len(files[path])))]
        if operation == "MKDIRS":
            self._make(path)
            return 200, b'{"boolean": true}'
        if operation == "DELETE":
            return self._delete(path, query)
        if operation == "RENAME":
            return 200, self._rename(path, query)
        if operation == "LISTSTATUS":
            return 200, json.dumps({"FileStatuses": {"FileStatus": self._listed(path)}}).encode()
        return self._tell(operation, path, query)

    def _tell(self, operation: str, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        files = self.double.files
        if operation == "GETHOMEDIRECTORY":
            return 200, json.dumps({"Path": f"/user/{query['user.name']}"}).encode()
        if path not in files and path not in self._folders():
            raise _Refusal("FileNotFoundException")
        if operation == "CHECKACCESS" and path in self.double.closed:
            raise _Refusal("AccessControlException")
        if operation in {"SETTIMES", "CHECKACCESS"}:
            return 200, b""
        is_file = path in files
        status = _status("", "FILE" if is_file else "DIRECTORY", len(files.get(path, b"")))
        return 200, json.dumps({"FileStatus": {**status, "owner": self.double.owner}}).encode()

    def _create(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if path in self.double.files and query.get("overwrite") == "false":
            raise _Refusal("FileAlreadyExistsException")
        if query.get("createparent") == "false" and _parent(path) not in self._folders():
            raise _Refusal("FileNotFoundException")
        self._make(_parent(path))
        self.double.files[path] = body
        self.double.permissions[path] = query.get("permission", "")
        return 201, b""

    def _delete(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        files = self.double.files
        gone = self._below(path) if query.get("recursive") == "true" else set()
        if path in files or path in self._folders():
            self.double.folders.add(_parent(path))  # it stays, empty
        self.double.folders -= gone | {path}
        found = [files.pop(each, None) for each in gone | {path}]
        return 200, json.dumps({"boolean": any(each is not None for each in found)}).encode()

    def _make(self, folder: str) -> None:
        while folder not in self._folders():
            if folder in self.double.files:
                raise _Refusal("FileAlreadyExistsException")
            self.double.folders.add(folder)
            folder = _parent(folder)

    def _folders(self) -> set[str]:
        """Return those that were made, and those that files are in."""
        found = {"/", *self.double.folders}
        for each in self.double.files:
            while (each := _parent(each)) not in found:
                found.add(each)
        return found

    def _below(self, folder: str) -> set[str]:
        return {each for each in {*self.double.files, *self.double.folders} if each.startswith(folder + "/")}

    def _rename(self, path: str, query: dict[str, str]) -> bytes:
        files, to = self.double.files, query["destination"]
        self.double.permissions[to] = self.double.permissions.get(path, "")
        folders = self._folders()
        over = (
            query.get("renameoptions") == "OVERWRITE" and not self.double.old_rename
        )  # which knows no options
        taken = to in files and not over and not self.double.overwrites
        taken = taken or to in folders
        missing = (path not in files and path not in folders) or _parent(to) not in folders
        if self.double.old_rename:
            if not (missing or taken):
                self._move(path, to)
            return json.dumps({"boolean": not (missing or taken)}).encode()
        if missing:
            raise _Refusal("FileNotFoundException")
        if taken:
            raise _Refusal("FileAlreadyExistsException")
        self._move(path, to)
        return b""

    def _move(self, path: str, to: str) -> None:
        files, folders = self.double.files, self.double.folders
        folders.add(_parent(path))  # it stays, empty
        for each in {path, *self._below(path)}:
            name = to + each.removeprefix(path)
            if each in files:
                files[name] = files.pop(each)
            if each in folders:
                folders.remove(each)
                folders.add(name)

    def _listed(self, path: str) -> list[dict[str, Any]]:
        if path in self.double.unlisted:
            raise _Refusal("AccessControlException")
        folder = path.rstrip("/") + "/"
        files, folders = self.double.files, self._folders()
        if path in files:
            return [_status("", "FILE", len(files[path]))]
        if path not in folders:
            raise _Refusal("FileNotFoundException")
        return [
            _status(head, "FILE" if name in files else "DIRECTORY", len(files.get(name, b"")))
            for name in sorted({*files, *folders} - {path})
            if name.startswith(folder) and "/" not in (head := name.removeprefix(folder))
        ]

    def _fail(self, fault: Fault) -> None:
        if fault.cut:
            self.close_connection = True
            self.connection.close()
        elif fault.page:
            self._answer(fault.status, fault.page.encode())
        else:
            self._error(fault.exception, fault.status, fault.message)

    def _error(self, name: str, status: int, message: str = "") -> None:
        told = {"RemoteException": {"exception": name, "message": f"{message or f'about {name}'}\n at stack"}}
        self._answer(status, json.dumps(told).encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _status(name: str, kind: str, length: int) -> dict[str, Any]:
    return {"pathSuffix": name, "type": kind, "length": length, "modificationTime": 1_700_000_000_000}
