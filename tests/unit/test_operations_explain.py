"""``transactions explain``: a transaction in words, whatever stands of it, and nothing is changed by asking."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.operator_bench import BoxSink, QueryCoordinator, run

from onceonly.log.presence import Presence
from onceonly.model import Guarantee, Stamp
from onceonly.ports import Standing, Stands

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.model import Handle

PARTS = {
    "transaction", "sink", "epoch", "standing", "what", "rows", "decided", "target", "blocks", "until", "others",
    "next_start", "command", "opposite",
}  # fmt: skip


class Hurt(BoxSink):
    """A box in which a part of what waits is gone."""

    def look_up(self, handle: Handle) -> Standing:
        return Standing(stands=Stands.OPEN, told="it is in the box", hindered="a file of it is gone")


@pytest.fixture
def coordinator(tmp_path: Path) -> QueryCoordinator:
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.complete(0)
    return coordinator


def explained(coordinator: QueryCoordinator, name: str, *more: str) -> Mapping[str, Any]:
    """Explain one, see that nothing was changed by it, and give what machines get."""
    before = _all_files(coordinator)
    told = run("transactions", "explain", name, coordinator.path, "--json", *more)
    assert told.returncode == 0, told.stderr
    assert _all_files(coordinator) == before
    [found] = json.loads(told.stdout)["transactions"]
    assert found.keys() == PARTS | {"path", "query"}
    return dict(found)


def _all_files(coordinator: QueryCoordinator) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in coordinator.path.parent.rglob("*") if path.is_file()}


def test_what_is_pending_is_told_in_full(coordinator: QueryCoordinator) -> None:
    stamp = Stamp(at="2026-11-27T10:00:00.000Z", host="spark-1", pid=17)
    coordinator.set_barrier(1)
    votes = [replace(coordinator.vote(1, slot), stamp=stamp) for slot in range(2)]
    coordinator.log.put_link(replace(coordinator.link(1, votes=votes), stamp=stamp))
    coordinator.open("t1-0")
    found = explained(coordinator, "t1-0")
    assert (found["sink"], found["epoch"], found["standing"]) == ("box", 1, "open")
    assert "slot 0 of chk-1" in found["what"]
    assert "process 17 on spark-1" in found["what"]
    assert found["rows"] == (
        "3 of the 6 rows of chk-1, which reads events/0 from 10 to 20, events/1 from 5 to 10"
    )
    link = f"file://{coordinator.path}/onceonly/links/{1:020d}.0.json"
    assert found["decided"] == (
        "to commit: link 1.0 (GLOBAL_COMMIT), put at 2026-11-27T10:00:00.000Z, by process 17 on spark-1, in "
        + link
    )
    assert Path(link.removeprefix("file://")).is_file()
    assert found["target"] == "t1-0.open is in the box"
    assert (found["blocks"], found["until"]) == ("nobody", "unknown")
    assert found["others"] == ["box, slot 1: pending (3 rows, t1-1)"]
    assert "it commits this transaction and all others of chk-1" in found["next_start"]
    assert found["command"].endswith(str(coordinator.path))
    assert "--against-decision" in found["opposite"]


@pytest.mark.parametrize(
    ("end", "standing", "next_start", "opposite"),
    [
        ("done", "committed", "finds this transaction committed", "its rows are visible"),
        ("lost", "gone", "writes its 3 rows again, once", "would not be lost"),
        (None, "unknown", "stops with IN_DOUBT", "would not be lost"),
    ],
)
def test_what_comes_next_depends_on_what_the_target_has(
    coordinator: QueryCoordinator, end: str | None, standing: str, next_start: str, opposite: str
) -> None:
    coordinator.decide(1, slots=1)
    (coordinator.box / "t1-0.open").unlink()
    if end is not None:
        (coordinator.box / f"t1-0.{end}").touch()
    found = explained(coordinator, "t1-0")
    assert found["standing"] == standing
    assert next_start in found["next_start"]
    assert opposite in found["opposite"]


def test_what_is_settled_needs_nothing(coordinator: QueryCoordinator) -> None:
    found = explained(coordinator, "t0-1")
    assert found["next_start"].startswith("nothing")
    assert found["command"] is None
    assert "the receipt says that all of chk-0 is committed" in found["decided"]
    assert "Its rows are visible" in found["opposite"]


def test_what_was_lost_is_written_again(coordinator: QueryCoordinator) -> None:
    coordinator.decide(1)
    coordinator.claim(1, 1, reason="every handle was proven lost")
    found = explained(coordinator, "t1-0")
    assert "link 1.1 (ABORT) says since: every transaction was proven lost" in found["decided"]
    assert "it runs chk-1 again" in found["next_start"]
    assert found["command"] is None


def test_what_nobody_decided_is_known_by_its_target_alone(coordinator: QueryCoordinator) -> None:
    coordinator.set_barrier(1)
    coordinator.claim(1)
    coordinator.open("loser")
    found = explained(coordinator, "lose")
    assert (found["transaction"], found["epoch"], found["standing"]) == ("loser", None, "open")
    assert found["decided"].startswith("nothing: no link")
    assert found["rows"].startswith("unknown")
    assert "fences and aborts" in found["next_start"]
    assert "would be there twice" in found["opposite"]


def test_what_is_open_beside_a_settled_epoch_is_ended_by_the_command_that_is_told(
    coordinator: QueryCoordinator,
) -> None:
    coordinator.open("loser")
    found = explained(coordinator, "loser")
    assert found["command"] == f"onceonly transactions commit chk-0 {coordinator.path}"
    refused = run("transactions", "abort", "loser", coordinator.path, "--yes")
    assert f"what is open beside it is aborted by {found['command']}" in refused.stderr
    assert run(*str(found["command"]).split()[1:], "--yes").returncode == 0
    assert "loser.open" not in coordinator.seen()
    told = run("transactions", "explain", "lose", coordinator.path)
    assert told.returncode == 0, "what a command has aborted is no unknown name"
    assert "transaction loser is aborted: chk-0 was ended by hand (commit)" in told.stderr
    assert run("transactions", "explain", "other", coordinator.path).returncode == 64


def test_at_most_once_the_next_start_gives_it_up(coordinator: QueryCoordinator) -> None:
    coordinator.set_barrier(1)
    link = coordinator.link(1, votes=[coordinator.vote(1)])
    coordinator.log.put_link(replace(link, guarantee=Guarantee.AT_MOST_ONCE))
    found = explained(coordinator, "t1-0")
    assert "gives the transaction up" in found["next_start"]
    assert found["command"] is None


def test_a_living_run_ends_it_by_itself(coordinator: QueryCoordinator) -> None:
    coordinator.decide(1)
    presence = Presence.hold(str(coordinator.path), actor="driver")
    found = explained(coordinator, "t1-0")
    presence.close()
    assert "a run is alive" in found["next_start"]
    assert found["command"] is None


def test_a_target_that_is_down_leaves_the_rest_known(coordinator: QueryCoordinator) -> None:
    coordinator.decide(1)
    coordinator.box.rename(coordinator.box.with_name("aside"))
    found = explained(coordinator, "t1-0")
    assert (found["standing"], found["blocks"], found["until"]) == ("unknown", "unknown", "unknown")
    assert "the box is not there" in found["target"]
    assert "link 1.0" in found["decided"]


def test_no_code_is_run_because_a_checkpoint_names_it(coordinator: QueryCoordinator) -> None:
    coordinator.decide(1)
    told = run("transactions", "explain", "t1-0", coordinator.path, "--json", SILENT="1")
    assert told.returncode == 0, told.stderr
    [found] = json.loads(told.stdout)["transactions"]
    assert found["standing"] == "unknown"
    assert "no code is run because a file names it" in found["target"]


def test_a_name_must_be_of_one_transaction(coordinator: QueryCoordinator) -> None:
    coordinator.decide(1)
    several = run("transactions", "explain", "t1", coordinator.path)
    assert several.returncode == 64
    assert "stands for 2 transactions: t1-0, t1-1" in several.stderr
    none = run("transactions", "explain", "t9", coordinator.path)
    assert none.returncode == 64
    assert "has a transaction 't9'" in none.stderr


def test_people_get_a_line_for_each_question(coordinator: QueryCoordinator) -> None:
    coordinator.decide(1)
    told = run("transactions", "explain", "t1-0", coordinator.path).stdout
    headings = [line[:10].strip() for line in told.splitlines()[2:]]
    assert headings == [
        "is", "rows", "decided", "target", "blocks", "lives", "beside it", "next start", "type", "opposite",
    ]  # fmt: skip


def test_every_key_is_in_the_reference() -> None:
    reference = (Path(__file__).parents[2] / "docs/reference/cli-json.md").read_text(encoding="utf-8")
    assert {part for part in PARTS if f"`{part}`" not in reference} == set()


def test_a_name_that_epochs_use_one_after_the_other_is_that_of_the_newest(
    coordinator: QueryCoordinator,
) -> None:
    for epoch in (1, 2):
        coordinator.set_barrier(epoch)
        coordinator.log.put_link(coordinator.link(epoch, votes=[coordinator.vote(epoch, name="again")]))
        coordinator.open("again")
        if epoch == 1:
            coordinator.settle(coordinator.log.chain(1)[0])
            coordinator.note(1)
    assert explained(coordinator, "again")["epoch"] == 2
    assert explained(coordinator, "aga")["epoch"] == 2


def test_a_name_that_was_committed_and_is_open_once_more_is_the_open_ones(
    coordinator: QueryCoordinator,
) -> None:
    coordinator.set_barrier(1)
    link = coordinator.link(1, votes=[coordinator.vote(1, name="again")])
    coordinator.log.put_link(link)
    coordinator.open("again")
    coordinator.settle(link)
    coordinator.note(1)
    assert explained(coordinator, "again")["epoch"] == 1
    coordinator.set_barrier(2)
    (coordinator.box / "again.done").rename(coordinator.box / "again.open")
    found = explained(coordinator, "again")
    assert (found["epoch"], found["standing"]) == (None, "open")
    assert found["command"] == f"onceonly transactions abort again {coordinator.path}"
    refused = run("transactions", "commit", "again", coordinator.path, "--yes")
    assert "chk-2 is not decided" in refused.stderr
    done = run("transactions", "abort", "again", coordinator.path, "--yes")
    assert done.returncode == 0, done.stderr
    assert "again.open" not in coordinator.seen()


def test_of_what_cannot_be_committed_as_it_is_the_way_out_is_told(
    coordinator: QueryCoordinator,
) -> None:
    coordinator.decide(1)
    found = explained(coordinator, "t1-0", "--sink", f"box={__name__}:Hurt")
    assert found["target"] == "it is in the box; but a file of it is gone"
    assert "the others of" in found["next_start"]
    assert "are committed, and the query stops with IN_DOUBT" in found["next_start"]
    assert found["command"].startswith("onceonly transactions abort t1-0 ")
    assert found["command"].endswith(" --against-decision --because TEXT")
    assert "ends in doubt" in found["opposite"]
