"""A client of librdkafka that has failed for good is told by its cause, and not by what follows. No broker."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceonly.errors import WriteFailedError
from onceonly.model import Guarantee
from onceonly.ports import WriteContext
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.producers.row_producer import RowProducer
from onceonly.sinks.kafka.writer import TransactionalWrite

FENCED = KafkaError._FENCED


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
    made._began, made._timeout_ms, made._timeout_s = time.monotonic(), 60_000, 1.0
    made.producer = by_row(error())
    with pytest.raises(WriteFailedError, match="somebody else has ended the transaction or taken its id"):
        made._flush()


def test_what_else_goes_wrong_in_a_client_is_raised_as_it_is() -> None:
    with pytest.raises(SystemError):
        by_row(SystemError("of another cause")).flush(1)


class Ending(Client):
    """Notes its end, which in a forked child waits for ever in one of four clients: their threads are the parent's."""

    ended: ClassVar[list[int]] = []

    def __del__(self) -> None:
        self.ended.append(os.getpid())


# From Python 3.12 on, of a fork beside threads.
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_leaves_a_client_to_its_parent() -> None:
    made = by_row()
    made._producer = Ending()
    child = os.fork()
    if not child:
        made.close()
        os._exit(len(Ending.ended))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    made.close()
    assert Ending.ended == [os.getpid()]
