"""The auditor against a real broker: what is not committed is not seen, what is wrong is found."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from confluent_kafka import Producer

from onceonly.errors import UnavailableError
from onceonly_proof.auditor.kafka import open_transactions, read_committed
from onceonly_proof.demo.audit import Audit, audit

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = pytest.mark.integration

ROWS = pd.DataFrame(
    [(0, "UA", "N1", 10), (1, "UA", "N2", 20), (2, "AA", None, 30)], columns=["id", "app_id", "user", "hour"]
)


class Topics:
    """Two topics of our own, written with a plain transactional producer."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.files = folder
        name = f"audit-{uuid.uuid4().hex[:8]}"
        self.kafka, self.prefix = kafka, name
        self.clean, self.results = f"{name}-clean", f"{name}-results"
        for topic in (self.clean, self.results):
            kafka.create_topic(topic, partitions=2)

    def write(
        self, ids: Iterable[int], windows: Iterable[tuple[str, int, int, int]], end: str = "commit"
    ) -> Producer:
        producer = Producer({
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "transactional.id": f"{self.prefix}.{uuid.uuid4().hex}",
            "log_level": 2,
        })  # fmt: skip
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in ids:
            producer.produce(self.clean, json.dumps({"id": number}), str(number))
        for app, pv, uv, epoch in windows:
            row = {"app_id": app, "window_start": 0, "pv": pv, "uv": uv, "epoch": epoch}
            producer.produce(self.results, json.dumps(row), f"{app}|0")
        producer.flush(30)
        if end == "commit":
            producer.commit_transaction(30)
        if end == "abort":
            producer.abort_transaction(30)
        return producer

    def found(self) -> Audit:
        return audit(
            self.kafka.bootstrap_servers, ROWS, clean=self.clean, results=self.results, files=self.files,
            prefix=self.prefix,
        )  # fmt: skip

    def audit(self) -> tuple[int, int, int, int, int]:
        found = self.found()
        assert found.foreign == 0
        return (
            found.missing, found.duplicated_events, found.doubled_results, found.wrong_windows,
            len(found.open_transactions),
        )  # fmt: skip


RIGHT = [("UA", 1, 1, 0), ("UA", 2, 2, 1), ("AA", 1, 0, 1)]


@pytest.fixture
def topics(kafka: EmbeddedKafka, tmp_path: Path) -> Topics:
    return Topics(kafka, tmp_path)


def test_right_topics_are_clean_though_something_was_aborted(topics: Topics) -> None:
    topics.write([0, 1], RIGHT[:1])
    topics.write([0, 1, 2], RIGHT, end="abort")
    topics.write([2], RIGHT[1:])
    assert topics.audit() == (0, 0, 0, 0, 0)


def test_files_are_read_as_everybody_reads_them_and_what_is_staged_is_named(topics: Topics) -> None:
    topics.write([0, 1, 2], RIGHT)
    staged = topics.files / "_onceonly" / "staging" / "q"
    staged.mkdir(parents=True)
    rows = [
        {"app_id": app, "window_start": 0, "pv": pv, "uv": uv, "epoch": epoch} for app, pv, uv, epoch in RIGHT
    ]
    (topics.files / "part-0.json").write_text("\n".join(map(json.dumps, rows)))
    (topics.files / ".hidden.json").write_text("{}")
    found = topics.found()
    assert (found.unequal, found.open_transactions) == (0, ())
    (staged / "part-1.json").write_text("{}")
    (topics.files / "part-0.json").write_text(json.dumps(rows[0]))
    found = topics.found()
    assert (found.unequal, found.open_transactions) == (2, (str(staged / "part-1.json"),))


def test_missing_doubled_and_wrong_are_found(topics: Topics) -> None:
    topics.write([0, 0, 1], [*RIGHT, ("UA", 2, 2, 1), ("AA", 1, 1, 2)])
    assert topics.audit() == (1, 1, 1, 1, 0)


def test_what_is_left_open_is_not_visible_and_is_named(topics: Topics) -> None:
    topics.write([0, 1, 2], RIGHT[:2])
    producer = topics.write([], RIGHT[2:], end="")
    assert topics.audit() == (0, 0, 0, 1, 1)
    producer.abort_transaction(30)
    assert open_transactions(topics.kafka.bootstrap_servers, topics.prefix) == []


def test_a_topic_that_is_not_there_is_an_error(kafka: EmbeddedKafka) -> None:
    with pytest.raises(UnavailableError, match="no-such-topic"):
        list(read_committed(kafka.bootstrap_servers, "no-such-topic"))
