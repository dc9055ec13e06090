"""What a decision stands on: the epoch's age, its transactions, and Spark's checkpoint, durable and as decided."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from onceonly import background, protocol
from onceonly.coordinator import questions
from onceonly.errors import LogError, UnavailableError
from onceonly.model import handles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onceonly.coordinator.diverting import Rehearsal
    from onceonly.events import Steps
    from onceonly.model import Handle, Link, Plan, Span, Vote
    from onceonly.ports import Clock, DecisionLog, InputFiles, Sink

ANSWERS_S = 30.0
"""How long the sinks have, all together, to say before a decision whether their transactions are still open."""


class Checks:
    """Carries out ``CheckPrepared`` and ``RestoreInputs`` commands, and sees that Spark's files are durable. Driver.

    ``span`` asks what Spark reads in an epoch, and tells that it is about to be decided; it and ``inputs`` are None
    where nobody can look.
    """

    def __init__(
        self,
        log: DecisionLog,
        sinks: Mapping[str, Sink],
        *,
        rehearsal: Rehearsal,
        inputs: InputFiles | None,
        span: Callable[..., Span | None] | None,
        clock: Clock,
        record: Steps,
    ) -> None:
        self._log = log
        self._sinks = sinks
        self._rehearsal = rehearsal
        self._inputs = inputs
        self._span = span
        self._clock = clock
        self._record = record

    def check(self, plan: Plan, link: Link) -> protocol.Checked:
        """Look how old the epoch is, whether its transactions will live until they are committed, and in which target.

        Planner and commit process run on one machine, whose monotonic clock they share. Were it another clock, an
        epoch could be run again for nothing, or its end be found out by its commits: nothing worse.
        """
        span = self._span and partial(self._span, plan.epoch, deciding=True)
        asked = span and background.begin("onceonly-ask-spark", span)
        expiring, settings = self._look(plan, link.votes)
        votes = None if expiring else self._rehearsal.votes(plan, link)
        if votes is not None:  # which takes its time, and what else is prepared has grown older meanwhile
            expiring, settings = self._look(plan, votes)
        # Last of all, as an older driver that wakes up may write the offsets over at any time.
        unsynced = (
            (self._inputs.synced(plan) or self._inputs.sync_state()) if self._inputs is not None else ""
        )
        inputs = self._inputs.read(plan.epoch) if self._inputs is not None else None
        age_s = self._age_s(plan)  # the questions took time, too
        self._record(
            "epoch.checked", plan.epoch, run=link.run, age_ms=round(age_s * 1000), expiring=len(expiring)
        )
        return protocol.Checked(
            age_s,
            tuple(expiring),
            settings,
            unsynced=unsynced,
            inputs=inputs,
            span=asked.result() if asked else None,
            votes=votes,
        )

    def restore(self, command: protocol.RestoreInputs) -> protocol.Event:
        """Write Spark's files as they were decided, or say why that cannot be."""
        if self._inputs is None:
            return protocol.InputsNotRestored("nobody can look at Spark's checkpoint")
        claim = command.claim

        def is_mine() -> bool:
            return claim is None or self._log.chain(claim.epoch)[-1].plan == claim.plan

        try:
            return protocol.InputsRestored(self._inputs.restore(command.links, command.discard, is_mine))
        except LogError as error:
            return protocol.InputsNotRestored(error.what)

    def end_drain(self, epoch: int) -> None:
        """Tell that the tasks of a drain are over; see that the state is durable that they have left.

        Raises ``UnavailableError``.
        """
        if self._span is not None:
            self._span(epoch, deciding=True)
        if self._inputs is not None:
            self._require(self._inputs.sync_state(), epoch)

    def require_all(self, epoch: int) -> None:
        """See that all that Spark has written is durable. Raises ``UnavailableError``."""
        if self._inputs is not None:
            self._require(self._inputs.sync(), epoch)

    def _require(self, unsynced: str, epoch: int) -> None:
        if unsynced:
            raise UnavailableError(
                f"Query {self._log.query}, chk-{epoch}: Spark's checkpoint is not durable: {unsynced}",
                next_step="See to the checkpoint's file system and start the query again; no decision is lost.",
            )

    def _look(
        self, plan: Plan, votes: Sequence[Vote]
    ) -> tuple[list[str], dict[str, Mapping[str, str | int]]]:
        """Ask which transactions are about to end, and for the target of each sink that has some."""
        age_s = self._age_s(plan)
        answers = questions.ask(
            {
                name: partial(self._look_at, name, own, plan.facts.get(name, {}), age_s)
                for name, own in handles_of(votes).items()
            },
            within_s=ANSWERS_S,
            about=f"Query {self._log.query}, chk-{plan.epoch}: whether the transactions are still open after "
            f"{age_s:.1f} s",
        )
        expiring = [f"sink {name}: {why}" for name, (why, _) in answers.items() if why]
        return expiring, {name: identity for name, (_, identity) in answers.items()}

    def _look_at(
        self, name: str, handles: Sequence[Handle], facts: Mapping[str, str | int], age_s: float
    ) -> tuple[str, Mapping[str, str | int]]:
        sink = self._sinks[name]
        return sink.expiring(handles, facts, age_s), dict(sink.identity())

    def _age_s(self, plan: Plan) -> float:
        return max(self._clock.monotonic() - plan.planned_s, 0.0)
