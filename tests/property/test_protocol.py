"""The laws of the protocol, held against it through crashes at every step.

Each law has been seen to fail, with a mutant put into the protocol by hand:

    mutant                                              law that this test then found broken
    commit before the link; no sync of a found link     a commit was sent before … was durable
    commit after LinkTaken                              … led to a commit
    no claim; repair or re-run without a claim;         … opens a transaction without a link of its own
      go on although the claim was taken, or although
      somebody came between; a drain that writes
    a sweep without a claim                             a sweep was begun before … was durable
    a sweep of what a link names                        … is aborted, but the last link … names it
    an older run claims its epoch back                  … aborts … of the newer driver
    unknown, later or lost taken for done;              a receipt for …, but not all of it is committed
      unknown taken for lost; receipt before commits
    ABORT behind a decision; some lost taken for all;   … is visible, but the last link … does not name it
      what is carried forgotten
    a repair without matching, or across sinks          … is visible twice
    a repair with a part missing                        sink …: {…} is visible
    lost taken for unknown; one lost matched twice      the world does not come to rest
    a drain without a sweep before it                   left open by older runs when … was planned to drain

The others are found by ``tests/unit/test_protocol_scenarios.py`` (barrier, settings and gap ignored, a replay that
is not compared, giving up without a link) and ``tests/unit/test_runtime_coordinator.py`` (a sweep that does not
look, or looks before it lists, or keeps nothing; an exception taken for lost; no retry, no bound, no sync).
"""

from __future__ import annotations

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.property.world import DEALS, FAULTS, World

from onceonly.model import Guarantee

DRIVERS_MAX = 12
PLACES = (
    "read",
    "put",
    "sync",
    "answer",
    "votes",
    "commit t",
    "receipt",
    "list",
    "look",
    "fence",
    "commits/N",
)
PROFILE = settings(
    max_examples=300,
    stateful_step_count=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class ProtocolMachine(RuleBasedStateMachine):
    """Every rule is one thing that the world does to the drivers; the laws are checked inside, at each step."""

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.guarantee)
        self.world.start()

    @precondition(lambda self: len(self.world.drivers) < DRIVERS_MAX)
    @rule()
    def start(self) -> None:
        self.world.start()

    @precondition(lambda self: len(self.world.drivers) < DRIVERS_MAX)
    @rule(which=st.integers(0, 2))
    def restart(self, which: int) -> None:
        self.world.restart(self.world.drivers[-1 - which % len(self.world.drivers)].application)

    @rule(which=st.integers(0, 1))
    def plan_in(self, which: int) -> None:
        self.world.planner = which

    @rule(which=st.integers(0, 2), steps=st.integers(1, 40))
    def go_on(self, which: int, steps: int) -> None:
        alive = [driver for driver in self.world.drivers if driver.alive]
        if alive:
            driver = alive[-1 - which % len(alive)]
            for _ in range(steps):
                self.world.step(driver)

    @rule(which=st.integers(0, 2), place=st.sampled_from(PLACES))
    def go_to(self, which: int, place: str) -> None:
        """Leave a driver standing right before a step at which it matters who is first."""
        alive = [driver for driver in self.world.drivers if driver.alive]
        if alive:
            self.world.step_until(alive[-1 - which % len(alive)], place)

    @rule(which=st.integers(0, 2), fault=st.sampled_from(sorted(FAULTS)))
    def go_wrong(self, which: int, fault: str) -> None:
        alive = [driver for driver in self.world.drivers if driver.alive]
        if alive:
            self.world.step_wrongly(alive[-1 - which % len(alive)], fault)

    @rule(which=st.integers(0, 2))
    def crash(self, which: int) -> None:
        alive = [driver for driver in self.world.drivers if driver.alive]
        if alive:
            self.world.crash(alive[-1 - which % len(alive)])

    @rule(forgotten=st.integers(0, 2))
    def lose_power(self, forgotten: int) -> None:
        self.world.lose_power(forgotten=forgotten)

    @rule()
    def pass_by(self) -> None:
        self.world.pass_by()

    @rule(forgotten=st.integers(0, 1))
    def lose_offsets(self, forgotten: int) -> None:
        self.world.lose_power(forgotten=forgotten)
        self.world.lose_offsets()

    @precondition(lambda self: self.pending())
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        self.world.expire(self.world.transactions[data.draw(st.sampled_from(self.pending()))])

    @precondition(lambda self: self.pending())
    @rule(data=st.data())
    def prepare_late(self, data: st.DataObject) -> None:
        self.world.prepare_late(self.world.transactions[data.draw(st.sampled_from(self.pending()))])

    @precondition(lambda self: self.world.plans)
    @rule(number=st.integers(0, 20))
    def begin_late(self, number: int) -> None:
        self.world.begin_late(number)

    @precondition(lambda self: self.world.under_way)
    @rule(number=st.integers(0, 5))
    def put_late(self, number: int) -> None:
        self.world.put_late(number)

    @rule(deal=st.integers(0, len(DEALS) - 1))
    def deal(self, deal: int) -> None:
        self.world.deal = deal

    def pending(self) -> list[str]:
        return [each.name for each in self.world.transactions.values() if each.state in {"open", "prepared"}]

    def teardown(self) -> None:
        self.world.deal %= 3
        try:
            self.world.settle()
        finally:
            for line in self.world.trace:
                note(line)


class AtMostOnceMachine(ProtocolMachine):
    guarantee = Guarantee.AT_MOST_ONCE


TestExactlyOnce = ProtocolMachine.TestCase
TestExactlyOnce.settings = PROFILE
TestAtMostOnce = AtMostOnceMachine.TestCase
TestAtMostOnce.settings = settings(PROFILE, max_examples=100)
