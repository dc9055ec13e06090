"""EndTxn requests that commit, spelled at once, and their answers. Imported when kafka-python is sure to be there.

kafka-python goes by schemas, field by field, which is much of what a commit takes of our process; an epoch has as many
of them as slots.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Any

from kafka.protocol.producer.transaction import EndTxnRequest, EndTxnResponse
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32

# The first in which tagged fields may follow; no handle names an older one.
_VERSION_MIN = 3

# Key, version, correlation id, length of the client's id; frames have their length before that.
_HEAD = struct.Struct(">hhih")
# A frame's length, and a correlation id.
_INT32 = struct.Struct(">i")
# Producer id and epoch, whether to commit, number of tagged fields.
_REST = struct.Struct(">qh?B")
_UNTAGGED = b"\0"
# Throttled for so long, error; what follows is of no use here.
_ANSWER = struct.Struct(">ih")


class EndTxn(EndTxnRequest, init=False):  # type: ignore[misc,call-arg]  # kafka-python is untyped
    """A request to commit a prepared transaction. Raises ``ValueError`` for versions before 3."""

    def __init__(self, transactional_id: str, *, producer_id: int, producer_epoch: int, version: int) -> None:
        if version < _VERSION_MIN:
            raise ValueError(f"EndTxn of version {version} is too old: it is spelled otherwise before 3")
        super().__init__(
            version=version,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=True,
        )

    def with_header(self, correlation_id: int = 0, client_id: str = "") -> None:
        """Take a header; kafka-python calls it, and asks the header how to read the answer."""
        self._header = _Header(self.API_VERSION, correlation_id, client_id)

    def encode(self, version: int | None = None, *, header: bool = False, framed: bool = False) -> bytes:
        """Encode as kafka-python does, which calls it."""
        if version is not None:
            self.API_VERSION = version
        if not header:
            return bytes(super().encode(framed=framed))
        name, client = self.transactional_id.encode(), self._header.client_id.encode()
        text = b"".join(
            (
                _HEAD.pack(self.API_KEY, self.API_VERSION, self._header.correlation_id, len(client)),
                client,
                _UNTAGGED,
                _length(len(name)),
                name,
                _REST.pack(self.producer_id, self.producer_epoch, self.committed, 0),
            )
        )
        return _INT32.pack(len(text)) + text if framed else text


@dataclass(slots=True)
class _Header:
    request_api_version: int
    correlation_id: int
    client_id: str
    request_api_key: int = EndTxnRequest.API_KEY

    def get_response_class(self) -> type[_Answer]:
        """Say what reads the answer; kafka-python calls it."""
        return _Answer


@dataclass(frozen=True, slots=True)
class _AnswerHeader:
    correlation_id: int


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is used of an answer."""

    throttle_time_ms: int
    error_code: int

    @staticmethod
    def parse_header(received: Any) -> _AnswerHeader:  # noqa: ANN401  kafka-python's buffer
        """Read the header; kafka-python calls it, and ``decode`` then."""
        header = _AnswerHeader(*_INT32.unpack(received.read(_INT32.size)))
        if received.read(len(_UNTAGGED)) != _UNTAGGED:
            received.seek(0)
            EndTxnResponse[_VERSION_MIN].parse_header(received)  # skips what is tagged
        return header

    @classmethod
    def decode(cls, received: Any) -> _Answer:  # noqa: ANN401  as above
        """Read what comes behind the header; raises ``struct.error``, which kafka-python expects."""
        return cls(*_ANSWER.unpack(received.read(_ANSWER.size)))


@functools.lru_cache
def _length(size: int) -> bytes:
    """Spell what stands before a text of so many bytes."""
    return bytes(UnsignedVarInt32.encode(size + 1))
