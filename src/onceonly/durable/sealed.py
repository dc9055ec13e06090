"""What a small durable file looks like: one line of header, then a body. Pure; no I/O.

::

    {"format":"onceonly","kind":"link","version":1,"length":812,"checksum":"sha256:…"}
    {"epoch":7,"index":0,"kind":"GLOBAL_COMMIT",…}

A reader takes a file as a whole or refuses it by name: of a newer version, of another kind, torn, damaged. The
decision log, the manifests of the file sink and journals are written so.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from onceonly.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.errors import OnceonlyError

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
"""What decoding raises; msgspec lets a wrong byte inside a string through to Python."""


T = TypeVar("T")

_learning = threading.Lock()
_learnt: dict[object, msgspec.json.Decoder[Any]] = {}


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return what decodes JSON into a type. Any thread.

    msgspec learns a type when it is first asked for it. A second thread that asks meanwhile finds it half learned, and
    the process ends by SIGSEGV.
    """
    with _learning:
        if kind not in _learnt:
            _learnt[kind] = msgspec.json.Decoder(kind)
        return _learnt[kind]


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    kind: str
    version: int
    length: int
    checksum: str


class _Version(msgspec.Struct, frozen=True):
    """What every version's header has."""

    format: str
    version: int


def _sha256(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One family of files. ``restore`` is the next step for a file of it that is damaged, and ``error`` its kind."""

    name: str
    version: int
    restore: str
    checksum: Callable[[bytes], str] = _sha256
    error: type[OnceonlyError] = LogError

    def seal(self, kind: str, body: bytes) -> bytes:
        """Put a header before a body. The same body always gives the same bytes."""
        header = _Header(
            format=self.name, kind=kind, version=self.version, length=len(body), checksum=self.checksum(body)
        )
        return msgspec.json.encode(header) + b"\n" + body

    def unseal(self, data: bytes, *, kind: str, where: str) -> bytes:
        """Return the body of a file; ``where`` is its full address, for the error. Raises its ``error``."""
        header, body = self._opened(data, kind, where)
        if header.length != len(body):
            raise self.refuse(f"{where} is torn: {len(body)} bytes where its header says {header.length}")
        if header.checksum != self.checksum(body):
            raise self.refuse(f"{where} is damaged or was changed by hand: its checksum differs")
        return body

    def begun(self, data: bytes, *, kind: str, where: str) -> bytes:
        """Return the beginning of a body from that of a file, which no checksum holds for. Raises as ``unseal``."""
        return self._opened(data, kind, where)[1]

    def _opened(self, data: bytes, kind: str, where: str) -> tuple[_Header, bytes]:
        line, newline, body = data.partition(b"\n")
        if not newline:
            raise self.refuse(f"{where} is empty or torn: damaged on its way to or on the disk")
        self._check_version(line, where)
        try:
            header = decoder(_Header).decode(line)
        except UNREADABLE as error:
            raise self.refuse(f"{where} has a damaged header: {error}") from None
        if header.kind != kind:
            raise self.refuse(
                f"{where} holds a {header.kind!r} where a {kind!r} belongs: a file was moved by hand"
            )
        return header, body

    def sum_in(self, data: bytes) -> str:
        """Return the checksum that a file's header says, for people; empty where it has no such header."""
        try:
            return decoder(_Header).decode(data.partition(b"\n")[0]).checksum
        except UNREADABLE:
            return ""

    def refuse(self, what: str) -> OnceonlyError:
        """Make the error for a file that cannot be used."""
        return self.error(what, next_step=self.restore)

    def read(self, data: bytes, into: type[T], *, kind: str, where: str) -> T:
        """Return what the JSON body of a file says. Raises as ``unseal`` and ``decode``."""
        return self.decode(self.unseal(data, kind=kind, where=where), into, where=where)

    def decode(self, text: bytes, into: type[T], *, where: str) -> T:
        """Return what JSON from a body says, which is whole by its checksum. Raises ``error`` where it is not known."""
        try:
            return decoder(into).decode(text)
        except UNREADABLE as error:
            raise self.unknown(where, error) from None

    def unknown(self, where: str, why: Exception) -> OnceonlyError:
        """Make the error for a file that is whole by its checksum, and says what is not known."""
        return self.error(
            f"{where} is whole, and says what this onceonly does not know: another version of it wrote it ({why})",
            next_step=f"upgrade onceonly on driver and executors to the version that wrote it; or {self.restore}",
        )

    def _check_version(self, line: bytes, where: str) -> None:
        try:
            header = decoder(_Version).decode(line)
        except UNREADABLE as error:
            raise self.refuse(f"{where} has a damaged header: {error}") from None
        if header.format != self.name:
            raise self.refuse(f"{where} was not written by {self.name}")
        if header.version > self.version:
            raise self.error(
                f"{where} has format {header.version}, written by a newer onceonly; this one reads up to "
                f"{self.version}",
                next_step="upgrade onceonly on driver and executors to the version that wrote it",
            )
        if header.version < 1:
            raise self.refuse(f"{where} has format {header.version}, which never was")
