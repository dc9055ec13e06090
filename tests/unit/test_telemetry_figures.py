"""Metrics from lines of the log and from Spark's reports: nothing is counted twice, forgotten or made up."""

from __future__ import annotations

from typing import Any

import pytest

from onceonly.log.history import Summary
from onceonly.model import Guarantee, Handle, Link, LinkKind, SinkUse, Stamp, Vote
from onceonly.sources.rabbitmq_stream.positions import Position as RabbitPlace
from onceonly.telemetry.figures import Observed, buckets, families
from onceonly.telemetry.lag import Lag, Position, positions
from onceonly.telemetry.totals import Times, Totals

AT = "2026-03-01T12:00:00.000Z"
SECONDS = 1_772_366_400.0


def line(epoch: int, **more: Any) -> Summary:  # noqa: ANN401  a field's
    told: dict[str, Any] = {
        "sinks": {"kafka": (10, 2), "kafka.letters": (1, 1)}, "outcomes": {"committed": 3}, "seconds": 0.02,
        "planned_s": 0.2, "settled_s": 0.04, "at": SECONDS,
        "bytes": {"kafka": 500, "kafka.letters": 50}, **more,
    }  # fmt: skip
    return Summary(epoch=epoch, kind=told.pop("kind", LinkKind.COMMIT), links=told.pop("links", 1), **told)


def link(kind: LinkKind = LinkKind.COMMIT, *, slots: int = 2) -> Link:
    votes = tuple(
        Vote(
            sink="kafka", epoch=4, slot=slot, plan="p", run="r", attempt="1", rows=5, checksum="0" * 16,
            handle=Handle(transaction=f"t{slot}"),
        )
        for slot in range(slots)
    )  # fmt: skip
    use = SinkUse(
        sink="kafka", guarantee=Guarantee.EXACTLY_ONCE, options={"kafka.transaction.timeout.ms": "600000"}
    )
    return Link(
        epoch=4, index=0, kind=kind, plan="p", run="r", votes=votes, stamp=Stamp(at=AT), uses={"kafka": use}
    )  # fmt: skip


def told(*queries: Observed) -> dict[str, dict[str, float]]:
    """Give each sample, by the metric's name and its labels but the query's."""
    return {
        family.name: {
            ",".join(f"{name}={value}" for name, value in labels if name != "query"): value
            for labels, value in family.samples
        }
        for family in families(queries)
    }


def totals(*lines: Summary) -> Totals:
    found = Totals()
    for each in lines:
        found.add(each)
    return found


def test_every_settled_epoch_is_counted_by_what_became_of_it() -> None:
    seen = told(
        Observed(
            name="orders", now=SECONDS,
            totals=totals(
                line(0, aborts=1, links=2), line(1, links=2),
                line(2, kind=LinkKind.SKIPPED, outcomes={}, sinks={}, bytes={}),
            ),
        )
    )  # fmt: skip
    assert seen["onceonly_epochs_total"] == {"outcome=committed": 2, "outcome=skipped": 1}
    assert seen["onceonly_aborts_total"] == {"": 1}
    assert seen["onceonly_repairs_total"] == {"": 1}
    assert seen["onceonly_rows_total"] == {"sink=kafka": 20}
    assert seen["onceonly_bytes_total"] == {"sink=kafka": 1000}
    assert seen["onceonly_dead_letters_total"] == {"sink=kafka": 2}
    assert seen["onceonly_transactions_total"] == {"sink=kafka": 4, "sink=kafka.letters": 2}
    assert seen["onceonly_commits_total"] == {"outcome=committed": 6}
    assert seen["onceonly_epoch"] == {"": 2}


def test_what_is_decided_and_not_committed_is_pending_and_in_doubt_when_nobody_asks_for_it_any_more() -> None:
    def seen(after_s: float, *, is_running: bool | None) -> dict[str, dict[str, float]]:
        known = Observed(
            name="q", now=SECONDS + after_s, totals=totals(line(3)), chain=(link(),), limit_s=60.0,
            is_running=is_running,
        )  # fmt: skip
        return told(known)

    soon, late, down = (
        seen(5, is_running=True),
        seen(61, is_running=True),
        seen(5, is_running=False),
    )
    assert soon["onceonly_pending_transactions"] == {"sink=kafka": 2}
    assert soon["onceonly_pending_age_seconds"] == {"": 5.0}
    assert soon["onceonly_pending_limit_seconds"] == {"": 60.0}
    assert soon["onceonly_transaction_limit_seconds"] == {"sink=kafka": 600.0}
    assert [each["onceonly_in_doubt_transactions"] for each in (soon, late, down)] == [
        {"sink=kafka": 0}, {"sink=kafka": 2}, {"sink=kafka": 2},
    ]  # fmt: skip


def test_a_claim_is_no_pending_transaction_and_counts_once_settled_or_not() -> None:
    claimed = told(Observed(name="q", now=SECONDS, totals=totals(line(3)), chain=(link(LinkKind.ABORT),)))
    settled = told(Observed(name="q", now=SECONDS, totals=totals(line(3), line(4, aborts=1, links=2))))
    assert claimed["onceonly_pending_transactions"] == {"sink=kafka": 0}
    assert claimed["onceonly_aborts_total"] == settled["onceonly_aborts_total"] == {"": 1}


def test_what_is_not_known_has_no_sample() -> None:
    seen = told(Observed(name="q", now=SECONDS))
    assert {name for name, samples in seen.items() if samples} == {
        "onceonly_epochs_total", "onceonly_aborts_total", "onceonly_repairs_total", "onceonly_pending_age_seconds",
        "onceonly_log_readable",
    }  # fmt: skip


def test_labels_are_names_of_the_query_and_words_of_ours() -> None:
    lag = Lag()
    lag.report(SECONDS, Position(read=5, there=9))
    known = Observed(name="q", now=SECONDS, totals=totals(line(0)), chain=(link(),), lags={"0": lag})
    labels = {name for family in families([known]) for each, _ in family.samples for name, _ in each}
    assert labels == {"query", "sink", "outcome", "source"}


def test_a_histogram_counts_each_time_in_its_bucket_and_all_above() -> None:
    times = Times()
    for seconds in (0.01, 0.02, 0.3, 1000.0):
        times.add(seconds)
    found = dict(buckets(times))
    assert (found["0.01"], found["0.025"], found["0.25"], found["0.5"], found["300"], found["+Inf"]) == (
        1, 2, 2, 3, 3, 4,
    )  # fmt: skip
    assert times.sum_s == pytest.approx(1000.33)


# ------------------------------------------------------------------------------------------------- lag
def source(end: object, latest: object, description: str = "KafkaV2[Subscribe[t]]") -> dict[str, object]:
    return {"description": description, "endOffset": end, "latestOffset": latest}


def test_lag_counts_the_rows_of_each_partition_and_none_ahead() -> None:
    report = {
        "sources": [
            source({"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 6, "2": 3}}),
            source('{"t":{"0":5}}', '{"t":{"0":5}}'),
            source(3, 9, "RateStreamV2[rowsPerSecond=1]"),
            source({"t": {"0": 1}}, None),
        ]
    }
    assert positions(report) == {"0": Position(read=12, there=19), "1": Position(read=5, there=5)}
    assert positions({}) == {}


def test_a_source_that_says_itself_how_many_rows_there_are_has_a_lag() -> None:
    place = RabbitPlace(offset=40, mark="aa", more=7).json
    report = {
        "sources": [source(place, None, "PythonMicroBatchStream@1"), source({"rows": 3}, None, "Python")]
    }
    assert positions(report) == {"0": Position(read=40, there=47)}


def test_lag_in_seconds_is_the_age_of_the_oldest_unread_row() -> None:
    lag = Lag()
    lag.report(100.0, Position(read=0, there=0))
    lag.report(110.0, Position(read=0, there=100))
    assert lag.seconds(110.0) == pytest.approx(10.0)
    lag.report(120.0, Position(read=50, there=200))
    assert lag.rows == 150
    assert lag.seconds(120.0) == pytest.approx(15.0)
    assert lag.seconds(130.0) == pytest.approx(25.0)
    lag.report(130.0, Position(read=200, there=200))
    assert (lag.rows, lag.seconds(500.0)) == (0, 0.0)


def test_a_query_that_begins_behind_is_at_least_as_late_as_it_runs() -> None:
    lag = Lag()
    lag.report(100.0, Position(read=10, there=500))
    assert lag.seconds(130.0) == pytest.approx(30.0)
