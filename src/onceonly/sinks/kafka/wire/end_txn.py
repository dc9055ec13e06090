"""EndTxn requests that commit, spelled at once, and their answers. Imported when kafka-python is sure to be there.

kafka-python goes by schemas, field by field, which is much of what a commit takes of our process; an epoch has as many
of them as slots.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.producer.transaction import EndTxnResponse
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32

# In those before, no tagged fields may follow; of those after, nothing is known. No handle of ours names another.
_VERSION_MIN, _VERSION_MAX = 3, 5

_API_KEY = 26
_COMMIT = True

# Key, version, correlation id, length of the client's id; frames have their length before that.
_HEAD = struct.Struct(">hhih")
# A frame's length, and a correlation id.
_INT32 = struct.Struct(">i")
# Producer id and epoch, whether to commit, number of tagged fields.
_REST = struct.Struct(">qh?B")
_UNTAGGED = b"\0"
# Throttled for so long, error; what follows is of no use here.
_ANSWER = struct.Struct(">ih")


@dataclass(slots=True, eq=False)
class EndTxn:
    """A request to commit a prepared transaction. Raises ``ValueError`` for versions before 3 and after 5.

    It has what kafka-python looks at: its requests are made of a schema, which takes as long as to encode one.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int
    header: _Header = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not _VERSION_MIN <= self.version <= _VERSION_MAX:
            raise ValueError(
                f"EndTxn of version {self.version} cannot be spelled, only {_VERSION_MIN} to {_VERSION_MAX}"
            )

    @property
    def API_VERSION(self) -> int:  # noqa: N802  kafka-python's name
        """Return the version."""
        return self.version

    @staticmethod
    def expect_response() -> bool:
        """Say so; kafka-python asks."""
        return True

    def with_header(self, correlation_id: int, client_id: str) -> None:
        """Take a header; kafka-python calls it, and asks the header how to read the answer."""
        self.header = _Header(correlation_id, client_id)

    def encode(self, *, header: bool, framed: bool) -> bytes:
        """Encode as kafka-python does, which calls it; there is no commit without a header."""
        assert header  # noqa: S101  kafka-python always sends one
        name, client = self.transactional_id.encode(), self.header.client_id.encode()
        text = b"".join(
            (
                _HEAD.pack(_API_KEY, self.version, self.header.correlation_id, len(client)),
                client,
                _UNTAGGED,
                _length(len(name)),
                name,
                _REST.pack(self.producer_id, self.producer_epoch, _COMMIT, 0),
            )
        )
        return _INT32.pack(len(text)) + text if framed else text


@dataclass(slots=True)
class _Header:
    correlation_id: int
    client_id: str

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
