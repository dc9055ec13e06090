"""A refusal names the permission that the broker's code proves, and none where there is no proof of one."""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceonly.errors import ConfigurationError, WriteFailedError
from onceonly.model import Guarantee
from onceonly.ports import WriteContext
from onceonly.sinks.kafka.checks import target
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.producers.failures import Failure
from onceonly.sinks.kafka.writer import TransactionalWrite

OPTIONS = KafkaOptions.parse(
    {"kafka.bootstrap.servers": "h:1", "topic": "rows", "onceonly.marker.topic": "markers"}
)
CONTEXT = WriteContext(
    query="q", sink="s", run="r", epoch=0, plan="p", slot=0, attempt="1", guarantee=Guarantee.EXACTLY_ONCE
)  # fmt: skip


def write(marking: Future[None] | None = None) -> TransactionalWrite:
    made = TransactionalWrite.__new__(TransactionalWrite)
    made.options, made.context = OPTIONS, CONTEXT
    made._group, made._marker_topic = "the-group", "markers"
    made._ready = cast("Any", SimpleNamespace(transactional_id="the-id"))
    made._began, made._timeout_ms = time.monotonic(), 60_000
    made._marking = Future() if marking is None else marking
    return made


@pytest.mark.parametrize(
    ("code", "permission"),
    [
        (29, "WRITE and DESCRIBE on topic rows"),
        (30, "READ and DESCRIBE on group the-group"),
        (53, "WRITE and DESCRIBE on transactional id the-id"),
    ],
)
def test_a_refusal_while_rows_are_written_names_what_its_code_is_about(code: int, permission: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        write()._raise_failure(Failure(KafkaError(code)))
    assert permission in caught.value.next_step


def test_a_refusal_of_the_marker_names_its_topic() -> None:
    marking: Future[None] = Future()
    marking.set_exception(KafkaException(KafkaError(29)))
    made = write(marking)
    with pytest.raises(ConfigurationError, match="topic markers") as caught:
        made._call(marking.result)
    assert "READ" in caught.value.next_step


@pytest.mark.parametrize("code", [7, 19, 45, 90, -185])
def test_another_failure_speaks_of_no_permission(code: int) -> None:
    with pytest.raises(WriteFailedError) as caught:
        write()._raise_failure(Failure(KafkaError(code)))
    assert "permission" not in str(caught.value)


class Broker:
    """Knows one topic, and tells which operations are allowed."""

    def __init__(self, *operations: int) -> None:
        self.operations = sum(1 << each for each in operations)

    def patiently(self, _seconds: float, _thing: str, attempt: Any) -> Any:  # noqa: ANN401
        return attempt()

    def send(self, _request: object) -> Any:  # noqa: ANN401
        topic = SimpleNamespace(error_code=0, authorized_operations=self.operations)
        return SimpleNamespace(topics=[topic])


READ, WRITE, DESCRIBE = 3, 4, 8  # org.apache.kafka.common.acl.AclOperation


@pytest.mark.parametrize("holds_markers", [True, False])
def test_a_topic_of_markers_must_be_readable_and_another_one_need_not(holds_markers: bool) -> None:  # noqa: FBT001  a parameter
    admin = cast("Any", Broker(WRITE, DESCRIBE))
    if not holds_markers:
        target._check_topic(admin, "t")
        return
    with pytest.raises(ConfigurationError, match="topic t") as caught:
        target._check_topic(admin, "t", holds_markers=True)
    assert "READ" in caught.value.next_step
    target._check_topic(cast("Any", Broker(READ, DESCRIBE)), "t", holds_markers=True)
