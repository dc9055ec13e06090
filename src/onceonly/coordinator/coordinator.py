"""Drives the protocol for one query: carries out its commands and gives it the answers.

Driver only. One try at an epoch passes through two processes: ``plan`` runs where Spark plans the micro-batch,
``decide`` (or ``abort``) where Spark commits it. All memory between them is the plan and the decision log.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from onceonly import events, failpoints, protocol
from onceonly.coordinator.bounded import bounded
from onceonly.coordinator.checking import Checks
from onceonly.coordinator.commits import Commits
from onceonly.coordinator.diverting import Rehearsal
from onceonly.coordinator.guarantees import common
from onceonly.coordinator.left import left_of, left_sinks, owed_by, owed_sinks
from onceonly.coordinator.letters import keep_apart
from onceonly.coordinator.looking_back import former, look_back, past_of
from onceonly.coordinator.reader import Reader
from onceonly.coordinator.stops import error_of
from onceonly.coordinator.sweep import Sweeper
from onceonly.errors import ConfigurationError, ProtocolError
from onceonly.model import Guarantee, LinkKind, Mode
from onceonly.ports import QueryContext
from onceonly.settings.registry import noted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from onceonly.coordinator.left import Revive
    from onceonly.coordinator.reader import AskSpan, Reading
    from onceonly.model import Around, Link, Passed, Plan, Receipt, SinkUse, Vote
    from onceonly.ports import Clock, DecisionLog, InputFiles, Sink

log = logging.getLogger("onceonly")


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """One sink of a query, as its coordinator uses it. Driver.

    ``columns`` of its rows are for the sink's check; ``use`` goes into the links, for tools. ``letters_limit`` is how
    many rows of an epoch may become dead letters, None where there are none.
    """

    sink: Sink
    guarantee: Guarantee
    columns: tuple[tuple[str, str], ...] = ()
    use: SinkUse | None = None
    letters_limit: int | None = None


class Coordinator:
    """The coordinator of two-phase commit for one query; sinks take part once they have joined.

    ``actor`` names the process in the event log; ``application`` is the same in all processes of one Spark
    application; ``commit_timeout_s`` bounds the retries of one commit phase, ``call_timeout_s`` each call of a sink
    (None for none, in tests); ``epoch_timeout_s`` is how long an epoch may take from its plan to its decision, None for
    as long as it takes; ``watch`` is given every step that the event log would record. ``inputs`` are Spark's files
    that say what an epoch reads, None where there are none to compare (tools, tests); ``span`` asks Spark what it reads
    by its own memory, None where nobody can; ``revive`` makes a sink that the query has no more, None where none is.
    """

    def __init__(  # noqa: PLR0913  each is one thing that a test or a tool takes another for
        self,
        *,
        log: DecisionLog,
        actor: str,
        application: str = "",
        commit_timeout_s: float = 60.0,
        call_timeout_s: float | None = None,
        epoch_timeout_s: float | None = None,
        clock: Clock | None = None,
        watch: Callable[[Mapping[str, str | int]], None] | None = None,
        inputs: InputFiles | None = None,
        span: AskSpan | None = None,
        revive: Revive | None = None,
    ) -> None:
        self._log = log
        self._inputs = inputs
        self._application = application
        self._clock: Clock = clock or time
        self._epoch_timeout_s = epoch_timeout_s
        self._call_timeout_s = call_timeout_s
        self._participants: dict[str, Participant] = {}
        self._sinks: dict[str, Sink] = {}
        self._record = events.Steps(actor=actor, query=log.query, watch=watch)
        self._reader = Reader(log, inputs=inputs, span=span)
        self._revive: Revive = revive or (lambda *_: None)
        self._around: tuple[Link, ...] = ()
        self._asked: dict[str, Guarantee] = {}
        self._former: dict[str, Link] = {}
        self._sweeper = Sweeper(
            log,
            self._sinks,
            context=self._context,
            record=self._record,
            left=lambda: left_sinks(
                left_of(self._around, self._participants) | self._former, self._revive, query=log.query
            ),
        )
        self._checks = Checks(
            log,
            self._sinks,
            rehearsal=Rehearsal(log.query, self._participants, self._sinks),
            inputs=inputs,
            span=None if span is None else self._reader.span,
            clock=self._clock,
            record=self._record,
        )
        self._commits = Commits(
            self._sinks,
            query=log.query,
            timeout_s=commit_timeout_s,
            clock=self._clock,
            context=self._context,
            record=self._record,
        )
        self._facts: dict[str, Mapping[str, str | int]] = {}

    def join(self, name: str, participant: Participant) -> None:
        """Let a sink take part under a name, in the place of one that had it. Any number of times."""
        if self._participants.get(name) != participant:
            self._participants[name] = participant
            self._sinks[name] = self._in_time(name)
            self._facts.pop(name, None)

    def plan(
        self,
        epoch: int,
        *,
        sinks: Collection[str] | None = None,
        barrier: tuple[str, ...] | None = None,
        run: str = "",
        continues: str | None = None,
        passed: Callable[[int], Passed | None] | None = None,
    ) -> Plan:
        """Resolve an epoch before its tasks run (step 0 of the protocol).

        Planner process or driver, once a try. ``sinks`` are those that the epoch writes to, all that joined
        if it is None; ``barrier`` are the epoch's end offsets, a JSON text a source, None for those in Spark's
        checkpoint; ``continues`` is the id of the plan that this process gave for the epoch before; ``passed`` says
        what Spark has noted of an epoch that the log does not know, None where nothing. Raises a typed error where the
        query must stop. May commit, abort and sweep transactions of earlier runs.
        """
        failpoints.hit("plan.before_resolve")
        names = sorted(self._participants if sinks is None else sinks)
        if continues is None:
            self._facts.clear()
            self._asked, self._former = {}, {}
            # What hung before is asked anew.
            self._sinks.update({name: self._in_time(name) for name in self._participants})
        taking_part = {name: self._participants[name] for name in names}
        promised = {name: each.guarantee for name, each in taking_part.items()}
        # A claim tells what sinks promise, and asks how far former runs came: one is put for who joins after the start.
        late = continues is not None and not promised.items() <= self._asked.items()
        self._asked |= promised
        guarantee = common(list(promised.values()))
        plan = f"{self._application}.{uuid.uuid4().hex}" if self._application else uuid.uuid4().hex
        self._record.plan = plan
        # Told before the first read: what others do between the two is told after it.
        self._record("plan.started", epoch, run=run, continues=continues or "", guarantee=guarantee.value)
        reading = self._reader.look(epoch, owners=bool(self._application))
        self._around = (*reading.around.before, *reading.around.links)
        with self._owed(reading.around, names) as owed:
            fresh = [name for name in names if name not in self._facts]
            targets = {name: replace(taking_part[name], sink=self._sinks[name]) for name in fresh}
            past = past_of(self._log, epoch, reading.around, targets.keys())
            about = f"Query {self._log.query}, chk-{epoch}"
            look = partial(look_back, past.written, about=about, context=self._context)
            # Before their checks, which make what is missing: below a mount point nothing must be made.
            unsure = look(targets, checked=False) if targets else ()
            for name in (*names, *owed):
                sink, known = self._sinks[name], self._facts.get(name)
                self._facts[name] = self._check(name) if known is None else dict(sink.refresh(known))
            look({name: targets[name] for name in unsure}, checked=True)
            self._former |= former(past, targets)
            if barrier is None and self._inputs is not None and reading.inputs is not None:
                barrier = self._inputs.barrier(epoch, reading.inputs)
            context = protocol.Context(
                epoch=epoch,
                plan=plan,
                run=run,
                guarantee=guarantee,
                application=self._application,
                continues=None if late else continues,
                late=late,
                barrier=barrier or (),
                settings={name: dict(self._sinks[name].identity()) for name, each in taking_part.items()},
                uses={
                    name: noted(each.use, each.columns)
                    for name, each in taking_part.items()
                    if each.use is not None
                },
                facts={name: self._facts[name] for name in names},
                seen=past.seen,
                beside={name: dict(self._sinks[name].identity()) for name in owed},
                limit_s=self._epoch_timeout_s,
            )
            self._reader.begin(continues=context.continues, passed=passed)
            started = self._drive(*protocol.begin(context), epoch=epoch, run=run, reading=reading)
        if started is None:
            what = f"{about}: planning gave no plan: a defect in onceonly."
            raise ProtocolError(what, next_step="Start the query again; please report this.")
        if self._inputs is not None and started.mode is not Mode.DRAIN:
            self._inputs.begin_sync(started)
        failpoints.hit("plan.after_resolve")
        self._record("epoch.planned", epoch, run=run, mode=started.mode.value)
        return started

    def decide(self, plan: Plan, votes: Sequence[Vote]) -> None:
        """Decide an epoch whose slots have all voted commit: link, commits, receipt, sweep.

        Commit process or driver, once a try. Returns when everything decided is visible; raises otherwise, and
        then the next ``plan`` of this epoch resolves what was left.
        """
        run = votes[0].run if votes else ""
        self._record.plan = plan.id
        self._record(
            "votes.collected", plan.epoch, run=run, votes=len(votes), mode=plan.mode.value, names=self._names(votes),
        )  # fmt: skip
        if plan.mode is not Mode.DRAIN:
            failpoints.hit("link.before_check")
        else:
            # The tasks have left the state anew, over what was durable, and no other decision waits for it.
            self._checks.end_drain(plan.epoch)
        state, commands = protocol.step(protocol.resume(plan), protocol.VotesCollected(tuple(votes)))
        self._drive(state, commands, epoch=plan.epoch, run=run)
        self._log.fold()
        self._record("epoch.done", plan.epoch, run=run, mode=plan.mode.value)
        failpoints.hit("commit.before_return")

    def abort(self, plan: Plan, votes: Sequence[Vote], *, run: str = "") -> None:
        """Give up a try. Commit process or driver, idempotent.

        Spark calls it after a failed *commit* too, so the chain is read first: what is decided stays decided.
        """
        run = run or (votes[0].run if votes else "")
        self._record.plan = plan.id
        self._record("epoch.aborted", plan.epoch, run=run)
        state, commands = protocol.abandon(plan, run=run, votes=tuple(votes), reason="a slot failed")
        self._drive(state, commands, epoch=plan.epoch, run=run)

    @contextmanager
    def _owed(self, around: Around, names: Collection[str]) -> Iterator[list[str]]:
        """Name the sinks beside those of an epoch that are owed something; those that are no more join meanwhile."""
        owed = owed_by(around)
        with owed_sinks(owed, self._participants, self._revive) as made:
            for name, sink in made.items():
                use = owed[name].uses[name]
                self.join(name, Participant(sink=sink, guarantee=use.guarantee, use=use))
            try:
                yield sorted(owed.keys() & self._participants.keys() - set(names))
            finally:
                for each in (self._participants, self._sinks, self._facts):
                    _ = [each.pop(name, None) for name in made]

    def _check(self, name: str) -> Mapping[str, str | int]:
        each, sink = self._participants[name], self._sinks[name]
        offered = sink.capabilities.guarantees
        if each.guarantee not in offered:
            raise ConfigurationError(
                f"The sink {name} cannot promise {each.guarantee}; it offers {', '.join(sorted(offered))}.",
                next_step="Set onceonly.guarantee to what it offers, or take another.",
            )
        keep_apart(name, self._participants, self._facts, is_checked=False)
        facts = dict(sink.check(self._context(name)))
        keep_apart(name, self._participants, self._facts, is_checked=True)
        return facts

    def _in_time(self, name: str) -> Sink:
        sink, limit_s = self._participants[name].sink, self._call_timeout_s
        return sink if limit_s is None else bounded(sink, name=name, query=self._log.query, limit_s=limit_s)

    def _context(self, name: str) -> QueryContext:
        each = self._participants[name]
        return QueryContext(query=self._log.query, sink=name, guarantee=each.guarantee, columns=each.columns)

    # --- the loop -----------------------------------------------------------------------------------------

    def _drive(
        self,
        state: protocol.State,
        commands: Sequence[protocol.Command],
        *,
        epoch: int,
        run: str,
        reading: Reading | None = None,
    ) -> Plan | None:
        """Carry out commands until none is left; return the plan if tasks are to be started.

        ``reading`` is what the first ``ReadChain`` asks for, where it has just been read.
        """
        queue = deque(commands)
        plan: Plan | None = None
        while queue:
            command = queue.popleft()
            if isinstance(command, protocol.Stop):
                raise error_of(command, query=self._log.query, epoch=epoch)
            if isinstance(command, protocol.StartTasks):
                # No transaction of this plan is older than this moment.
                plan = replace(command.plan, planned_s=self._clock.monotonic(), stamp=events.stamp())
                continue
            if isinstance(command, protocol.CommitHandle):
                batch = [command]
                while queue and isinstance(queue[0], protocol.CommitHandle):
                    batch.append(queue.popleft())  # type: ignore[arg-type]  # narrowed by the look at queue[0]
                answers = self._commits.commit(batch, recovery=isinstance(state, protocol.Resolving))
            else:
                answer = self._carry_out(command, run=run, reading=reading)
                reading = None
                answers = [] if answer is None else [answer]
            for event in answers:
                state, more = protocol.step(state, event)
                queue.extend(more)
        return plan

    def _carry_out(
        self, command: protocol.Command, *, run: str, reading: Reading | None
    ) -> protocol.Event | None:
        """Carry one command out; return its answer, None where it has none."""
        answer: protocol.Event | None = None
        match command:
            case protocol.ReadChain(epoch, owners):
                asked = replace(command, owners=owners and bool(self._application))
                found = reading or self._reader.look(epoch, owners=asked.owners)
                answer = self._reader.read(asked, found)
            case protocol.CheckPrepared(plan, link):
                answer = self._checks.check(plan, link)
            case protocol.RestoreInputs():
                answer = self._checks.restore(command)
            case protocol.PutLink(link):
                answer = self._put(link)
            case protocol.SyncLink(link):
                self._log.sync(link)
                answer = protocol.LinkPersisted(link)
            case protocol.PutReceipt(receipt, link):
                answer = self._put_receipt(receipt, link, run=run)
            case protocol.Sweep(link, keep):
                answer = self._sweeper.sweep(link, keep)
            case protocol.AbortHandle(vote):
                self._commits.abort(vote)
            case protocol.Report(kind, message):
                level = logging.ERROR if kind is protocol.ReportKind.REPLAY_DIFFERS else logging.WARNING
                log.log(level, "Query %s: %s", self._log.query, message)
                self._record(kind.value, -1, run=run, message=message)
            case _:
                raise TypeError(command)
        return answer

    def _put(self, link: Link) -> protocol.Event:
        # Only a decision needs no reason; the claim of a partly committed epoch is a COMMIT link, too.
        if not link.reason:
            failpoints.hit("link.before_put")
        if link.kind is LinkKind.SKIPPED:
            # It stands on Spark's own word that the epoch is over, which a loss of power must not take back.
            self._checks.require_all(link.epoch)
        if link.reason and link.carried:
            self._commits.make_durable(link)
        link = replace(link, stamp=events.stamp())
        standing = self._log.put_link(link)
        if standing != link:
            self._record("link.taken", link.epoch, run=link.run, index=link.index)
            return protocol.LinkTaken(standing)
        self._record(
            "link.persisted",
            link.epoch,
            run=link.run,
            link=link.kind.value,
            index=link.index,
            names=self._names(link.votes),
            carried=self._names(link.carried),
        )
        failpoints.hit("plan.after_claim" if link.reason else "link.after_put")
        return protocol.LinkPersisted(link)

    def _put_receipt(self, receipt: Receipt, link: Link, *, run: str) -> protocol.Event:
        self._commits.complete(link)
        failpoints.hit("receipt.before_put")
        seconds = round(self._commits.take_seconds(), 6)
        self._log.put_receipt(replace(receipt, seconds=seconds, stamp=events.stamp()))
        self._record("receipt.persisted", receipt.epoch, run=run, outcomes=str(dict(receipt.outcomes)))
        failpoints.hit("receipt.after_put")
        return protocol.ReceiptPersisted()

    def _names(self, votes: Sequence[Vote]) -> str:
        """Name the transactions of votes for the record; not worked out where nobody listens."""
        if not self._record.is_heard:
            return ""
        return " ".join(f"{vote.sink}:{vote.handle.transaction}" for vote in votes if vote.handle is not None)
