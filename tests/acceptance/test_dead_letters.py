"""Rows that the target refuses are in the letters' target, once, whatever is killed; the others in the rows' own."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from harness import TEXTS, visible_files

from onceonly_proof.auditor import FilesReader, KafkaReader, LettersReader, audit, read_inputs

if TYPE_CHECKING:
    from harness import Bench

    from onceonly_proof.auditor import Reader

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1800)]

LIMIT = 1000
SMALL_EPOCHS = ["--per-epoch", "50"]
ROWS = [(f"k{number % 7}", str(number) if number % 10 else f"{number}" + "x" * 2000) for number in range(900)]
SMALL = [row for row in ROWS if len(row[1]) < LIMIT]
LARGE = [row for row in ROWS if len(row[1]) >= LIMIT]
STEPS = [
    ("slot.during_write", 4),
    ("letters.before_begin", 3),
    ("slot.after_prepare", 3),
    ("letters.before_prepare", 2),
    ("letters.after_prepare", 3),
    ("link.before_put", 2),
    ("link.after_put", 2),
    ("commit.before_handle", 3),
    ("commit.after_handle[kafka.letters]", 2),
    ("commit.before_handle[kafka.letters]", 2),
    ("receipt.before_put", 2),
    ("receipt.after_put", 2),
    ("commit.before_return", 2),
]
"""The step at which the job dies, and the pass."""
FEW = [STEPS[4], STEPS[6], STEPS[8]]


def with_letters(bench: Bench, kind: str, way: str = "format") -> None:
    """Let the target take small rows only, and letters go to files or to another topic."""
    bench.kafka.create_topic(f"{bench.name}-small", partitions=2, configs={"max.message.bytes": str(LIMIT)})
    options = {"topic": f"{bench.name}-small", "onceonly.refused": "deadletter"}
    own = {"path": str(bench.files), "format": "json"}
    if kind == "kafka":
        bench.kafka.create_topic(f"{bench.name}-letters", partitions=2)
        own = {"kafka.bootstrap.servers": bench.kafka.bootstrap_servers, "topic": f"{bench.name}-letters"}
    options |= {"onceonly.deadletter.format": f"onceonly.{kind}"}
    options |= {f"onceonly.deadletter.option.{name}": value for name, value in own.items()}
    given = [part for name, value in options.items() for part in ("--option", f"{name}={value}")]
    bench.args = ["--way", way, *SMALL_EPOCHS, *given, *TEXTS]


def letters(bench: Bench, kind: str) -> list[dict[str, object]]:
    """Read what anybody sees of the letters."""
    if kind == "kafka":
        return [json.loads(value) for _, value in bench.read(f"{bench.name}-letters")]
    return [json.loads(line) for path in visible_files(bench.files) for line in path.read_text().splitlines()]


def assert_each_row_is_in_one_of_both(bench: Bench, kind: str) -> None:
    assert Counter(bench.read(f"{bench.name}-small")) == Counter(SMALL)
    found = letters(bench, kind)
    rows = [json.loads(str(each["row"])) for each in found]
    assert Counter((row["key"], row["value"]) for row in rows) == Counter(LARGE)
    assert {each["code"] for each in found} == {"TOO_LARGE"}
    assert {each["sink"] for each in found} == {"kafka"}
    assert {each["query"] for each in found} == {bench.query_id()}
    bench.assert_nothing_left_open("kafka", *(["files"] if kind == "files" else []))
    servers, ours = bench.kafka.bootstrap_servers, f"onceonly.{bench.query_id()}."
    reader: Reader = FilesReader("kafka.letters", bench.files)
    if kind == "kafka":
        reader = KafkaReader("kafka.letters", servers, f"{bench.name}-letters")
    main = KafkaReader("kafka", servers, f"{bench.name}-small", transactions=ours)
    verdict = audit(
        read_inputs(servers, bench.source),
        sinks={"kafka": main, "kafka.letters": LettersReader(reader)},
        checkpoint=bench.checkpoint,
    )
    assert verdict.is_clean, verdict.examples


@pytest.mark.parametrize(
    ("kind", "way", "steps"),
    [
        ("files", "format", FEW),
        pytest.param("kafka", "format", STEPS, marks=pytest.mark.long),
        pytest.param("files", "foreachBatch", STEPS, marks=pytest.mark.long),
    ],
    ids=["files", "kafka", "foreachBatch"],
)
def test_rows_and_letters_are_there_once_after_a_kill_at_each_step(
    bench: Bench, kind: str, way: str, steps: list[tuple[str, int]]
) -> None:
    with_letters(bench, kind, way)
    bench.feed(ROWS)
    for point, nth in steps:
        bench.run_and_kill_at(point, nth)
    bench.run()
    assert_each_row_is_in_one_of_both(bench, kind)


def test_more_refused_rows_than_the_limit_stop_the_query_and_raising_it_goes_on(bench: Bench) -> None:
    with_letters(bench, "files")
    bench.feed(ROWS)
    args = list(bench.args)
    bench.args = [*args, "--option", "onceonly.deadletter.limit=3"]
    message = bench.run_to_an_error()
    assert "RECORD_REFUSED" in message
    assert "onceonly.deadletter.limit, 3; the first: row " in message
    assert bench.read(f"{bench.name}-small") == []
    assert letters(bench, "files") == []
    bench.args = args
    bench.run()
    assert_each_row_is_in_one_of_both(bench, "files")


def test_a_letter_that_is_refused_stops_with_both_reasons(bench: Bench) -> None:
    with_letters(bench, "kafka")
    bench.kafka.create_topic(f"{bench.name}-tiny", partitions=1, configs={"max.message.bytes": "500"})
    bench.args += ["--option", f"onceonly.deadletter.option.topic={bench.name}-tiny"]
    bench.feed(ROWS)
    message = bench.run_to_an_error()
    assert f"max.message.bytes of topic {bench.name}-small" in message
    assert "refused the letter" in message
    assert bench.read(f"{bench.name}-small") == []


@pytest.mark.long
def test_the_topic_of_the_rows_is_no_place_for_their_letters(bench: Bench) -> None:
    with_letters(bench, "kafka")
    bench.args += ["--option", f"onceonly.deadletter.option.topic={bench.name}-small"]
    bench.feed(ROWS)
    message = bench.run_to_an_error()
    assert "CONFIGURATION" in message
    assert "same target" in message
