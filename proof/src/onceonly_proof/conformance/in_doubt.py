"""In doubt: a driver dies right behind its decision, and the epoch is ended by hand, or by the next start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onceonly.model import Guarantee, Handle, LinkKind
from onceonly.operations import explain, settle
from onceonly.operations.find import open_checkpoint
from onceonly.operations.given import Given
from onceonly.ports.standing import Stands
from onceonly.protocol.moves import new_link
from onceonly_proof.conformance import world as worlds
from onceonly_proof.conformance.selection import TWO_PHASES, needs
from onceonly_proof.conformance.subject import Subject
from onceonly_proof.conformance.world import broken

if TYPE_CHECKING:
    from onceonly.model import Link
    from onceonly_proof.conformance.query import Query
    from onceonly_proof.conformance.world import World


class InDoubtTests(Subject):
    """``onceonly transactions explain``, ``commit`` and ``abort``, and a start in their place: rows are there once."""

    @needs(Guarantee.EXACTLY_ONCE.value, TWO_PHASES)
    @pytest.mark.parametrize("ended", ["commit", "start", "abort"])
    def test_an_epoch_in_doubt_is_ended_by_hand_or_by_a_start(self, world: World, ended: str) -> None:
        link = decided(world.run(epochs=1, slots=2))
        for vote in link.votes:
            expect_explained(world, vote.handle, {Stands.OPEN, Stands.UNKNOWN}, "what is pending is open")
        rows = world.work(epochs=1, slots=2).load.numbers()
        if ended == "commit":
            result = by_hand(world, settle.Verb.COMMIT)
            if result.error is not None:
                raise broken("a decided epoch is committed by hand", str(result.error))
            world.expect(rows, "what is decided is visible once it was committed by hand, once")
        elif ended == "abort":
            result = by_hand(world, settle.Verb.ABORT)
            is_told = (
                world.driver.look_up(link.pending[0].handle or Handle(transaction="")).stands
                is not Stands.UNKNOWN
            )
            if is_told and result.error is not None:
                raise broken("a decided epoch is aborted by hand where its target tells", str(result.error))
            if is_told and not self.early:
                world.expect([], "what was aborted by hand, against its decision, is not visible")
        after = world.run(epochs=1, slots=2)
        after.run_all()
        world.expect(rows, f"after a start that follows on {ended}, every row is visible, once")
        world.expect_no_orphans(f"after a start that follows on {ended}, nothing is open")
        for vote in after.log.chain(0)[-1].pending:
            expect_explained(
                world, vote.handle, {Stands.COMMITTED, Stands.UNKNOWN}, "what is settled is committed"
            )


def decided(query: Query) -> Link:
    """Decide the first epoch, and die before anything of it is committed."""
    folder = Path(query.work.checkpoint)
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(f'{{"id": "{query.work.query}"}}', encoding="utf-8")
    (folder / "offsets/0").write_text('v1\n{}\n"0"', encoding="utf-8")
    plan = query.plan(0)
    name = query.suite.sink.name
    votes = tuple(query.slot(plan, name, slot) for slot in range(query.work.slots))
    link = replace(new_link(plan, LinkKind.COMMIT, run=query.run), votes=votes)
    query.log.put_link(link)
    query.close()
    return link


def given(world: World) -> Given:
    """Return what an operator gives: the class of the sink, and what the log does not hold."""
    sink = world.suite.sink
    options = {**world.options, **world.suite.choice()}
    secret = {option.name.lower() for option in sink.declared if option.secret}
    return Given(
        by_sink={sink.name: {name: text for name, text in options.items() if name.lower() in secret}},
        classes={sink.name: f"{sink.__module__}:{sink.__qualname__}"},
    )


def by_hand(world: World, verb: settle.Verb) -> settle.Result:
    """Type a command."""
    checkpoint = open_checkpoint(world.work().checkpoint)
    order = settle.Order(verb=verb, epoch=0, because="so it shall be", against=verb is settle.Verb.ABORT)
    errand = settle.prepare(checkpoint, order, given(world), force=True)
    if errand is None or errand.is_done:
        raise broken("an epoch in doubt can be ended", "there was nothing to do")
    return settle.settle(checkpoint, errand, given(world), timeout_s=worlds.PATIENCE_S, force=True)


def expect_explained(world: World, handle: Handle | None, stands: set[Stands], promise: str) -> None:
    """See that the operator is told how a transaction stands."""
    if handle is None:
        return
    checkpoint = open_checkpoint(world.work().checkpoint)
    found = explain.explain(checkpoint, handle.transaction, given(world), within_s=worlds.PATIENCE_S)
    if found is None or found.standing not in {each.value for each in stands} or found.epoch != 0:
        raise broken(f"explain: {promise}", f"{found}")
