"""The docs show the recorded runs, and nothing that was typed by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec

from onceonly_proof.campaign import recovery, shape
from onceonly_proof.campaign.marks import NONE, placed
from onceonly_proof.campaign.recovery import Recovery
from onceonly_proof.campaign.result import encode
from onceonly_proof.campaign.shape import Shape
from onceonly_proof.campaign.shape_pages import (
    MARKS,
    RECOVERY_PAGE,
    RECOVERY_RECORD,
    SHAPE_PAGE,
    SHAPE_RECORD,
    blocks,
    recovery_figures,
    shape_figures,
    write,
)

BEGIN, END = f"<!-- {MARKS}: begin -->", f"<!-- {MARKS}: end -->"
ROOT = Path(__file__).parents[2]
MACHINE: dict[str, str | int | float] = {
    "cores": 2,
    "memory_gib": 24,
    "system": "Linux 6",
    "java": 'openjdk version "17"',
}
VERSIONS = {"pyspark": "4.2.0", "python": "3.13.1", "onceonly": "0.1.0", "commit": "abc"}


def a_shape() -> Shape:
    plan = shape.plan_bounces(6_000, 1)
    done = tuple(
        shape.Bounced(kind=each.kind, at_rows=each.at_rows, seconds=n + 0.5) for n, each in enumerate(plan)
    )
    return shape.Shape(
        version=1, verdict="anomalies", why=("2 lost",), seed=1, messages=6_000, transaction=100,
        started="2026-11-21T20:00:00Z", seconds=51.0, bounces=dict.fromkeys(shape.KINDS, 1),
        planned=dict.fromkeys(shape.KINDS, 1), done=done, rows=5_998, seen_meanwhile=5_998, epochs=30,
        transactions={100: 59, 98: 1}, anomalies={"lost": 2, "duplicated": 0}, examples=(),
        machine=MACHINE, versions=VERSIONS,
    )  # fmt: skip


def a_recovery() -> Recovery:
    line = recovery.Line(
        sink=recovery.OURS,
        kills=2,
        median_s=9.0,
        worst_s=12.0,
        query_median_s=2.0,
        query_worst_s=4.0,
        again=0,
    )
    sparks = recovery.Line(
        sink=recovery.SPARKS,
        kills=2,
        median_s=6.0,
        worst_s=8.0,
        query_median_s=1.0,
        query_worst_s=2.0,
        again=41,
    )
    return recovery.Recovery(
        version=1, verdict="measured", why=(), seed=1, started="2026-11-21T20:00:00Z", seconds=90.0,
        per_epoch=500, table=(line, sparks), ratio={"median_s": 1.5, "worst_s": 1.5}, kills=(),
        machine={**MACHINE, "load_before": 3.5}, versions=VERSIONS,
    )  # fmt: skip


def test_the_pages_are_those_of_the_records() -> None:
    for page, block in blocks(ROOT).items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert placed(text, block, name=MARKS, where=str(page)) == text, f"{page}: run make proof-pages"


def test_the_recorded_shape_follows_from_its_run() -> None:
    if not (ROOT / SHAPE_RECORD).exists():
        assert NONE in (ROOT / SHAPE_PAGE).read_text(encoding="utf-8")
        return
    data = (ROOT / SHAPE_RECORD).read_bytes()
    found = msgspec.json.decode(data, type=Shape)
    assert (found.messages, found.transaction) == (shape.MESSAGES, shape.TRANSACTION)
    again = shape.conclude(
        seed=found.seed, messages=found.messages, transaction=found.transaction, started=found.started,
        seconds=found.seconds, done=found.done, rows=found.rows, seen_meanwhile=found.seen_meanwhile,
        epochs=found.epochs, transactions=found.transactions, anomalies=found.anomalies,
    )  # fmt: skip
    assert (again.verdict, again.why, again.bounces) == (found.verdict, found.why, found.bounces)
    assert encode(found) == data
    assert sum(size * count for size, count in found.transactions.items()) == found.messages


def test_the_recorded_times_sum_up_to_the_table() -> None:
    if not (ROOT / RECOVERY_RECORD).exists():
        assert NONE in (ROOT / RECOVERY_PAGE).read_text(encoding="utf-8")
        return
    data = (ROOT / RECOVERY_RECORD).read_bytes()
    found = msgspec.json.decode(data, type=Recovery)
    again = recovery.conclude(
        found.kills, {line.sink: line.again for line in found.table}, wanted=found.table[0].kills,
        seed=found.seed, started=found.started, seconds=found.seconds, per_epoch=found.per_epoch,
    )  # fmt: skip
    assert (again.table, again.ratio, again.verdict) == (found.table, found.ratio, found.verdict)
    assert encode(found) == data


def test_what_is_not_recorded_is_said_not_to_be(tmp_path: Path) -> None:
    assert blocks(tmp_path) == {SHAPE_PAGE: NONE, RECOVERY_PAGE: NONE}


def test_the_figures_of_a_bounced_run() -> None:
    shown = shape_figures(a_shape())
    for text in (
        "| visible in the end | 5,998 |",
        "| transactions | 59 of 100 messages, 1 of 98 messages |",
        "| anomalies | lost 2 (of 2 kinds that the auditor knows) |",
        "| verdict | **anomalies** |",
        "| hard job | 1 | 2.5 s |",
        "- 2 lost",
        "`onceonly verify like-kafka --messages 6000 --transaction 100 --seed 1`",
        "on 2 cores and 24 GiB, at `abc`; `docs/proof/transactions-test.json` has versions, too.",
    ):
        assert text in shown


def test_the_figures_of_recovery() -> None:
    shown = recovery_figures(a_recovery())
    assert "| `onceonly.kafka` | 2 | 9.0 s | 12.0 s | 2.0 s | 4.0 s | 0 |" in shown
    assert "| `kafka` | 2 | 6.0 s | 8.0 s | 1.0 s | 2.0 s | 41 |" in shown
    assert "| ratio | | 1.50 | 1.50 |" in shown
    assert "on 2 cores and 24 GiB with a load of 3.5 before it began, at `abc`; " in shown
    assert "`onceonly verify recovery --kills 2 --seed 1` on 2026-11-21: 90 s" in shown


def test_both_pages_are_written_from_their_records(tmp_path: Path) -> None:
    for path in (SHAPE_PAGE, RECOVERY_PAGE, SHAPE_RECORD):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    for path in (SHAPE_PAGE, RECOVERY_PAGE):
        (tmp_path / path).write_text(f"# Page\n{BEGIN}\nold\n{END}\nrest\n", encoding="utf-8")
    (tmp_path / SHAPE_RECORD).write_bytes(encode(a_shape()))
    (tmp_path / RECOVERY_RECORD).write_bytes(encode(a_recovery()))
    write(tmp_path)
    assert shape_figures(a_shape()) in (tmp_path / SHAPE_PAGE).read_text(encoding="utf-8")
    written = (tmp_path / RECOVERY_PAGE).read_text(encoding="utf-8")
    assert written == f"# Page\n{BEGIN}\n\n{recovery_figures(a_recovery())}\n\n{END}\nrest\n"
