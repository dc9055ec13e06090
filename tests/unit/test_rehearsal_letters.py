"""Rows that only the table as a whole refuses become dead letters before the decision, once, killed anywhere."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.test_transactions_divert import BAD, EVERY, Job

from onceonly import failpoints
from onceonly.errors import (
    ConfigurationError,
    EpochTimeoutError,
    OnceonlyError,
    RecordRefusedError,
    ReplayMismatchError,
    UnavailableError,
)
from onceonly.model import Mode
from onceonly.settings.registry import BUILT_IN, load

if TYPE_CHECKING:
    from pathlib import Path

GOOD = ["a", "b", "c", "d"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path)
    made.ask("CREATE UNIQUE INDEX once ON t (id)")
    return made


def decide(job: Job) -> None:
    with closing(job.started()) as coordinator:
        job.decide(coordinator)


def nothing_is_left(job: Job) -> bool:
    return job.pending() == [] and not [*(job.checkpoint / "onceonly").rglob("*.arrow")]


def test_rows_that_exclude_each_other_are_told_apart_and_the_rest_is_applied(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    decide(job)
    assert (job.rows(), job.dead()) == (GOOD, sorted(BAD))
    assert nothing_is_left(job)
    assert "does not take 2 rows, which become dead letters; the first: " in caplog.text
    with closing(job.started()) as coordinator:
        assert coordinator.plan(0, run="r2").mode is Mode.DRAIN


def test_what_was_there_before_counts_and_what_a_row_refers_to_may_come_behind_it(job: Job) -> None:
    job.ask("DROP TABLE t")
    job.ask("CREATE TABLE t (id BIGINT UNIQUE CHECK (id <> 4), name TEXT, CHECK (name <> 'again'))")
    job.ask("INSERT INTO t VALUES (3, 'was there')")
    decide(job)
    assert (job.rows(), job.dead()) == (["a", "b", "was there"], ["again", "c", "d", "d again"])


def test_a_slot_all_of_whose_rows_are_refused_is_left_out(job: Job) -> None:
    job.ask("DROP TABLE t")
    job.ask("CREATE TABLE t (id BIGINT CHECK (id < 4), name TEXT)")
    decide(job)
    assert (job.rows(), job.dead()) == (["a", "again", "b", "c"], ["d", "d again"])
    assert nothing_is_left(job)


@pytest.mark.parametrize(
    "point",
    [
        "link.before_check",
        "letters.before_begin",
        "letters.after_prepare",
        "rehearsal.after_divert",
        "link.before_put",
        "link.after_put",
        "commit.before_handle",
        "commit.after_handle",
        "receipt.before_put",
        "receipt.after_put",
    ],
)
def test_broken_off_anywhere_each_row_is_in_the_table_or_among_the_letters_once(
    job: Job, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{point}=raise")
    failpoints._counts.clear()
    with closing(job.started()) as coordinator, pytest.raises(failpoints.FailpointError):
        job.decide(coordinator)
    monkeypatch.delenv("ONCEONLY_FAILPOINTS")
    decide(job)
    assert (job.rows(), job.dead()) == (GOOD, sorted(BAD))
    assert nothing_is_left(job)


@pytest.mark.parametrize("lost", [["rows"], ["the table's"], ["rows", "the table's"]])
def test_what_is_lost_after_the_decision_is_written_again_as_it_was_diverted(
    job: Job, lost: list[str]
) -> None:
    if "the table's" in lost:
        job.to_database()  # of files nobody could prove it
    is_decided_only(job)
    lose(job, lost)
    decide(job)
    decide(job)
    assert (job.rows(), job.dead()) == (GOOD, sorted(BAD))


def is_decided_only(job: Job) -> None:
    """Decide, and die before anything is committed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONCEONLY_FAILPOINTS", "link.after_put=raise")
        failpoints._counts.clear()
        with closing(job.started()) as coordinator, pytest.raises(failpoints.FailpointError):
            job.decide(coordinator)


def lose(job: Job, lost: list[str]) -> None:
    """Remove what slot 0 has staged of these."""
    for what in lost:
        sink, code = EACH[what]
        found = job.staged(sink, code=code)
        assert found
        for path in found:
            path.unlink()


EACH = {
    "rows": ("sqlite", ""),
    "own": ("sqlite.letters", "NULL"),
    "the table's": ("sqlite.letters", "REFUSED"),
}


@pytest.mark.parametrize(
    "lost", [["rows"], ["own"], ["the table's"], ["rows", "own"], ["own", "the table's"], [*EACH]]
)
def test_of_a_slot_with_letters_of_both_kinds_whatever_is_lost_is_written_again(
    job: Job, lost: list[str]
) -> None:
    job.to_database()
    job.refuses_null()
    job.ask("CREATE UNIQUE INDEX once ON t (id)")
    is_decided_only(job)
    lose(job, lost)
    for _ in range(2):
        decide(job)
    assert (job.rows(), job.dead()) == (GOOD, sorted([*BAD, "null", "null too"]))
    # Each letter says which row of its slot it is, so that no two have one name.
    found = job.ask("SELECT slot, number, code <> 'NULL' FROM dead ORDER BY slot, number")
    assert found == [(0, 0, 0), (0, 3, 1), (1, 1, 1), (1, 2, 0)]


def test_letters_of_a_slot_are_told_apart_by_the_numbers_of_their_rows(job: Job) -> None:
    job.to_database()
    job.ask("CREATE UNIQUE INDEX name ON dead (epoch, slot, number)")
    letters = job.settings.letters
    assert letters is not None
    options = {**letters.options, "key": "epoch,slot,number"}
    job.settings = replace(job.settings, letters=replace(letters, options=options))
    job.refuses_null()
    job.ask("CREATE UNIQUE INDEX once ON t (id)")
    job.ask(
        "INSERT INTO t VALUES (1, 'was there')"
    )  # so that the first row behind the one without an id is refused
    decide(job)
    assert (job.rows(), job.dead()) == (["b", "c", "d", "was there"], sorted(["a", *BAD, "null", "null too"]))


def test_a_start_without_the_place_of_decided_letters_says_what_to_give_until_they_are_there(
    job: Job,
) -> None:
    is_decided_only(job)
    before = job.settings
    job.settings = replace(before, letters=None)
    with pytest.raises(ReplayMismatchError, match=r"of sqlite are decided: give onceonly\.refused as before"):
        decide(job)
    assert (job.rows(), job.dead()) == ([], [])
    job.settings = before
    decide(job)
    assert (job.rows(), job.dead()) == (GOOD, sorted(BAD))


def test_rows_that_are_written_again_and_refused_by_then_become_letters_too(job: Job) -> None:
    job.refuses_null()
    is_decided_only(job)
    for path in (job.checkpoint / "onceonly").rglob("*.arrow"):
        path.unlink()
    job.ask("CREATE UNIQUE INDEX once ON t (id)")
    for _ in range(2):
        decide(job)
    assert (job.rows(), job.dead()) == (GOOD, sorted([*BAD, "null", "null too"]))
    assert nothing_is_left(job)


@pytest.mark.parametrize(
    ("failed", "raised", "told"),
    [
        (
            UnavailableError("it is down", next_step="wait"),
            UnavailableError,
            "chk-0, sink sqlite: it is down",
        ),
        (
            ConfigurationError("no right", next_step="grant it"),
            RecordRefusedError,
            "UNIQUE.* could not be told: no right",
        ),
    ],
)
def test_where_nobody_can_tell_which_rows_are_refused_it_is_said_why_and_what_may_pass_is_tried_again(
    job: Job, failed: OnceonlyError, raised: type[OnceonlyError], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise failed

    with monkeypatch.context() as patch:
        patch.setattr(load(BUILT_IN["sqlite"]), "sift", fails)
        with pytest.raises(raised, match=told) as caught:
            decide(job)
    assert failed.next_step in caught.value.next_step
    decide(job)
    assert (job.rows(), job.dead()) == (GOOD, sorted(BAD))


def test_what_was_prepared_on_the_way_is_asked_about_too_whether_it_lives_long_enough(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(load(BUILT_IN["files"]), "expiring", lambda *_: "it is about to end")
        with pytest.raises(EpochTimeoutError, match=r"sqlite\.letters: it is about to end"):
            decide(job)
    assert (job.rows(), job.dead()) == ([], [])
    decide(job)
    assert (job.rows(), job.dead()) == (GOOD, sorted(BAD))


def test_a_row_that_only_fits_behind_a_later_one_becomes_a_letter(job: Job) -> None:
    job.ask(
        "CREATE TRIGGER refers BEFORE INSERT ON t WHEN NEW.name = 'a' AND NOT EXISTS "
        "(SELECT 1 FROM t WHERE name = 'd') BEGIN SELECT RAISE(ABORT, 'no d yet'); END"
    )
    decide(job)
    assert (job.rows(), job.dead()) == (["b", "c", "d"], ["a", *sorted(BAD)])


def test_more_than_the_limit_stop_the_query_and_nothing_is_decided(job: Job) -> None:
    letters = job.settings.letters
    assert letters is not None
    job.settings = replace(job.settings, letters=replace(letters, limit=1))
    with pytest.raises(RecordRefusedError, match=r"at least 2 rows of this epoch, more than onceonly\.dead"):
        decide(job)
    assert (job.rows(), job.dead()) == ([], [])
    job.settings = replace(job.settings, letters=replace(letters, limit=2))
    decide(job)
    assert (job.rows(), job.dead()) == (GOOD, sorted(BAD))


def test_of_rows_with_one_key_none_is_taken_for_the_wrong_one(job: Job) -> None:
    job.settings = replace(job.settings, options={**job.settings.options, "key": "id"})
    with pytest.raises(RecordRefusedError, match="nothing says which is the newest"):
        decide(job)
    assert (job.rows(), job.dead()) == ([], [])


def test_without_a_place_for_letters_the_query_stops_and_starts_once_the_table_takes_them(job: Job) -> None:
    job.settings = replace(job.settings, letters=None)
    with pytest.raises(RecordRefusedError, match="UNIQUE"):
        decide(job)
    job.ask("DROP INDEX once")
    decide(job)
    assert job.rows() == EVERY


def test_letters_whose_own_table_refuses_them_stop_the_query(job: Job) -> None:
    job.to_database()
    job.ask("CREATE TRIGGER no BEFORE INSERT ON dead BEGIN SELECT RAISE(ABORT, 'no letters'); END")
    with pytest.raises(RecordRefusedError, match=r"sink sqlite\.letters: .*no letters"):
        decide(job)
    assert (job.rows(), job.dead()) == ([], [])
    job.ask("DROP TRIGGER no")
    decide(job)
    assert (job.rows(), job.dead()) == (GOOD, sorted(BAD))
