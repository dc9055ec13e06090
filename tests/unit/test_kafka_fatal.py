"""A client of librdkafka that has failed for good is told by its cause, and not by what follows. No broker."""

from __future__ import annotations

import ctypes
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceonly.errors import WriteFailedError
from onceonly.model import Guarantee
from onceonly.ports import WriteContext
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.producers import librdkafka
from onceonly.sinks.kafka.producers.batch_producer import _Reports
from onceonly.sinks.kafka.producers.row_producer import RowProducer
from onceonly.sinks.kafka.writer import TransactionalWrite

FENCED = KafkaError._FENCED
PURGED = [KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE]


class Client:
    """One of confluent-kafka's, which raises where it serves callbacks, and once only."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    def flush(self, _timeout_s: float) -> int:
        return self.poll(0)

    def poll(self, _seconds: float) -> int:
        if self._errors:
            raise self._errors.pop()
        return 0

    def purge(self) -> None:
        pass


def fenced() -> KafkaException:
    return KafkaException(KafkaError(FENCED, "fenced by a newer instance", fatal=True))


def hidden() -> SystemError:
    """As it comes where rows were waiting, too: their reports are delivered in the same call."""
    error = SystemError("<method 'value' of 'Message' objects> returned a result with an exception set")
    error.__cause__ = fenced()
    return error


def by_row(*errors: Exception) -> RowProducer:
    made = RowProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
    made._producer = Client(*errors)
    return made


@pytest.mark.parametrize("error", [fenced, hidden])
def test_an_attempt_whose_client_was_fenced_says_so(error: Any) -> None:  # noqa: ANN401  either
    made = TransactionalWrite.__new__(TransactionalWrite)
    made.context = WriteContext(
        query="q", sink="s", run="r", epoch=1, plan="p", slot=2, attempt="3", guarantee=Guarantee.EXACTLY_ONCE
    )
    made.options = KafkaOptions.parse({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    made._ready = cast("Any", SimpleNamespace(transactional_id="the-id"))
    made._began, made._timeout_ms, made._timeout_s, made._mark = time.monotonic(), 60_000, 1.0, 1
    made.producer = by_row(error())
    with pytest.raises(WriteFailedError, match="somebody else has ended the transaction or taken its id"):
        made._flush()


def test_what_is_dropped_of_a_client_that_has_failed_hides_no_other_error() -> None:
    by_row(fenced()).purge()
    with pytest.raises(SystemError):
        by_row(SystemError("of another cause")).flush(1)


@pytest.mark.parametrize("code", [librdkafka.FATAL, *PURGED])
@pytest.mark.parametrize("cause", [FENCED, 0])
def test_rows_that_were_purged_are_told_with_what_their_client_has_failed_of(code: int, cause: int) -> None:
    def fatal_error(_client: int, text: Any, _size: int) -> int:  # noqa: ANN401  ctypes
        text.value = b"fenced by a newer instance" if cause else b""
        return cause

    library = SimpleNamespace(fatal_error=fatal_error, err2str=lambda _code: b"Purged")
    reports = _Reports(cast("Any", library))
    row = librdkafka.Message(err=code, _private=7, len=3, key_len=2)
    reports.take(1, ctypes.pointer(row), None)
    failure = reports.failures.first(7)
    assert failure is not None
    assert failure.error.code() == (cause or code)
    assert failure.error.fatal() == (bool(cause) or code == librdkafka.FATAL)
