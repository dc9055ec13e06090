"""What an answer of Kafka means, or that there was none: errors and codes of the protocol."""

from __future__ import annotations

from typing import Any

from onceonly.errors import ConfigurationError

# Error codes of the protocol: org.apache.kafka.common.protocol.Errors.
NONE = 0
UNKNOWN_TOPIC = 3
LEADERLESS = 5
COORDINATOR_CODES = frozenset({14, 15, 16})  # loading, not available, not this one
STILL_ENDING = 51
"""CONCURRENT_TRANSACTIONS: one is being ended, either way. It takes milliseconds, unless a broker is down."""
NOT_YET_CODES = COORDINATOR_CODES | {7, 8, 13, STILL_ENDING, 56, 88}  # time-outs, 88 unstable
TOPIC_FORBIDDEN = 29
FORBIDDEN = {
    29: "WRITE and DESCRIBE on topic {}",
    30: "READ and DESCRIBE on group {}",
    31: "the cluster operation for {}",
    53: "WRITE and DESCRIBE on transactional id {}",
}
"""The permission that each code of the protocol is about."""


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
    if code in FORBIDDEN:
        raise ConfigurationError(
            f"Kafka refuses access to {thing} (error {code}).",
            next_step=f"grant the client's user {FORBIDDEN[code].format(thing)}",
        )


def is_retriable(code: int) -> bool:
    """Return whether the same request may succeed later, as Kafka's own clients see the code."""
    from kafka.errors import for_code

    return bool(getattr(for_code(code), "retriable", False))


def features(client: Any) -> dict[str, int]:  # noqa: ANN401  either client
    """Ask any broker for the levels of the features that the cluster has finalised."""
    from kafka.protocol.metadata import ApiVersionsRequest

    answer = client.send(
        ApiVersionsRequest(client_software_name="onceonly", client_software_version="0"), None
    )
    return {each.name: each.max_version_level for each in answer.finalized_features or ()}


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
