"""A campaign's report is a fold of its rounds, and its verdict is never better than they are."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly_proof.auditor.anomalies import Anomaly
from onceonly_proof.campaign import result as results
from onceonly_proof.campaign import tables
from onceonly_proof.campaign.result import Result, Round

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CLEAN = Round(
    seed=7,
    number=1,
    connector="kafka",
    guarantee="exactly-once",
    started="2026-11-21T19:20:00Z",
    seconds=41.2,
    rows=4000,
    epochs=33,
    crashes=2,
    armed={"kill link.after_put": 2},
    faults={"kill link.after_put": 2},
    anomalies={"lost": 0, "duplicated": 0},
    recovery_s=(1.25, 2.5),
)


def like(**changes: Any) -> Round:  # noqa: ANN401  any field
    return msgspec.structs.replace(CLEAN, **changes)


def fold(*rounds: Round) -> Result:
    return results.fold(rounds, seed=7, machine={"cores": 2}, versions={"onceonly": "0.1.0"})


def test_a_campaign_without_a_finding_is_clean() -> None:
    found = fold(CLEAN, like(number=2))
    assert (found.verdict, found.why) == ("clean", ())
    assert found.crashes == 4
    assert found.faults == found.armed == {"kill link.after_put": 4}
    assert found.anomalies == found.matrix[0].anomalies == dict.fromkeys(map(str, Anomaly), 0)


@pytest.mark.parametrize(
    ("rounds", "verdict", "why"),
    [
        ([], "inconclusive", "no round has been run"),
        ([like(anomalies={"lost": 3, "duplicated": 0})], "anomalies", "3 lost"),
        ([like(faults={"kill link.after_put": 1})], "inconclusive", "armed 2 times, fired 1"),
        ([like(faults={})], "inconclusive", "armed 2 times, fired 0"),
        ([like(crashes=0)], "inconclusive", "no process has died"),
        ([like(rows=0)], "inconclusive", "no row to check"),
        ([like(trace="rejected"), like(number=2)], "anomalies", "event logs that the model rejects: 1"),
        ([like(trouble=("not drained",))], "inconclusive", "round 1 of seed 7 (kafka): not drained"),
        (
            [like(not_audited="the broker is down")],
            "inconclusive",
            "could not be audited: the broker is down",
        ),
        (
            [CLEAN, like(connector="files", crashes=0)],
            "inconclusive",
            "files, exactly-once: no process has died",
        ),
        ([like(anomalies={"lost": 1}), like(number=2, rows=0)], "anomalies", "1 lost"),
    ],
)
def test_what_a_campaign_cannot_say_it_does_not_say(rounds: Sequence[Round], verdict: str, why: str) -> None:
    found = fold(*rounds)
    assert found.verdict == verdict
    assert why in "\n".join(found.why)
    assert verdict in {row.verdict for row in found.matrix} or not rounds


def test_a_fault_that_fired_more_often_elsewhere_does_not_stand_in_for_one_that_did_not_fire() -> None:
    more = like(number=2, faults={"kill link.after_put": 3})
    assert fold(more, like(faults={"kill link.after_put": 1})).verdict == "inconclusive"


def test_what_the_guarantee_allows_is_told_and_is_no_anomaly() -> None:
    found = fold(like(guarantee="at-least-once", allowed={"duplicated": 12}))
    assert found.verdict == "clean"
    assert found.matrix[0].allowed == found.allowed == {"duplicated": 12}


@pytest.mark.parametrize(
    ("guarantee", "anomalies", "allowed"),
    [
        ("exactly-once", {"lost": 1, "duplicated": 2}, {}),
        ("at-least-once", {"lost": 1}, {"duplicated": 2}),
        ("at-most-once", {"duplicated": 2}, {"lost": 1}),
    ],
)
def test_what_the_auditor_counts_is_parted_by_the_guarantee(
    guarantee: str, anomalies: dict[str, int], allowed: dict[str, int]
) -> None:
    counts = {**dict.fromkeys(Anomaly, 0), Anomaly.LOST: 1, Anomaly.DUPLICATED: 2}
    broken, forgiven = results.split(counts, guarantee)
    assert {name: count for name, count in broken.items() if count} == anomalies
    assert forgiven == allowed
    assert broken.keys() == set(map(str, Anomaly))


def test_rows_that_are_seen_early_may_be_seen_before_their_decision_and_nothing_else() -> None:
    counts = {Anomaly.LOST: 1, Anomaly.VISIBLE_BEFORE_DECISION: 2}
    broken, forgiven = results.split(counts, "exactly-once", early=True)
    assert {name: count for name, count in broken.items() if count} == {"lost": 1}
    assert forgiven == {"visible_before_decision": 2}
    assert results.split(counts, "exactly-once")[1] == {}


def test_decided_and_early_rounds_are_rows_of_their_own() -> None:
    rows = results.matrix([like(connector="redis"), like(connector="redis", number=2, visible="early")])
    assert [row.promise for row in rows] == ["exactly-once", "exactly-once by key, seen early"]
    assert "--visible early" in like(visible="early").command
    assert "--visible" not in like().command


def test_the_matrix_sums_up_each_connector_under_each_guarantee() -> None:
    rows = results.matrix([
        like(connector="files", guarantee="at-least-once"),
        like(connector="kafka", number=2),
        like(connector="kafka", number=3, anomalies={"lost": 1}),
        like(connector="files", number=4),
    ])  # fmt: skip
    assert [
        (row.connector, row.guarantee, row.rounds, row.crashes, row.rows, row.verdict) for row in rows
    ] == [
        ("files", "exactly-once", 1, 2, 4000, "clean"),
        ("kafka", "exactly-once", 2, 4, 8000, "anomalies"),
        ("files", "at-least-once", 1, 2, 4000, "clean"),
    ]


ROUNDS = st.builds(
    like,
    number=st.integers(1, 3),
    connector=st.sampled_from(["kafka", "files"]),
    crashes=st.integers(0, 2),
    anomalies=st.fixed_dictionaries({"lost": st.integers(0, 1), "duplicated": st.just(0)}),
)


@given(st.lists(ROUNDS, max_size=6), st.integers(0, 6))
def test_reports_add_up_in_any_order_and_any_number_of_times(rounds: list[Round], cut: int) -> None:
    whole = fold(*rounds)
    left, right = rounds[:cut], rounds[cut:]
    assert fold(*right, *left, *right) == whole
    one_by_one = fold()
    for each in rounds:
        one_by_one = results.add(one_by_one, each)
    assert one_by_one == whole


def test_a_report_from_before_a_field_came_or_went_is_read() -> None:
    early = json.loads(results.encode(fold(CLEAN)))
    (only,) = early["rounds"]
    del only["trouble"], only["trace"], only["limit_s"], early["traces"]
    only["spark_recovery_s"] = []
    assert results.decode(json.dumps(early).encode(), where="early.json") == fold(CLEAN)
    only["spark_recovery_s"] = [1.0]
    with pytest.raises(ConfigurationError, match="spark_recovery_s"):
        results.decode(json.dumps(early).encode(), where="early.json")


def test_event_logs_that_the_model_explains_are_counted_and_shown() -> None:
    found = fold(CLEAN, like(number=2, trace="accepted"), like(number=3, trace="rejected"))

    assert found.traces == {"accepted": 1, "rejected": 1}
    assert fold(CLEAN).traces == {}
    shown = StringIO()
    Console(file=shown, width=200).print(tables.table(found))
    assert "traces: accepted 1, rejected 1" in shown.getvalue()
    assert "again: " + like(number=3, trace="rejected").command in shown.getvalue()
    assert like(trace="accepted").command == CLEAN.command + " --trace"


def test_a_count_of_event_logs_that_was_changed_by_hand_is_refused() -> None:
    data = results.encode(fold(like(trace="rejected"))).replace(b'"rejected": 1', b'"rejected": 0')
    with pytest.raises(ConfigurationError, match="changed by hand"):
        results.decode(data, where="report.json")


def test_a_round_that_was_run_again_does_not_hide_what_it_found_before() -> None:
    bad = like(anomalies={"lost": 1, "duplicated": 0})
    again = like(started="2026-11-22T08:00:00Z")
    assert results.add(fold(bad), again).verdict == "anomalies"


def test_an_interrupted_campaign_goes_on_with_the_next_round_of_its_seed() -> None:
    found = fold(CLEAN, like(number=4), like(seed=8, number=9))
    assert [results.next_number(found, seed) for seed in (7, 8, 9)] == [5, 10, 1]


def test_a_round_says_how_it_is_run_again() -> None:
    again = "onceonly verify --sink kafka --guarantee exactly-once --seed 7 --round 1"
    assert CLEAN.command == f"{again} --query unchanged", "the report is from before others were drawn"
    assert like(query="letters").command == f"{again} --query letters"
    assert like(dear=False).command == f"{again} --query unchanged --no-dear"


# -------------------------------------------------------------------------------------------- on disk
def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "result.json"
    found = fold(CLEAN, like(number=2, examples=("row 12 is missing",), anomalies={"lost": 1}))
    results.write(path, found)
    assert results.read(path) == found
    keys = {"version", "verdict", "anomalies", "crashes", "faults", "seed", "matrix"}
    assert keys <= json.loads(path.read_text(encoding="utf-8")).keys()
    assert [each.name for each in path.parent.iterdir()] == ["result.json"]


def test_a_failed_write_leaves_the_former_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    results.write(path, fold(CLEAN))
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UnavailableError, match="No space left"):
        results.write(path, fold(CLEAN, like(number=2)))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"version": 8, "new": []}', "result.json has format 8, written by a newer onceonly"),
        (b'{"version": 1}', "result.json is not a whole report"),
        (b'{"version": 1, "verd', "result.json is not a whole report"),
        (b"\xff", "result.json is not a whole report"),
        (b"", "result.json is not a whole report"),
    ],
)
def test_a_file_that_is_no_report_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=message):
        results.read(path)


def test_a_report_of_before_stores_had_rows_of_their_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    results.write(path, fold(CLEAN, like(number=2, store="hdfs")))
    told = json.loads(path.read_text(encoding="utf-8"))
    assert [row["store"] for row in told["matrix"]] == ["", "hdfs"]
    (row, other), told["version"] = told["matrix"], 2
    told["matrix"] = [row | {name: row[name] + other[name] for name in ("rounds", "crashes", "rows")}]
    path.write_text(json.dumps(told), encoding="utf-8")
    assert [row.store for row in results.read(path).matrix] == ["", "hdfs"]


def test_what_readers_by_a_pattern_got_is_added_up_and_a_report_of_before_them_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "result.json"
    results.write(path, fold(like(globbed={"glob": 7, "pyarrow": 5}), like(number=2, globbed={"glob": 1})))
    assert results.read(path).matrix[0].globbed == {"glob": 8, "pyarrow": 5}
    told = json.loads(path.read_text(encoding="utf-8"))
    told["version"] = 3
    for each in (*told["rounds"], *told["matrix"]):
        del each["globbed"]
    path.write_text(json.dumps(told), encoding="utf-8")
    assert results.read(path) == fold(CLEAN, like(number=2))


def test_a_report_of_before_windows_is_read(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    results.write(path, fold(CLEAN))
    told = json.loads(path.read_text(encoding="utf-8"))
    told["version"] = 4
    del told["rounds"][0]["late"], told["rounds"][0]["executors"], told["matrix"][0]["query"]
    path.write_text(json.dumps(told), encoding="utf-8")
    assert results.read(path) == fold(CLEAN)


def test_a_report_of_before_an_anomaly_was_known_is_read(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    results.write(path, fold(CLEAN))
    told = json.loads(path.read_text(encoding="utf-8"))
    del told["anomalies"]["orphan"]
    path.write_text(json.dumps(told), encoding="utf-8")
    assert results.read(path) == fold(CLEAN)


@pytest.mark.parametrize("key", ["crashes", "verdict", "anomalies"])
def test_a_report_whose_sums_were_changed_by_hand_is_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "result.json"
    results.write(path, fold(like(anomalies={"lost": 1})))
    told = json.loads(path.read_text(encoding="utf-8"))
    told[key] = {"crashes": 1000, "verdict": "clean", "anomalies": {"lost": 0}}[key]
    path.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="do not follow from its rounds"):
        results.read(path)


def test_a_report_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"none\.json"):
        results.read(tmp_path / "none.json")
