"""Planning an epoch: from Spark's checkpoint and the user's options to a resolved plan. No Spark.

Used by the planner process (format way) and by the driver's Python (foreachBatch way). A ``QueryCoordinator`` is one
query on one checkpoint in one process; it remembers the plan that it handed out last, which is what
lets the next epoch go on without a claim (docs/adr/0004-plan-identity.md).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from onceonly import events
from onceonly.checkpoint.passed import passed
from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.coordinator import by_hand
from onceonly.coordinator.adoption import no_log
from onceonly.coordinator.apart import Apart
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import CheckpointMovedError, InDoubtError, LogError
from onceonly.executor.dead_letters import columns_of, require_few
from onceonly.executor.kept import close
from onceonly.guards.guard import Guard
from onceonly.log import identity, left, open_log
from onceonly.log.actions import OPERATOR
from onceonly.log.place import log_store
from onceonly.log.presence import Presence
from onceonly.log.runs import Run
from onceonly.model import Mode, letters_name
from onceonly.settings.query import Replay, SinkSettings
from onceonly.settings.registry import BUILT_IN, build, use_of
from onceonly.stores.opened import told

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from onceonly.checkpoint.reading import QueryCheckpoint
    from onceonly.executor.ballot import Ballot
    from onceonly.guards.source import Source
    from onceonly.model import Guarantee, Passed, Plan, SinkUse, Span, Vote
    from onceonly.ports import Sink
    from onceonly.savepoints.keeping import Keeper
    from onceonly.settings.query import QuerySettings
    from onceonly.settings.registry import SinkClass
    from onceonly.stores.access import Hadoop

log = logging.getLogger("onceonly")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What travels to the tasks of one try at an epoch, for one of its sinks.

    It holds the sink's options, secrets included, because executors need them; it never shows them.
    ``token`` is the log's identity as the driver sees it: an executor that sees another one does not share
    the checkpoint. ``letters`` is the class of the sink that takes dead letters, None where a refused row stops.
    ``run`` is empty where only the tasks know it. ``streams`` says that Spark tells the tasks query and epoch.
    """

    plan: Plan
    query: str
    checkpoint: str
    settings: SinkSettings = field(repr=False)
    sink: SinkClass
    token: str | None
    letters: SinkClass | None = None
    run: str = ""
    hadoop: Hadoop = field(default_factory=told)
    """How the checkpoint's store is reached."""
    streams: bool = True


@dataclass(frozen=True, slots=True)
class _Member:
    settings: SinkSettings
    sink_class: SinkClass
    participant: Participant


class QueryCoordinator:
    """Plans, decides and aborts for the sinks of one query. Driver, planner or commit process.

    ``span`` asks Spark what a query reads by its own memory, None where nobody can; ``sources`` asks it for the sources
    in a query's plan, None where there is no stream; ``checkpoint`` is another one than Spark keeps where the settings
    say.
    """

    def __init__(
        self,
        settings: QuerySettings,
        *,
        actor: str,
        application: str,
        start: str = "",
        span: Callable[..., Span | None] | None = None,
        sources: Callable[[str], Sequence[Source] | None] | None = None,
        checkpoint: QueryCheckpoint | None = None,
    ) -> None:
        self.settings = settings
        self.start = start
        self.checkpoint = checkpoint or SparkCheckpoint.at(settings.checkpoint)
        self.query = self.checkpoint.query()
        self._actor = actor
        self._members: dict[str, _Member] = {}
        self._last: Plan | None = None
        self._run = ""
        try:
            self._log = open_log(
                settings.checkpoint,
                query=self.query,
                keep=settings.history,
                create=actor != "committer",
                aside=True,
                before_made=lambda: self._adopt(self.checkpoint.epoch()),
            )
        except LogError:
            self._refuse_begun()
            raise
        self._guard = (
            None
            if sources is None
            else Guard(
                self.query,
                self.checkpoint.files,
                settings,
                partial(sources, self.query),
                start=start.rpartition(".")[2],
            )
        )
        inputs = self.checkpoint.inputs()
        self._streams = inputs is not None
        self._coordinator = Coordinator(
            log=self._log,
            actor=actor,
            application=application,
            commit_timeout_s=settings.commit_timeout_s,
            call_timeout_s=settings.call_timeout_s,
            epoch_timeout_s=settings.epoch_timeout_s,
            inputs=inputs,
            span=None if span is None else partial(span, self.query),
            revive=self._revive if self._streams else None,
        )
        is_planner = self._streams and actor != "committer"
        self._apart = Apart(settings.checkpoint, self.query) if is_planner else None
        if settings.savepoints is not None:
            from onceonly.savepoints.place import refuse_inside

            refuse_inside(settings.savepoints.place, settings.checkpoint)
        self.keeper: Keeper | None = None
        """Who is asked after each epoch whether a savepoint is due, where nobody else hears of it."""

    def enlist(
        self,
        settings: SinkSettings,
        sink: SinkClass,
        columns: tuple[tuple[str, str], ...],
        letters: SinkClass | None = None,
    ) -> None:
        """Let a sink take part, and with it the one that takes its dead letters.

        Any number of times; it is made anew only where it is used otherwise.
        """
        self._enlist(settings, sink, columns)
        beside = settings.of_letters
        if beside is not None and letters is not None:
            self._enlist(beside, letters, None)

    def _enlist(
        self, settings: SinkSettings, sink: SinkClass, columns: tuple[tuple[str, str], ...] | None
    ) -> None:
        known = self._members.get(settings.name)
        if known is not None and (known.settings.key, known.sink_class) == (settings.key, sink):
            participant = replace(
                known.participant, columns=known.participant.columns if columns is None else columns
            )
        else:
            made = build(settings, sink, checkpoint=self.settings.checkpoint)
            participant = Participant(
                sink=made,
                guarantee=settings.guarantee,
                columns=columns_of(made) if columns is None else columns,
                use=use_of(settings, sink),
                letters_limit=settings.letters.limit if settings.letters else None,
            )
            if known is not None:
                close(known.participant.sink)
        self._members[settings.name] = _Member(settings, sink, participant)
        self._coordinator.join(settings.name, participant)

    def _revive(self, name: str, use: SinkUse, then: Mapping[str, str | int]) -> Sink | None:
        """Make a sink that the query has no more. With secrets only where one that it has leads to the same target."""
        for member in self._members.values():
            own = member.participant
            if own.use is not None and own.use.sink == use.sink and own.sink.overlaps(then):
                options = {**member.settings.options, **use.options}
                settings = SinkSettings(name=name, guarantee=use.guarantee, options=options)
                return build(settings, member.sink_class, checkpoint=self.settings.checkpoint)
        if use.sink not in BUILT_IN:
            return None  # no code is run because a file names it
        settings = SinkSettings(name=name, guarantee=use.guarantee, options=use.options)
        return build(settings, BUILT_IN[use.sink], checkpoint=self.settings.checkpoint)

    def plan(
        self,
        epoch: int,
        *,
        sinks: Collection[str] | None = None,
        run: str = "",
        since: int | None = None,
        repeats: Callable[[], bool] = lambda: False,
    ) -> Plan:
        """Resolve an epoch before its tasks run. Raises a typed error where the query must stop.

        ``sinks`` are the names of those that it writes to, None for all. ``since`` is the first epoch of this run of
        the query, if known: what was passed by before may be taken over, not what this run passed by.
        ``repeats`` tells, for a drain, whether Spark's plan promises the same rows each time.
        """
        last, self._last = self._last, None
        goes_on = last is not None and last.epoch == epoch - 1 and run == self._run
        self._run = run
        with self._present():
            try:
                plan = self._coordinator.plan(
                    epoch,
                    sinks=None if sinks is None else self._with_letters(sinks),
                    barrier=None if self._streams else self.checkpoint.barrier(epoch),
                    run=run,
                    continues=last.id if last is not None and goes_on else None,
                    passed=partial(self._passed, since=epoch if since is None else since),
                )
            except InDoubtError as error:
                raise by_hand.in_doubt(
                    error, self.settings.checkpoint, epoch, self._log.applications()
                ) from error
            if not goes_on:
                self._require_home()
            if self._apart is not None:
                self._apart.require(plan, {name: each.participant for name, each in self._members.items()})
            if self._guard is not None and not goes_on:
                # Not before: what was decided is committed whatever has become of the sources.
                self._guard.look(epoch, self._guarantees(sinks))
        if last is None:
            self._tell_by_hand(epoch)
        if plan.mode is Mode.DRAIN:
            asked = self.settings.replay
            plan = replace(plan, strict=asked is Replay.STOP or (asked is Replay.AUTO and repeats()))
        self._last = plan
        return plan

    def run_before(self, epoch: int, application: str) -> Run | None:
        """Return the run that has decided the epoch before, where it was one of an application; None otherwise."""
        link = next(reversed(self._log.chain(epoch - 1)), None) if epoch else None
        if link is None or link.stamp is None or not link.run or link.application != application:
            return None
        return Run(run=link.run, began=link.stamp)

    def assignment(self, plan: Plan, name: str, *, run: str = "") -> Assignment:
        """Return what the tasks of one sink need."""
        member = self._members[name]
        return Assignment(
            plan=plan,
            query=self.query,
            checkpoint=self.settings.checkpoint,
            settings=member.settings,
            sink=member.sink_class,
            token=self._log.token,
            letters=self._members[letters_name(name)].sink_class if member.settings.letters else None,
            run=run,
            streams=self._streams,
        )

    def require_few_letters(self, plan: Plan, ballots: Collection[Ballot]) -> None:
        """See, before the decision, that the slots together have not refused more than the limit of an epoch.

        Raises ``RecordRefusedError``. What is repaired was decided by the limit of that time.
        """
        for name, member in self._members.items():
            letters = member.settings.letters if plan.mode is Mode.RUN else None
            limit = letters.limit if letters else None
            require_few(self.query, plan.epoch, name, ballots, limit=limit)

    def _guarantees(self, sinks: Collection[str] | None) -> list[Guarantee]:
        return [
            self._members[name].settings.guarantee for name in (self._members if sinks is None else sinks)
        ]

    def _with_letters(self, sinks: Collection[str]) -> list[str]:
        return [*sinks, *(letters_name(name) for name in sinks if self._members[name].settings.letters)]

    def decide(self, plan: Plan, ballots: Collection[Ballot]) -> None:
        """Decide, and return when everything decided is visible. Raises ``RecordRefusedError`` for too many letters."""
        self.require_few_letters(plan, ballots)
        with self._present():
            self._coordinator.decide(plan, _votes(ballots))
        if self.keeper is not None:
            self.keeper.look()

    def abort(self, plan: Plan, ballots: Collection[Ballot], *, run: str = "") -> None:
        """Give up a try; what is decided stays decided."""
        with self._present():
            self._coordinator.abort(plan, _votes(ballots), run=run)

    def close(self) -> None:
        """Give back the sinks' connections. Idempotent."""
        for member in self._members.values():
            close(member.participant.sink)

    @contextmanager
    def _present(self) -> Iterator[None]:
        """Show that the job is not down while it acts; it outlives its query, whose listener shows the rest."""
        presence = Presence.hold(self.settings.checkpoint, actor=self._actor)
        try:
            yield
        finally:
            presence.close()

    def _require_home(self) -> None:
        """See, under the claim, that the query was not restored elsewhere since its log was opened.

        Who restores it lets the log say so first, and puts a claim then: one of the two sees the other.
        """
        if self._has_operators():
            store = log_store(self.settings.checkpoint)
            if (found := identity.read(store)) is not None:
                where = self.settings.checkpoint
                try:
                    identity.compare(found, store, query=self.query, address=identity.address(where))
                except CheckpointMovedError as error:
                    raise left.went_on(found, where) from error

    def _has_operators(self) -> bool:
        """Say whether an operator's command has put a link that was read; reads nothing."""
        return any(name.startswith(OPERATOR) for name in self._log.applications())

    def _tell_by_hand(self, epoch: int) -> None:
        """Say what an operator has done to this epoch, or to the one before, while the job was down."""
        for action in by_hand.since(self.settings.checkpoint, epoch) if self._has_operators() else ():
            log.warning("Query %s: %s.", self.query, action.sentence)

    def _passed(self, epoch: int, *, since: int) -> Passed | None:
        """Say what Spark has noted of an epoch that the log does not know, and whether it is taken over."""
        return passed(self.checkpoint, epoch, taken=self.settings.adopt and epoch < since)

    def _refuse_begun(self) -> None:
        """Refuse a checkpoint that is being made of a savepoint: Spark gives it another id, and would begin anew."""
        from onceonly.savepoints.starting import refuse_begun

        refuse_begun(self.settings.checkpoint)

    def _adopt(self, epoch: int) -> None:
        """Refuse, or take over, a checkpoint whose earlier epochs another sink has written."""
        self._refuse_begun()
        before = sorted(number for number in self.checkpoint.committed() if number < epoch)
        if not before:
            return
        if not self.settings.adopt:
            raise no_log(self.settings.checkpoint, before)
        log.warning(
            "Query %s: taken over from another sink at chk-%s; if that sink had begun this epoch, its rows "
            "appear twice, once from each.",
            self.query, epoch,
        )  # fmt: skip
        events.record("adopted", actor=self._actor, query=self.query, epoch=epoch)


def _votes(ballots: Collection[Ballot]) -> list[Vote]:
    return [vote for ballot in ballots for vote in ballot.votes]
