"""Following a log: each epoch is counted once, folded or not, after a restart too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import QueryCoordinator, here

from onceonly.errors import LogError
from onceonly.telemetry.following import Follower
from onceonly.telemetry.from_log import observe
from onceonly.telemetry.starts import count_start, read_starts

if TYPE_CHECKING:
    from pathlib import Path

ROWS_EACH = 6


@pytest.fixture
def query(tmp_path: Path) -> QueryCoordinator:
    return QueryCoordinator(tmp_path / "cp", keep=2)


def counted(follower: Follower) -> tuple[int, int]:
    follower.look()
    return follower.totals.committed, follower.totals.rows["box"]


def test_looks_one_after_the_other_count_each_epoch_once_whatever_is_folded_between(
    query: QueryCoordinator,
) -> None:
    follower = Follower(str(query.path))
    for count in (1, 3, 30, 31, 75):
        query.complete(*range(follower.totals.committed, count))
        query.log.fold()
        assert counted(follower) == (count, count * ROWS_EACH)
        assert counted(follower) == (count, count * ROWS_EACH)
    assert len(list(query.log.history())) > 40
    assert counted(Follower(str(query.path))) == (75, 75 * ROWS_EACH)


def test_an_epoch_is_counted_when_it_is_settled_and_shown_before(query: QueryCoordinator) -> None:
    query.complete(0)
    query.claim(1)
    follower = Follower(str(query.path))
    assert counted(follower) == (1, ROWS_EACH)
    assert [each.reason for each in follower.chain] == ["claimed by a new run"]
    decided = query.decide(1, index=1)
    assert counted(follower) == (1, ROWS_EACH)
    assert [each.index for each in follower.chain] == [0, 1]
    query.settle(decided)
    assert counted(follower) == (2, 2 * ROWS_EACH)
    assert not follower.chain
    assert follower.totals.aborts == 1


def test_who_wants_to_know_is_given_each_settled_epoch_once(query: QueryCoordinator) -> None:
    seen: list[int] = []
    follower = Follower(str(query.path), settled=lambda chain, _receipt: seen.append(chain[-1].epoch))
    query.complete(0, 1)
    follower.look()
    query.complete(2)
    query.decide(3)
    follower.look()
    follower.look()
    assert seen == [0, 1, 2]


def test_a_look_that_fails_is_made_up_for_by_the_next(query: QueryCoordinator, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no decision log"):
        Follower(str(tmp_path / "other")).look()
    query.complete(0, 1)
    [receipt] = query.path.glob("onceonly/receipts/*1.json")
    good = receipt.read_bytes()
    receipt.write_bytes(b"torn")
    follower = Follower(str(query.path))
    with pytest.raises(LogError):
        follower.look()
    receipt.write_bytes(good)
    assert counted(follower) == (2, 2 * ROWS_EACH)


def test_starts_are_counted_once_each(query: QueryCoordinator) -> None:
    assert read_starts(str(query.path)).count == 0
    for began, count in ((1.0, 1), (1.0, 1), (2.0, 2)):
        assert count_start(str(query.path), began=began).count == count
    (query.path / "onceonly" / "starts.json").write_bytes(b"torn")
    assert read_starts(str(query.path)).count == 0
    assert observe(str(query.path), name="q", is_running=False).starts == 0


# ------------------------------------------------------------------------------------------ command line
def test_the_command_prints_what_the_log_tells(
    query: QueryCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    query.complete(*range(30))
    query.log.fold()
    query.log.put_link(replace(query.decide(30), index=0))
    assert here("metrics", "show", query.path, "--name", "orders") == 0
    text = capsys.readouterr().out
    assert 'onceonly_epochs_total{outcome="committed",query="orders"} 30.0\n' in text
    assert 'onceonly_in_doubt_transactions{query="orders",sink="box"} 2.0\n' in text
    assert 'onceonly_epoch_phase_seconds_count{phase="commit",query="orders"} 30.0\n' in text
    assert here("metrics", "show", query.path, "--json") == 0
    assert '"onceonly_rows_total"' in capsys.readouterr().out


def test_a_name_is_not_given_to_several_queries(
    query: QueryCoordinator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    QueryCoordinator(tmp_path / "other", query="other")
    assert here("metrics", "show", tmp_path, "--name", "orders") == 64
    told = capsys.readouterr()
    assert told.out == ""
    assert "leads to 2 checkpoints" in told.err


def test_the_command_names_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert here("metrics", "show", tmp_path / "none") == 64
    told = capsys.readouterr()
    assert told.out == ""
    assert "there is no folder" in told.err
