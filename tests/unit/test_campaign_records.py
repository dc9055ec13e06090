"""What is kept of a sink's campaign: what the matrix shows, made by a command, and refused where damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.unit.test_campaign_matrix import fold, one

from onceonly.errors import ConfigurationError
from onceonly_proof.campaign import result
from onceonly_proof.campaign.records import FOLDER, Record, main, parted, read_all, records

if TYPE_CHECKING:
    from pathlib import Path


def redis(number: int = 1, **given: object) -> result.Round:
    return msgspec.structs.replace(one(number), connector="redis", commit=f"commit{number}", **given)


def test_a_record_is_all_rounds_of_a_sink_under_a_promise() -> None:
    faults = {"kill target at link.before_put": 2, "kill target at sweep.before": 1, "stop broker": 4}
    report = fold(
        redis(faults=faults, armed=faults), redis(2, visible="early"), redis(3, faults=faults, armed=faults)
    )
    early, decided = sorted(records(report), key=lambda each: each.visible, reverse=True)
    assert (decided.crashes, decided.rounds, decided.rows, decided.armed) == (2_400, 2, 8_000, 14)
    assert decided.faults == {"kill target": 6, "stop broker": 8}
    assert decided.commits == ("commit1", "commit3")
    assert decided.days == ("2026-11-21", "2026-11-23")
    assert (decided.verdict, decided.anomalies, decided.why) == ("clean", {}, ())
    assert (early.promise, early.file) == ("exactly-once by key, seen early", "redis-early.json")
    assert (decided.promise, decided.file) == ("exactly-once", "redis.json")


def test_stores_and_brokers_that_are_not_usual_have_records_of_their_own() -> None:
    report = fold(
        redis(store="folder", broker="4.2"),
        redis(2, store="hdfs"),
        redis(3, store="hdfs", broker="3.9+tls"),
    )
    assert [(each.file, each.way, each.rounds) for each in records(report)] == [
        ("redis.json", "redis", 1),
        ("redis-on-hdfs.json", "redis on hdfs", 1),
        ("redis-on-hdfs-broker-3.9+tls.json", "redis on hdfs, broker 3.9+tls", 1),
    ]


def test_a_record_says_why_it_is_not_clean() -> None:
    (bad,) = records(fold(redis(anomalies={"lost": 3}), redis(2, not_audited="the server was down")))
    assert (bad.verdict, bad.anomalies) == ("anomalies", {"lost": 3})
    assert bad.why == ("round 2 of seed 7 (redis) could not be audited: the server was down",)


def test_a_fault_is_parted_into_what_is_done_and_the_point() -> None:
    assert parted("kill link.after_put") == ("kill", "link.after_put")
    assert parted("kill driver at commit.after_handle[files]") == (
        "kill driver",
        "commit.after_handle[files]",
    )
    assert parted("kill driver at a random moment") == ("kill driver at a random moment", "")


def test_the_command_keeps_what_reports_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result.write(tmp_path / "a.json", fold(redis()))
    result.write(tmp_path / "b.json", fold(redis(2, visible="early"), one(3, guarantee="at-least-once")))
    assert main(["a.json", "b.json"]) == 0
    assert {path.name for path in FOLDER.iterdir()} == {
        "redis.json",
        "redis-early.json",
        "kafka-at-least-once.json",
    }
    assert [(each.sink, each.promise) for each in read_all(FOLDER)] == [
        ("kafka", "at-least-once"),
        ("redis", "exactly-once"),
        ("redis", "exactly-once by key, seen early"),
    ]
    assert all(path.stat().st_size < 1_000 for path in FOLDER.iterdir())


def test_without_a_folder_there_are_no_records(tmp_path: Path) -> None:
    assert read_all(tmp_path / "none") == ()


def test_the_command_names_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([]) == 64
    (tmp_path / "damaged.json").write_text("{", encoding="utf-8")
    assert main(["damaged.json"]) == 2
    assert "damaged.json is not a whole report" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "why"), [("{", "is not a whole record"), ("newer", "has format 2")])
def test_a_record_that_cannot_be_read_is_refused(tmp_path: Path, text: str, why: str) -> None:
    if text == "newer":
        (record,) = records(fold(redis()))
        text = msgspec.json.encode(msgspec.structs.replace(record, version=2)).decode()
    (tmp_path / "redis.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=why):
        read_all(tmp_path)


def test_a_record_is_told_apart_by_its_file() -> None:
    found: list[Record] = [
        *records(fold(redis(), redis(2, visible="early"), redis(3, guarantee="at-least-once")))
    ]
    assert len({each.file for each in found}) == len(found)
