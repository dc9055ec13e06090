"""A user's mistake gives one clear sentence that names the thing, before anything is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness import Bench, open_transactions

from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

ROWS = [(f"k{number % 5}", str(number)) for number in range(200)]


@pytest.fixture(scope="module")
def strict_kafka() -> Iterator[EmbeddedKafka]:
    """A broker that creates no topics by itself, with a short limit on transactions."""
    properties = {"auto.create.topics.enable": "false", "transaction.max.timeout.ms": "60000"}
    with EmbeddedKafka(properties=properties) as kafka:
        yield kafka


def with_option(bench: Bench, *pairs: str) -> None:
    bench.args = [part for pair in pairs for part in ("--option", pair)]


@pytest.mark.long
def test_an_unknown_option_is_named_with_the_nearest_known_one(bench: Bench) -> None:
    bench.feed(ROWS)
    with_option(bench, "kafka.lingre.ms=5")
    message = bench.run_to_an_error()
    assert "kafka.lingre.ms" in message
    assert "linger.ms" in message
    assert bench.read() == []
    bench.args = []
    bench.run()
    bench.assert_exactly_once(ROWS)


@pytest.mark.long
def test_a_missing_topic_is_named_where_it_may_not_be_created(
    strict_kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    bench = Bench(strict_kafka, tmp_path)
    bench.feed(ROWS)
    with_option(bench, f"topic={bench.name}-nowhere")
    assert f"{bench.name}-nowhere" in bench.run_to_an_error()


@pytest.mark.long
def test_a_time_out_above_the_brokers_maximum_names_both(strict_kafka: EmbeddedKafka, tmp_path: Path) -> None:
    bench = Bench(strict_kafka, tmp_path)
    bench.feed(ROWS)
    with_option(bench, "kafka.transaction.timeout.ms=120000")
    message = bench.run_to_an_error()
    assert "120000" in message
    assert "60000" in message


def test_a_record_over_the_brokers_limit_stops_before_anything_of_its_epoch_shows(bench: Bench) -> None:
    bench.kafka.create_topic(f"{bench.name}-small", partitions=1, configs={"max.message.bytes": "1000"})
    bench.feed([("big", "x" * 5000)])
    with_option(bench, f"topic={bench.name}-small")
    message = bench.run_to_an_error()
    assert "RECORD_REFUSED" in message
    assert bench.read(f"{bench.name}-small") == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["key", "cast(value as string) as text"], "value"),
        pytest.param(["key", "cast(cast(value as string) as int) as value"], "int", marks=pytest.mark.long),
        pytest.param(["value", "'4' as partition"], "partition", marks=pytest.mark.long),
    ],
)
def test_wrong_columns_are_named_with_what_they_must_be(bench: Bench, columns: list[str], names: str) -> None:
    bench.feed(ROWS)
    bench.args = [part for column in columns for part in ("--column", column)]
    message = bench.run_to_an_error()
    assert "CONFIGURATION" in message
    assert names in message
    assert bench.read() == []


def test_a_null_topic_stops_the_epoch_and_loses_nothing(bench: Bench) -> None:
    bench.feed(ROWS)
    topic = f"if(cast(value as string) = '150', null, '{bench.target}') as topic"
    bench.args = ["--column", "key", "--column", "value", "--column", topic]
    with_marker = ["--option", "topic=", "--option", f"onceonly.marker.topic={bench.target}"]
    bench.args += with_marker
    assert "RECORD_REFUSED" in bench.run_to_an_error()
    seen = bench.read()
    assert len(seen) == 100, "the epoch before stands, nothing of the refused one shows"
    bench.args = [
        "--column",
        "key",
        "--column",
        "value",
        "--column",
        f"'{bench.target}' as topic",
        *with_marker,
    ]
    bench.run()
    bench.assert_exactly_once(ROWS)


@pytest.mark.long
def test_a_newer_format_is_refused_and_named(bench: Bench) -> None:
    bench.feed(ROWS)
    bench.run()
    link = max((bench.checkpoint / "onceonly" / "links").glob("*.json"))
    head, _, body = link.read_bytes().partition(b"\n")
    header = json.loads(head) | {"version": 99}
    link.write_bytes(json.dumps(header).encode() + b"\n" + body)
    bench.feed([("more", "1")])
    message = bench.run_to_an_error()
    assert str(link) in message
    assert "99" in message


@pytest.mark.long
def test_a_damaged_decision_is_refused_and_named(bench: Bench) -> None:
    bench.feed(ROWS)
    bench.run_and_kill_at("link.after_put", 2)
    link = max((bench.checkpoint / "onceonly" / "links").glob("*.json"))
    content = bytearray(link.read_bytes())
    content[-10] ^= 1
    link.write_bytes(content)
    assert str(link) in bench.run_to_an_error()
    content[-10] ^= 1
    link.write_bytes(content)
    bench.run()
    bench.assert_exactly_once(ROWS)


@pytest.mark.long
def test_a_copied_checkpoint_is_refused(bench: Bench) -> None:
    bench.feed(ROWS)
    bench.run_and_kill_at("link.after_put", 2)
    original = bench.checkpoint
    copy = bench.folder / "copy" / "checkpoint"
    shutil.copytree(original, copy)
    bench.folder = copy.parent
    message = bench.run_to_an_error()
    assert "CHECKPOINT_MOVED" in message
    assert str(original) in message
    bench.folder = original.parent
    bench.run()
    bench.assert_exactly_once(ROWS)


@pytest.mark.long
def test_other_options_are_refused_while_handles_are_pending(bench: Bench) -> None:
    bench.feed(ROWS)
    bench.run_and_kill_at("link.after_put", 2)
    with_option(bench, f"topic={bench.source}-other")
    bench.kafka.create_topic(f"{bench.source}-other", partitions=1)
    assert f"{bench.source}-other" in bench.run_to_an_error()
    bench.args = []
    bench.run()
    bench.assert_exactly_once(ROWS)


@pytest.mark.long
def test_another_cluster_is_refused_while_handles_are_pending(
    bench: Bench, strict_kafka: EmbeddedKafka
) -> None:
    bench.feed(ROWS)
    bench.run_and_kill_at("link.after_put", 2)
    strict_kafka.create_topic(bench.target, partitions=2)
    with_option(bench, f"kafka.bootstrap.servers={strict_kafka.bootstrap_servers}")
    assert "cluster" in bench.run_to_an_error()
    assert open_transactions(bench.kafka.bootstrap_servers, bench.query_id()), "nothing may have been touched"
    bench.args = []
    bench.run()
    bench.assert_exactly_once(ROWS)


@pytest.mark.long
def test_a_second_driver_takes_over_and_the_first_changes_nothing(bench: Bench) -> None:
    bench.feed(ROWS)
    first = bench.start("link.before_put=pause@2")
    try:
        first.wait_for("link.before_put")
        bench.run()
        bench.assert_exactly_once(ROWS)
        # The first one wakes up between its votes and its link.
        (first.fired / "resume").touch()
        assert first.wait() == 3, first.tail()
        message = Path(f"{bench.checkpoint}.error").read_text(encoding="utf-8")
        assert "SUPERSEDED" in message
    finally:
        first.kill_tree()
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()


@pytest.mark.parametrize("way", ["format", pytest.param("foreachBatch", marks=pytest.mark.long)])
def test_a_password_in_the_options_is_nowhere_to_be_found(bench: Bench, way: str) -> None:
    canary = "canary-7f3a9c"
    bench.feed(ROWS)
    bench.args = [
        "--way",
        way,
        "--option",
        f"kafka.sasl.password={canary}",
        "--option",
        "kafka.sasl.username=u",
    ]
    bench.args += ["--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={bench.folder}"]
    bench.run()
    bench.feed([("x" * 10, "y")])
    bench.args += ["--option", "kafka.no.such.option=1"]
    assert canary not in bench.run_to_an_error()
    looked_at = 0
    for folder, _, names in os.walk(bench.folder):
        for name in names:
            # The JVM clears its own folder away a moment after the job has ended.
            with contextlib.suppress(FileNotFoundError):
                content = (Path(folder) / name).read_bytes()
                assert canary.encode() not in content, f"the password stands in {folder}/{name}"
                looked_at += 1
    assert looked_at > 10
