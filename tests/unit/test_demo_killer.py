"""The plan of kills: seeded, spread over different steps, and possible."""

from __future__ import annotations

import pytest

from onceonly import failpoints
from onceonly.model import Guarantee
from onceonly_proof.demo.killer import RANDOM_MOMENT, plan_kills

SEEDS = range(40)


@pytest.mark.parametrize("guarantee", Guarantee)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 12, 40])
def test_there_are_as_many_kills_as_asked(count: int, guarantee: Guarantee) -> None:
    for seed in SEEDS:
        kills = plan_kills(count, epochs=12 * (count + 1), guarantee=guarantee, seed=seed)
        assert len(kills) == count
        assert sum(kill.step == RANDOM_MOMENT for kill in kills) == count // 4


def test_twelve_kills_hit_at_least_eight_different_steps() -> None:
    for seed in SEEDS:
        kills = plan_kills(12, epochs=156, guarantee=Guarantee.EXACTLY_ONCE, seed=seed)
        assert len({kill.step for kill in kills if kill.is_armed}) >= 8


def test_seeds_reach_every_step() -> None:
    seen = {
        kill.step
        for seed in SEEDS
        for kill in plan_kills(12, epochs=156, guarantee=Guarantee.EXACTLY_ONCE, seed=seed)
    }
    assert seen == {RANDOM_MOMENT, *failpoints.EVERYWHERE}


def test_the_same_seed_gives_the_same_kills() -> None:
    plans = [plan_kills(12, epochs=156, guarantee=Guarantee.EXACTLY_ONCE, seed=seed) for seed in (7, 7, 8)]
    assert plans[0] == plans[1] != plans[2]


def test_a_kill_in_recovery_follows_one_that_leaves_something_to_recover() -> None:
    leaves = {"link.after_put", "commit.before_handle", "commit.after_handle", "receipt.before_put"}
    follows = {
        "plan.before_recommit": leaves,
        "plan.after_recommit": leaves | {"plan.before_recommit"},
    }
    for seed in SEEDS:
        for count in (1, 2, 3, 8, 12):
            steps = [
                kill.step
                for kill in plan_kills(count, epochs=156, guarantee=Guarantee.EXACTLY_ONCE, seed=seed)
            ]
            for before, step in zip(["", *steps], steps, strict=False):
                assert step not in follows or before in follows[step], steps


def test_without_handles_no_step_of_theirs_is_armed_and_something_will_double() -> None:
    for seed in SEEDS:
        for count in (1, 3, 12):
            kills = plan_kills(count, epochs=156, guarantee=Guarantee.AT_LEAST_ONCE, seed=seed)
            steps = {kill.step for kill in kills}
            assert not any(("commit." in step and "handle" in step) or "recommit" in step for step in steps)
            assert steps & {"slot.after_prepare", "link.before_put", "link.during_put"}


def test_at_most_once_is_killed_where_it_loses() -> None:
    for seed in SEEDS:
        kills = plan_kills(2, epochs=40, guarantee=Guarantee.AT_MOST_ONCE, seed=seed)
        assert {kill.step for kill in kills} & {"link.after_put", "commit.before_handle"}


def test_what_is_armed_is_understood_by_the_failpoints() -> None:
    for kill in plan_kills(40, epochs=500, guarantee=Guarantee.EXACTLY_ONCE, seed=3):
        if kill.is_armed:
            ((armed,),) = failpoints._parse(kill.failpoint).values()
            assert (armed.point, armed.action, armed.nth) == (kill.step, "pause", kill.nth)
        else:
            assert kill.failpoint == ""
