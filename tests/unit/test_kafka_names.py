"""The names of kafka-python that commits stand on: all there, or the plain way is taken and the version named."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.producer.transaction import EndTxnRequest

from onceonly.sinks.kafka import committer
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.prepared import Prepared
from onceonly.sinks.kafka.producers import direct_producer
from onceonly.sinks.kafka.wire import end_txn, names
from onceonly.sinks.kafka.wire.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Iterator

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
OWN = "7:own"
PREPARED = Prepared(
    cluster_id="c", transactional_id="id", producer_id=5, producer_epoch=0, end_txn_version=5, group="g",
    marker_topic="t", token=OWN, predecessor="before",
)  # fmt: skip


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    asked = names.missing
    asked.cache_clear()
    yield
    asked.cache_clear()


def test_this_version_has_them_all() -> None:
    assert names.missing() == ()


def test_the_range_that_is_installed_is_the_one_that_was_tested() -> None:
    (found,) = re.findall(r'"kafka-python(>=[^"]+)"', PYPROJECT.read_text())
    assert found == f">={names.OLDEST},<{names.NEXT_MAJOR}"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (NetworkSelector, "call_later"),
        (KafkaConnectionManager, "_build_transport"),
        (KafkaConnectionManager, "connection_delay"),
        (KafkaConnection, "init_future"),
    ],
)
def test_one_that_is_missing_is_named_with_the_version_and_the_next_step(
    kind: type, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(kind, name)
    with caplog.at_level(logging.WARNING, "onceonly"):
        found = names.missing()
    assert any(name in each.split(".")[-1] for each in found), found
    told = names.unfit(found)
    assert "kafka-python 3." in told.what
    assert f">={names.OLDEST}" in told.next_step
    assert told.what in caplog.text
    assert names.missing() is found, "asked once a process"


def test_a_function_that_takes_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def send_request(self: Any, request: Any) -> Any:  # noqa: ANN401
        return self, request

    monkeypatch.setattr(KafkaConnection, "send_request", send_request)
    assert names.missing() == ("KafkaConnection.send_request(request_timeout_ms)",)


def test_a_commit_that_would_go_out_as_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_txn, "_COMMIT", False)
    assert names.missing() == ("EndTxnRequest as it was",)


def test_where_one_is_missing_the_plain_client_and_kafka_pythons_own_request_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from onceonly.sinks.kafka.wire import plain_client

    monkeypatch.setattr(names, "missing", lambda: ("a name",))
    made = object()
    monkeypatch.setattr(plain_client, "PlainClient", lambda _options: made)
    admin = Admin(KafkaOptions.parse({"kafka.bootstrap.servers": "nowhere:9", "topic": "t"}))
    assert admin._make() is made
    request = committer._end(PREPARED)
    assert isinstance(request, EndTxnRequest)
    assert request.committed is True
    assert "kafka-python" in direct_producer.lacks()
