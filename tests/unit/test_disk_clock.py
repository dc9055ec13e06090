"""The clocks of a machine jump by an hour, to and fro, at every look: nothing but pictures depends on them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.disk_bench import COLUMNS, QUERY, TYPED, World, in_child, memory, world

from onceonly.durable import disk
from onceonly.errors import UnavailableError
from onceonly.log import open_log
from onceonly.model import Guarantee
from onceonly.ports import QueryContext
from onceonly_proof.disk import Fault, How

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["memory", "world"]  # fixtures
HOUR_S = 3600.0
JUMPS = {
    "forward once": lambda looks: HOUR_S * (looks > 20),
    "back once": lambda looks: -HOUR_S * (looks > 20),
    "forward at every look": lambda looks: HOUR_S * looks,
    "back at every look": lambda looks: -HOUR_S * looks,
    "to and fro": lambda looks: HOUR_S * (looks % 3 - 1),
}


@pytest.fixture(params=JUMPS)
def jump(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Return what makes the clocks of this process jump; for a child, as nothing sets them right again."""

    def now() -> None:
        looks = 0
        real = {name: getattr(time, name) for name in ("time", "monotonic", "time_ns", "monotonic_ns")}

        def jumping(name: str) -> Any:  # noqa: ANN401  a whole number or not
            nonlocal looks
            looks += 1
            scale = 10**9 if name.endswith("_ns") else 1
            return real[name]() + int(JUMPS[request.param](looks)) * scale

        for name in real:
            setattr(time, name, lambda name=name: jumping(name))

    return now


def deeds(world: World) -> dict[int, list[tuple[str, str, int, int]]]:
    """What was decided, without the names that are drawn anew each time."""
    return {
        epoch: [
            (link["kind"], link["reason"], sum(vote["rows"] for vote in link["votes"]), len(link["carried"]))
            for link in chain
        ]
        for epoch, chain in world.chains().items()
    }


def test_clocks_that_jump_change_nothing(world: World, jump: Callable[[], None]) -> None:
    still = World(world.folder.with_name("still"))
    still.history()
    world.clock = lambda: time

    def history() -> None:
        jump()
        world.history()

    end = in_child(history, *world.watched)
    assert end.status == 0, end.said
    world.judge_midway()
    assert deeds(world) == deeds(still)
    assert world.rows() == still.rows()
    world.settle()
    world.judge_settled()


def test_clocks_that_jump_while_a_commit_is_put_off_lead_to_another_try_at_most(
    world: World, jump: Callable[[], None]
) -> None:
    struck: set[str] = set()
    for nth in range(3, 7):  # before it are trials
        each = World(world.folder.with_name(str(nth)), clock=lambda: time)

        def live(each: World = each) -> None:
            jump()
            each.live(each.last)

        end = in_child(live, *each.watched, fault=Fault(nth, How.REFUSE), calls={"rename"})
        assert end.at is not None
        assert end.status in {0, TYPED}, end.said
        struck.add(Path(end.at[1]).suffix)
        each.judge_midway()
        each.settle()
        each.judge_settled()
    assert ".staged" in struck, "a commit was put off"


def in_two_hours(action: Callable[[], object]) -> None:
    """Do something as a process whose clock is two hours ahead."""
    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + 2 * HOUR_S)
        action()


@pytest.mark.parametrize("what", ["the log", "the target"])
def test_a_trial_that_another_clock_takes_for_old_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    world.live(world.first)

    def start() -> object:
        if what == "the log":
            return open_log(str(world.checkpoint), query=QUERY, create=True)
        return world.sink().check(
            QueryContext(query=QUERY, sink="files", guarantee=Guarantee.EXACTLY_ONCE, columns=COLUMNS)
        )

    place: Any = disk if what == "the log" else type(world.sink()._store)
    name = "write_new" if what == "the log" else "finish"
    real, others = getattr(place, name), 0

    def then_another(*arguments: Any) -> None:  # noqa: ANN401  the store's own
        nonlocal others
        real(*arguments)
        others += 1
        if others == 1:
            in_two_hours(start)

    monkeypatch.setattr(place, name, then_another)
    with pytest.raises(UnavailableError, match=str(world.folder)):
        start()
    assert others > 1, "another has tried in between"
    monkeypatch.undo()
    world.settle()
    world.judge_settled()
