"""The auditor is seen to fail: each lie that a topic could tell is found and counted."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from onceonly.model import Guarantee
from onceonly_proof.auditor.kafka import Record
from onceonly_proof.demo.audit import Audit, judge, recompute

DAY_S = 86_400
ROWS = pd.DataFrame(
    [(0, "UA", "N1", 10), (1, "UA", "N1", 20), (2, "UA", None, 30), (3, "AA", "N2", DAY_S + 1)],
    columns=["id", "app_id", "user", "hour"],
)


def event(number: int, offset: int = 0) -> Record:
    return Record(0, offset, str(number).encode(), json.dumps({"id": number}).encode())


def result(app: str, start: int, pv: int, uv: int, epoch: int, partition: int = 0) -> Record:
    fields = {"app_id": app, "window_start": start, "pv": pv, "uv": uv, "epoch": epoch}
    return Record(partition, 0, f"{app}|{start}".encode(), json.dumps(fields).encode())


EVENTS = [event(number) for number in range(4)]
RESULTS = [result("UA", 0, 2, 1, 0), result("UA", 0, 3, 1, 1), result("AA", DAY_S, 1, 1, 1)]


def judged(clean: list[Record], results: list[Record], files: list[bytes] | None = None) -> Audit:
    """Judge; the files hold the same results as the topic, but for what is given."""
    lines = [record.value or b"" for record in results] if files is None else files
    return judge(ROWS, clean, results, lines)


def test_what_is_right_is_clean() -> None:
    audit = judged(EVENTS, RESULTS)
    assert (audit.events, audit.windows) == (4, 2)
    assert audit.examples == ()
    assert all(audit.is_clean(guarantee) for guarantee in Guarantee)


def test_a_missing_user_is_a_view_but_no_visitor() -> None:
    assert recompute(ROWS) == {("UA", 0): (3, 1), ("AA", DAY_S): (1, 1)}


def test_a_missing_event_is_found() -> None:
    audit = judged(EVENTS[:-1], RESULTS)
    assert audit.missing == 1
    assert "missing event 3" in audit.examples
    assert [audit.is_clean(each) for each in Guarantee] == [False, False, True]


def test_a_duplicated_event_is_found() -> None:
    audit = judged([*EVENTS, event(2), event(2)], RESULTS)
    assert (audit.duplicated_events, audit.duplicated) == (2, 2)
    assert [audit.is_clean(each) for each in Guarantee] == [False, True, False]


def test_an_epoch_that_wrote_a_key_twice_is_found_though_the_values_agree() -> None:
    audit = judged(EVENTS, [*RESULTS, RESULTS[-1]])
    assert (audit.doubled_results, audit.duplicated) == (1, 1)
    assert [audit.is_clean(each) for each in Guarantee] == [False, True, False]


@pytest.mark.parametrize(
    "results",
    [
        [*RESULTS[:1], *RESULTS[2:]],
        RESULTS[:2],
        [*RESULTS, result("AA", DAY_S, 1, 2, 2)],
        [*RESULTS, result("AA", DAY_S, 1, 1, 2, partition=1)],
    ],
    ids=["old PV is last", "window not there", "wrong UV", "window in two partitions"],
)
def test_a_wrong_window_is_found(results: list[Record]) -> None:
    audit = judged(EVENTS, results)
    assert audit.wrong_windows == 1
    assert [audit.is_clean(each) for each in Guarantee] == [False, False, True]


@pytest.mark.parametrize(
    "junk",
    [event(99), Record(0, 0, b"1", b'{"id": 2}'), Record(0, 0, None, b"no json"), Record(0, 0, b"1", None)],
    ids=["unknown id", "key and id differ", "no JSON", "no value"],
)
def test_a_foreign_event_is_never_clean(junk: Record) -> None:
    audit = judged([*EVENTS, junk], RESULTS)
    assert audit.foreign == 1
    assert not any(audit.is_clean(each) for each in Guarantee)


@pytest.mark.parametrize(
    "junk",
    [result("ZZ", 0, 1, 1, 0), Record(0, 0, b"UA|0", b"{}"), Record(0, 0, b"x", b"[]")],
    ids=["unknown window", "no fields", "no object"],
)
def test_a_foreign_result_is_never_clean(junk: Record) -> None:
    audit = judged(EVENTS, [*RESULTS, junk])
    assert audit.foreign == 1
    assert not audit.is_clean(Guarantee.AT_LEAST_ONCE)


def test_a_transaction_left_open_is_never_clean() -> None:
    audit: Audit = replace(judged(EVENTS, RESULTS), open_transactions=("onceonly.q.1",))
    assert not any(audit.is_clean(each) for each in Guarantee)


@pytest.mark.parametrize(
    "lines",
    [
        [record.value for record in RESULTS[1:]],
        [record.value for record in [*RESULTS, RESULTS[0]]],
        [record.value for record in RESULTS[1:]] + [b"{"],
    ],
    ids=["a result is not in the files", "twice in the files", "a torn line"],
)
def test_files_that_differ_from_the_topic_under_the_same_decision_are_found(lines: list[bytes]) -> None:
    audit = judged(EVENTS, RESULTS, lines)
    assert audit.unequal >= 1
    assert [audit.is_clean(each) for each in Guarantee] == [False, True, True]


def test_the_order_of_fields_is_no_difference() -> None:
    lines = [
        json.dumps(dict(reversed(json.loads(record.value or b"").items()))).encode() for record in RESULTS
    ]
    assert judged(EVENTS, RESULTS, lines).unequal == 0
