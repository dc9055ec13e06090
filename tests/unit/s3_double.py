"""An S3 server in a thread, as small as the store of the log and the file sink need one, that can mislead.

Path-style addresses, of S3 or of Google's XML interface; put with a condition, get, delete, lists in pages of two,
uploads in parts. ``faults`` are taken one after the other by the requests of their method: what a fault says is
answered, before or after the request is carried out.
With a latency each answer takes that long, as on a distant store, and ``trips`` tell which requests waited for which.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.unit.http_double import served

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "bucket"
_COMPLETED = b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
_OF_UPLOADS = frozenset({"BEGIN", "PART", "PARTS", "COMPLETE", "END", "UPLOADS"})


@dataclass(frozen=True)
class Fault:
    """One misleading answer. ``done``: carried out all the same; ``cut``: no answer at all."""

    status: int = 503
    code: str = "SlowDown"
    done: bool = False
    cut: bool = False
    short: bool = False  # fewer bytes than announced
    message: str = "about SECRET"


@dataclass(frozen=True)
class Trip:
    """One request: its method, the key or prefix that it is about, and when it came and was answered."""

    method: str
    about: str
    came: float
    answered: float


@dataclass
class Upload:
    """An upload that is open, or ``completed``."""

    key: str
    token: str
    parts: dict[int, bytes] = field(default_factory=dict)
    completed: bool = False


@dataclass
class S3Double:
    """What the server holds. ``lies`` takes conditions and does not look at them.

    ``refuses_own`` answers to a second completion that the name is taken, as some servers do, and not that the upload
    is not there, as others do. ``google`` has Google Cloud Storage's name for the condition of a put, and
    answers 404 to who removes what is not there.
    """

    lies: bool = False
    google: bool = False
    versions: bool = False  # what is replaced or removed is kept, and each put is told its version
    refuses_own: bool = False
    latency_s: float = 0.0
    page: int = 2
    trips: list[Trip] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reset(self) -> None:
        """Hold nothing, and be honest."""
        self.lies, self.versions, self.refuses_own, self.latency_s, self.page = False, False, False, 0.0, 2
        for each in (
            self.trips, self.objects, self.tokens, self.uploads, self.faults, self.denied, self.requests, self.headers,
        ):  # fmt: skip
            each.clear()

    @property
    def open_uploads(self) -> list[str]:
        """The keys of what is neither completed nor ended."""
        return sorted(each.key for each in self.uploads.values() if not each.completed)

    def fault(self, method: str, *faults: Fault) -> None:
        self.faults.setdefault(method, deque()).extend(faults)


def serve(double: S3Double) -> Iterator[S3Double]:
    """Serve until the generator is closed."""
    for address in served(type("Handler", (_Handler,), {"double": double})):
        double.url = f"http://{address}"
        yield double


class _Handler(BaseHTTPRequestHandler):
    double: S3Double
    came: float
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes

    def do_GET(self) -> None:
        self._handle(
            self._by(
                "GET",
                {"list-type": "LIST", "uploads": "UPLOADS", "uploadId": "PARTS", "versioning": "VERSIONING"},
            )
        )

    def do_HEAD(self) -> None:
        self._handle("HEAD")

    def do_PUT(self) -> None:
        self._handle(self._by("PUT", {"uploadId": "PART"}))

    def do_POST(self) -> None:
        self._handle(self._by("POST", {"uploads": "BEGIN", "uploadId": "COMPLETE"}))

    def do_DELETE(self) -> None:
        self._handle(self._by("DELETE", {"uploadId": "END"}))

    def _by(self, method: str, others: dict[str, str]) -> str:
        """Name a request by a parameter that it has."""
        given = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return next((other for name, other in others.items() if name in given), method)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base's name
        pass

    def _handle(self, method: str) -> None:
        self.came = time.monotonic()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        double = self.double
        with double.lock:
            double.requests.append((method, key))
            double.headers.append({name.lower(): value for name, value in self.headers.items()})
            # A heartbeat comes when it likes: a fault that it took would be missing where a test means it.
            waiting = None if "/heartbeats/" in key else double.faults.get(method)
            fault = waiting.popleft() if waiting else None
        if bucket != BUCKET:
            return self._error(404, "NoSuchBucket")
        if method in double.denied:
            return self._error(403, "AccessDenied")
        if fault is not None and not fault.done and not fault.short:
            return self._fail(fault)
        with double.lock:
            query = parse_qs(url.query, keep_blank_values=True)
            carry_out = self._of_uploads if method in _OF_UPLOADS else self._carry_out
            status, headers, answer = carry_out(method, key, body, query)
        if fault is not None:
            return self._answer(200, headers, answer, short=True) if fault.short else self._fail(fault)
        return self._answer(status, headers, answer)

    def _carry_out(
        self, method: str, key: str, body: bytes, query: dict[str, list[str]]
    ) -> tuple[int, dict[str, str], bytes]:
        objects = self.double.objects
        if method == "VERSIONING":
            told = b"<Status>Enabled</Status>" if self.double.versions else b""
            return 200, {}, b"<VersioningConfiguration>%b</VersioningConfiguration>" % told
        if method == "PUT":
            name, value = (
                ("x-goog-if-generation-match", "0") if self.double.google else ("If-None-Match", "*")
            )
            asked = self.headers.get(name, value if key not in objects else None)
            # Any other version is one that there never was.
            if asked is not None and (key in objects or asked != value) and not self.double.lies:
                return 412, {}, _xml("PreconditionFailed")
            objects[key] = body
            version = {"x-amz-version-id": f"v{len(self.double.requests)}"} if self.double.versions else {}
            return 200, {"ETag": '"e"', **version}, b""
        if method in {"GET", "HEAD"}:
            if key not in objects:
                return 404, {}, _xml("NoSuchKey")
            headers = {"ETag": '"e"', "Last-Modified": "Thu, 26 Nov 2026 10:00:00 GMT"}
            return 200, {**headers, "x-amz-meta-onceonly": self.double.tokens.get(key, "")}, objects[key]
        if method == "DELETE":
            if objects.pop(key, None) is None and self.double.google:
                return 404, {}, _xml("NoSuchKey")
            return 204, {}, b""
        return 200, {}, self._page(query)

    def _of_uploads(  # noqa: PLR0911  one for each request
        self, method: str, key: str, body: bytes, query: dict[str, list[str]]
    ) -> tuple[int, dict[str, str], bytes]:
        double, name = self.double, query.get("uploadId", [""])[0]
        if method == "BEGIN":
            name = f"upload-{len(double.uploads)}"
            double.uploads[name] = Upload(key, self.headers.get("x-amz-meta-onceonly", ""))
            told = f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{name}</UploadId>"
            return 200, {}, f"<InitiateMultipartUploadResult>{told}</InitiateMultipartUploadResult>".encode()
        if method == "UPLOADS":
            return 200, {}, self._open(query["prefix"][0])
        upload = double.uploads.get(name)
        if method == "END":
            if upload is not None and not upload.completed:
                del double.uploads[name]
            return 204, {}, b""
        if upload is not None and upload.completed and method == "COMPLETE" and double.refuses_own:
            return 412, {}, _xml("PreconditionFailed")
        if upload is None or upload.completed:
            return 404, {}, _xml("NoSuchUpload")
        if method == "PART":
            number = int(query["partNumber"][0])
            upload.parts[number] = body
            return 200, {"ETag": f'"part-{number}"'}, b""
        if method == "PARTS":
            return 200, {}, b"<ListPartsResult></ListPartsResult>"
        if self.headers.get("If-None-Match") == "*" and key in double.objects and not double.lies:
            return 412, {}, _xml("PreconditionFailed")
        double.objects[key] = b"".join(upload.parts[number] for number in sorted(upload.parts))
        double.tokens[key] = upload.token
        upload.completed = True
        return 200, {}, _COMPLETED

    def _open(self, prefix: str) -> bytes:
        text = "".join(
            f"<Upload><Key>{escape(each.key)}</Key><UploadId>{name}</UploadId></Upload>"
            for name, each in self.double.uploads.items()
            if not each.completed and each.key.startswith(prefix)
        )
        told = f"<IsTruncated>false</IsTruncated>{text}"
        return f"<ListMultipartUploadsResult>{told}</ListMultipartUploadsResult>".encode()

    def _page(self, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", [""])[0]
        delimiter = query.get("delimiter", [""])[0]
        found: dict[str, bool] = {}
        for key in sorted(self.double.objects):
            if key.startswith(prefix):
                head, slash, _ = key.removeprefix(prefix).partition("/")
                folds = bool(delimiter and slash)
                found[prefix + head + "/" if folds else key] = folds
        left = [key for key in found if key > after]
        page, more = left[: self.double.page], len(left) > self.double.page
        text = "".join(
            f"<CommonPrefixes><Prefix>{escape(key)}</Prefix></CommonPrefixes>"
            if found[key]
            else f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-26T10:00:00.000Z</LastModified>"
            f'<ETag>"e"</ETag><Size>{len(self.double.objects[key])}</Size></Contents>'
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return (
            f"<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>{str(more).lower()}</IsTruncated>"
            f"{token}{text}</ListBucketResult>"
        ).encode()

    def _fail(self, fault: Fault) -> None:
        if fault.cut:
            self.close_connection = True
            self.connection.close()
        else:
            self._error(fault.status, fault.code, fault.message)

    def _error(self, status: int, code: str, message: str = Fault.message) -> None:
        self._answer(status, {}, _xml(code, message))

    def _answer(self, status: int, headers: dict[str, str], body: bytes, *, short: bool = False) -> None:
        time.sleep(self.double.latency_s)
        url = urlsplit(self.path)
        listed = parse_qs(url.query).get("prefix", [""])[0] if "list-type" in url.query else None
        about = unquote(url.path).lstrip("/").partition("/")[2] if listed is None else listed
        method = self.command if listed is None else "LIST"
        self.double.trips.append(Trip(method, about, self.came, time.monotonic()))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: len(body) // 2] if short else body)
        if short:
            self.close_connection = True


def _xml(code: str, message: str = Fault.message) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
