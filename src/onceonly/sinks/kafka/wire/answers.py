"""What an answer of Kafka means, or that there was none: the one judge of the protocol's error codes.

Everybody who sends a request asks ``meaning``; what to do about it is for whoever asked.
"""

from __future__ import annotations

import enum
from typing import Any

from onceonly.errors import ConfigurationError

# Codes that are looked at by themselves: org.apache.kafka.common.protocol.Errors.
NONE = 0
UNKNOWN_TOPIC = 3
LEADERLESS = 5
TOO_LARGE = 10
INVALID_TOPIC = 17
TOPIC_FORBIDDEN = 29
GROUP_FORBIDDEN = 30
TOPIC_EXISTS = 36
INVALID_TIMEOUT = 50
"""INVALID_TRANSACTION_TIMEOUT: above the broker's ``transaction.max.timeout.ms``."""
STILL_ENDING = 51
"""CONCURRENT_TRANSACTIONS: one is being ended, either way. It takes milliseconds, unless a broker is down."""
ID_FORBIDDEN = 53
NOT_ATTEMPTED = 55
"""OPERATION_NOT_ATTEMPTED: it only says that another one of the same request has failed."""
UNSTABLE = 88
"""UNSTABLE_OFFSET_COMMIT: a transaction on it has not ended."""
ID_NOT_FOUND = 105
"""TRANSACTIONAL_ID_NOT_FOUND: it has expired, or the broker has lost it."""

# Bits of "authorized operations": org.apache.kafka.common.acl.AclOperation.
READ, WRITE = 3, 4
_UNTOLD = -(2**31)

_PERMISSIONS = {
    TOPIC_FORBIDDEN: "WRITE and DESCRIBE on topic {}",
    GROUP_FORBIDDEN: "READ and DESCRIBE on group {}",
    31: "the cluster operation for {}",
    ID_FORBIDDEN: "WRITE and DESCRIBE on transactional id {}",
}


class Meaning(enum.Enum):
    """What a code says of the request that it answers."""

    DONE = enum.auto()
    """It was carried out."""
    KNOWN = enum.auto()
    """Of rows: they are there already, by their sequence numbers."""
    LATER = enum.auto()
    """Not now; the same may be asked again, of whoever leads by then."""
    ELSEWHERE = enum.auto()
    """Not now and, maybe, not by this coordinator: it is looked up before the same is asked again."""
    FORBIDDEN = enum.auto()
    """A permission is missing, which only a person grants."""
    ENDED = enum.auto()
    """The transaction is open no more, or somebody else has taken its producer's place."""
    TOO_LARGE = enum.auto()
    """More than the topic takes: fewer rows may do, and a single one never."""
    REFUSED = enum.auto()
    """A row that will never be taken."""
    OTHER = enum.auto()
    """Nothing of that: the request failed, and why is for people."""


_MEANINGS = {
    NONE: Meaning.DONE,
    8: Meaning.LATER,  # BROKER_NOT_AVAILABLE
    TOO_LARGE: Meaning.TOO_LARGE,
    **dict.fromkeys((14, 15, 16), Meaning.ELSEWHERE),  # loading, not available, not this one
    18: Meaning.TOO_LARGE,  # RECORD_LIST_TOO_LARGE
    **dict.fromkeys(_PERMISSIONS, Meaning.FORBIDDEN),
    46: Meaning.KNOWN,  # DUPLICATE_SEQUENCE_NUMBER
    # INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED, and rd_kafka's own _FENCED.
    **dict.fromkeys((47, 48, 90, -144), Meaning.ENDED),
    87: Meaning.REFUSED,  # INVALID_RECORD
}


def meaning(code: int) -> Meaning:
    """Return what a code means: by the table, else by whether Kafka's own clients would ask again."""
    if code in _MEANINGS:
        return _MEANINGS[code]
    from kafka.errors import for_code

    return Meaning.LATER if getattr(for_code(code), "retriable", False) else Meaning.OTHER


def is_allowed(operations: Any, operation: int) -> bool:  # noqa: ANN401  kafka-python is untyped
    """Say whether this user may do something with a topic or group, or the broker does not tell."""
    if isinstance(operations, int):
        return operations == _UNTOLD or bool(operations >> operation & 1)
    return not operations or operation in operations


class NotAnsweredError(Exception):
    """No answer, or "not now": the request may or may not have been carried out."""


class PutOffError(NotAnsweredError):
    """An answer, and it is "not now": of a broker, with the code of an error; ``what`` says of what."""

    def __init__(self, code: int, what: str = "") -> None:
        from kafka.errors import for_code

        self.code = code
        name = getattr(for_code(code), "__name__", "unknown")
        super().__init__(f"error {code} ({name}){' of ' if what else ''}{what}")


class ThrottledError(NotAnsweredError):
    """Not sent: the broker holds us back for longer than the request has time. Nobody else is asked then."""


def refuse_forbidden(code: int, thing: str, *, topic: str = "") -> None:
    """Raise ``ConfigurationError`` with the permission to grant, if that is what ``code`` says.

    ``topic`` is the one whose offsets hold the marker, where ``thing`` is a group or transactional id: the code tells
    which of the two is refused.
    """
    if code == TOPIC_FORBIDDEN and topic:
        raise ConfigurationError(
            f"Kafka refuses access to topic {topic}, whose partition 0 the markers name (error {code}).",
            next_step=f"grant the client's user READ and DESCRIBE on topic {topic}",
        )
    if code in _PERMISSIONS:
        raise ConfigurationError(
            f"Kafka refuses access to {thing} (error {code}).",
            next_step=f"grant the client's user {_PERMISSIONS[code].format(thing)}",
        )


def judged(error: BaseException) -> Exception:
    """Tell what an error of kafka-python means: ``NotAnsweredError`` or ``ConfigurationError``; others as they are."""
    from kafka.errors import BrokerResponseError, IncompatibleBrokerVersion, KafkaError, RequestTimedOutError

    found: Exception
    if isinstance(error, (NotAnsweredError, ConfigurationError)):
        return error
    if isinstance(error, IncompatibleBrokerVersion):
        found = ConfigurationError(
            f"The Kafka brokers are too old: {error}.", next_step="use brokers of version 3.0 or newer"
        )
    elif isinstance(error, BrokerResponseError) and not isinstance(error, RequestTimedOutError):
        # The one left out is how kafka-python says that there was no answer.
        found = PutOffError(error.errno, ", ".join(map(str, error.args)))
    elif isinstance(error, (KafkaError, OSError, RuntimeError, GeneratorExit)):
        # The last two: it was closed meanwhile.
        found = NotAnsweredError(reason(error))
    else:
        return error if isinstance(error, Exception) else NotAnsweredError(reason(error))
    found.__cause__ = error
    return found


def reason(error: BaseException) -> str:
    """Spell an error with its kind, which those of kafka-python tell themselves."""
    kind, text = type(error).__name__, str(error)
    return text if kind in text else f"{kind}: {text}"
