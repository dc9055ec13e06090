"""``onceonly rescale`` where it must not: in words, before anything is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import QueryCoordinator, here

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.events import stamp
from onceonly.log.actions import Action, ActionFiles
from onceonly.log.place import log_store
from onceonly.log.presence import Presence
from onceonly.log.runs import Run, RunFiles
from onceonly.model import Stamp
from onceonly.operations import rescale
from onceonly.operations.find import open_checkpoint
from onceonly.spark import offline

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def coordinator(tmp_path: Path) -> QueryCoordinator:
    made = QueryCoordinator(tmp_path / "cp")
    made.complete(0)
    return made


def told(coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    place = str(coordinator.path.parent / "savepoints")
    status = here("rescale", coordinator.path, "--partitions", "3", "--savepoint", place, "--yes")
    return status, capsys.readouterr().err


def test_it_is_refused_beside_a_run_and_while_an_epoch_is_owed(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    presence = Presence.hold(str(coordinator.path))
    status, said = told(coordinator, capsys)
    assert (status, "a run is alive" in said) == (64, True)
    presence.close()
    coordinator.decide(1)
    status, said = told(coordinator, capsys)
    assert (status, "2 of its transactions are not known to be committed" in " ".join(said.split())) == (
        64,
        True,
    )
    assert not (coordinator.path.parent / "savepoints").exists()


@pytest.mark.parametrize("place", ["cp/savepoints", "a-file/savepoints"])
def test_a_place_that_is_unfit_is_told_before_anybody_is_asked(
    coordinator: QueryCoordinator,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    monkeypatch.setattr(offline, "require", lambda: None)
    (coordinator.path.parent / "a-file").write_text("", encoding="utf-8")
    before = sorted(coordinator.path.rglob("*"))
    place = str(coordinator.path.parent / place)
    status = here("rescale", coordinator.path, "--partitions", "3", "--savepoint", place)
    said = capsys.readouterr().err
    assert (status, place in " ".join(said.split())) == (64, True)
    assert "is to be dealt to" not in said
    assert sorted(coordinator.path.rglob("*")) == before


def test_of_two_at_once_the_second_is_refused(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, str]] = []
    monkeypatch.setattr(offline, "require", lambda: None)
    monkeypatch.setattr(
        offline, "repartition", lambda *_args, **_more: seen.append(told(coordinator, capsys))
    )
    assert told(coordinator, capsys)[0] == 0
    [(status, said)] = seen
    assert (status, "(onceonly rescale)" in " ".join(said.split())) == (64, True)


def test_an_epoch_that_spark_has_not_noted_is_told_before_spark_is_asked(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.set_barrier(1)
    coordinator.settle(coordinator.decide(1))
    status, said = told(coordinator, capsys)
    assert (status, "chk-1 of query" in said, "Spark has not noted it" in " ".join(said.split())) == (
        64,
        True,
        True,
    )
    assert not (coordinator.path.parent / "savepoints").exists()


def test_an_older_pyspark_is_told_by_name(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "_MANAGER", "not_there")
    status, said = told(coordinator, capsys)
    assert (status, "cannot repartition the state" in said) == (2, True)


def test_what_spark_noted_of_the_session_is_taken_over(coordinator: QueryCoordinator) -> None:
    provider = "spark.sql.streaming.stateStore.providerClass"
    text = f'v1\n{{"conf":{{"spark.sql.shuffle.partitions":"7","{provider}":"x"}}}}\n{coordinator.barrier(0)}'
    (coordinator.path / "offsets/0").write_text(text, encoding="utf-8")
    found = rescale.prepare(open_checkpoint(coordinator.path), 3, force=False)
    assert (found.epoch, found.partitions, dict(found.settings)) == (0, 7, {provider: "x"})
    with pytest.raises(ConfigurationError, match="7 partitions already"):
        rescale.prepare(open_checkpoint(coordinator.path), 7, force=False)


def test_after_a_rescale_that_no_start_has_followed_it_says_what_to_do(coordinator: QueryCoordinator) -> None:
    coordinator.set_barrier(1)
    coordinator.note(1)
    with pytest.raises(ConfigurationError, match="chk-1 of query") as raised:
        rescale.prepare(open_checkpoint(coordinator.path), 7, force=False)
    assert "start the query once" in raised.value.next_step


def test_what_was_lost_is_to_be_written_again_by_a_start_before(coordinator: QueryCoordinator) -> None:
    coordinator.lose_one(1)
    with pytest.raises(ConfigurationError, match="chk-1 of query") as raised:
        rescale.prepare(open_checkpoint(coordinator.path), 7, force=False)
    assert raised.value.next_step == "start the query and end it by onceonly stop"


def test_sparks_refusals_are_given_in_its_words_and_other_failures_as_such() -> None:
    text = (
        "[STATE_REPARTITION_INVALID_CHECKPOINT.LAST_BATCH_FAILED] The provided checkpoint location 'x' is in an "
        "invalid state.\nThe last batch ID 3 didn't finish. SQLSTATE: 55019\n\tat org.apache"
    )
    found = offline._told(RuntimeError(text), "x")
    assert isinstance(found, ConfigurationError)
    assert found.what.endswith("The last batch ID 3 didn't finish.")
    assert "onceonly stop" in found.next_step
    assert isinstance(offline._told(RuntimeError("disk"), "x"), UnavailableError)


def test_the_record_says_what_was_dealt_out() -> None:
    action = Action(
        command="rescale", epoch=4, who="ann", stamp=Stamp(at="now", host="here"), before="2", after="5"
    )
    assert action.sentence == (
        "chk-4 was the newest when state was dealt out anew by hand (rescale) at now by ann on here: "
        "before, 2; after, 5"
    )


def test_one_that_was_killed_when_it_was_done_is_no_trouble_once_the_query_has_gone_on(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until then, only the command tells whether state is dealt out: a start does not."""
    long_ago = Stamp(at="2026-01-01T00:00:00.000Z", host="h", pid=1)
    ActionFiles(log_store(str(coordinator.path))).put(
        Action(command="rescale", epoch=0, who="ann", stamp=long_ago, before="2")
    )
    runs = RunFiles(coordinator.path)
    runs.put(Run(run="r", began=stamp(), ended=stamp().at))
    asked = ("doctor", coordinator.path, "--only", "log")
    assert (here(*asked), "onceonly rescale" in capsys.readouterr().out) == (1, True)
    coordinator.complete(1)
    assert (here(*asked), "onceonly rescale" in capsys.readouterr().out) == (0, False)
