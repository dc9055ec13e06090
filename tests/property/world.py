"""A small world for the protocol: a log, sinks, Spark, and drivers that are paused, killed and overtaken.

Everything outside the protocol is simulated with the worst manners that the real thing is allowed:

* the log's put is atomic, but a link is seen by everybody before it is synced, and lost with the machine; one whose
  answer is lost was made, or was not, or is made much later;
* a sink's transaction may expire at any time; the answer to a commit may be lost after the act; a task that was
  given up begins or prepares late; a slot is tried twice and only one of the two votes is collected;
* an epoch is found late when all its votes are in, or its transactions are said to expire soon;
* a driver stands still for ever, or for a while, between any two steps, also inside a put and inside a sweep;
* Spark runs an epoch again until its ``decide`` returned, calls ``abort`` after a failed commit too, deals the
  rows to other slots on a replay, and forgets with the machine that its last epoch was committed, and what its
  offsets said; it plans such an epoch anew over another range. An older driver writes a newer one's offsets over.
  (Not here: that it does so between the newer one's rename and its planner's first look.)
* Spark notes an epoch that nobody decided (its user takes it over), or whose commits failed.

``World.check`` holds the laws against it after every step. ``World.settle`` ends all faults and demands that
everything comes to rest.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from onceonly import protocol as p
from onceonly.model import (
    AlreadyCommitted,
    Committed,
    Guarantee,
    Handle,
    InputFile,
    Inputs,
    Link,
    LinkKind,
    Lost,
    Mode,
    Outcome,
    Passed,
    Plan,
    Receipt,
    RetryLater,
    Unknown,
    Vote,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

SINKS = ("a", "b")
ROWS = ("r0", "r1", "r2")
# Which rows each slot gets. The first three are the same slots in another order, as a replay may give them.
DEALS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("r0", "r1"), ("r2",)),
    (("r2",), ("r0", "r1")),
    ((), ("r2",), ("r0", "r1")),
    (("r0",), ("r1", "r2")),
    (("r0", "r1", "r2"),),
)
LIMIT_S = 60.0
EPOCHS_MAX = 5
STEPS_MAX = 400
STEPS_TO_PLACE_MAX = 30
# What may stop a run in this world. Anything else (a gap, other settings, foreign votes) is a defect.
STOPS = {
    p.StopReason.SUPERSEDED,
    p.StopReason.OVERTAKEN,
    p.StopReason.IN_DOUBT,
    p.StopReason.DELAYED,
    p.StopReason.LATE,
    p.StopReason.MOVED,
    p.StopReason.RESTORED,
    p.StopReason.UNSYNCED,
    p.StopReason.LOST,
    p.StopReason.MISMATCH,
}
FAULTS: dict[str, tuple[str, ...]] = {
    "fail": ("task", "list"),
    "doubt": ("put", "answer"),
    "retry": ("commit t",),
    "unknown": ("commit t",),
    "acted": ("commit t",),
    "twin": ("task",),
    "late": ("task",),
    "slow": ("check",),
    "expiring": ("check",),
}
"""What can go wrong, and at which steps."""

Life: TypeAlias = "Generator[str, str, None]"


class BrokenLawError(AssertionError):
    """One of the laws does not hold."""


class NoAnswerError(Exception):
    """A put was not answered, however often it was repeated: the run ends, and the next one reads what stands."""


def law(holds: object, text: str) -> None:
    if not holds:
        raise BrokenLawError(text)


@dataclass(slots=True)
class Transaction:
    name: str
    sink: str
    epoch: int
    plan: str
    driver: int
    rows: tuple[str, ...]
    state: str = "open"  # then prepared, committed, aborted (by us) or expired (by the sink)


@dataclass(slots=True)
class Entry:
    link: Link
    synced: bool = False


@dataclass(slots=True)
class Application:
    """A Spark application: runs one after another, and planner processes that it takes in any order.

    ``rank`` is when it last claimed an epoch: the newer one by the log's word. ``planners`` remember the epoch
    and the id of the plan that each gave last, also when the run that it was for has failed; one that remembers
    nothing claims, as a new run does.
    """

    name: str
    superseded: bool = False  # over for good: whoever supervises its query does not start it again
    rank: int | None = None
    planners: list[tuple[int, str] | None] = field(default_factory=lambda: [None, None])


@dataclass(slots=True)
class Driver:
    """One run of a query in an application."""

    number: int
    finished: int
    application: Application
    life: Life | None = None
    killed: bool = False
    at: str = "new"
    end: str | None = None  # where Spark remembers that the epoch before ended, None in its first one

    @property
    def rank(self) -> int | None:
        return self.application.rank

    @property
    def alive(self) -> bool:
        return self.life is not None


@dataclass(slots=True)
class World:
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    chains: dict[int, list[Entry]] = field(default_factory=dict)
    receipts: dict[int, Receipt] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    drivers: list[Driver] = field(default_factory=list)
    plans: list[tuple[Plan, int]] = field(default_factory=list)
    finished: int = -1  # Spark's newest commits/N
    passed: set[int] = field(default_factory=set)  # noted though no run brought them to an end
    offsets: dict[int, str] = field(default_factory=dict)  # Spark's offsets/N
    unsynced: set[int] = field(default_factory=set)  # the epochs whose offsets a loss of power takes
    durable_to: int = -1  # the newest commits/N that no loss of power takes
    deal: int = 0
    planner: int = 0  # the process that plans next
    under_way: list[Link] = field(default_factory=list)  # puts without an answer, which may still arrive
    trace: list[str] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    # --- what the test does -------------------------------------------------------------------------------

    def start(self, application: Application | None = None) -> Driver:
        """Start a run beside those that live: they may be paused for ever, or only for a while."""
        application = application or Application(f"app{next(self.numbers)}")
        driver = Driver(len(self.drivers), self.finished, application)
        driver.life = self._life(driver)
        self.drivers.append(driver)
        self._say(driver, "starts")
        driver.at = next(driver.life)
        return driver

    def step(self, driver: Driver, fault: str = "") -> None:
        """Let one driver go to its next boundary, then hold the laws against the world."""
        if driver.life is None:
            return
        self._say(driver, f"{driver.at} {fault}".rstrip())
        try:
            driver.at = driver.life.send(fault)
        except StopIteration:
            driver.life = None
        self.check()

    def step_until(self, driver: Driver, *places: str) -> bool:
        """Let one driver go on, at least a step, until it stands at one of these places; say whether it does."""
        for _ in range(STEPS_TO_PLACE_MAX):
            self.step(driver)
            if driver.at.startswith(places):
                return driver.alive
        return False

    def step_wrongly(self, driver: Driver, fault: str) -> None:
        """Let one driver go on to the next step at which this can go wrong, and let it."""
        if driver.at.startswith(FAULTS[fault]) or self.step_until(driver, *FAULTS[fault]):
            self.step(driver, fault)

    def restart(self, application: Application) -> None:
        """Start the query again in an application whose run has failed, with planners that remember it."""
        mine = [driver for driver in self.drivers if driver.application is application]
        if not application.superseded and not any(driver.alive or driver.killed for driver in mine):
            self.start(application)

    def crash(self, driver: Driver) -> None:
        """Kill one driver where it stands."""
        self._say(driver, f"killed at {driver.at}")
        driver.life = None
        driver.killed = True

    def lose_power(self, *, forgotten: int = 0) -> None:
        """Kill everything; what nobody synced is gone, and Spark's newest ``commits/N``, never synced, may be."""
        self.trace.append(f"power lost, {forgotten} commits forgotten")
        for driver in self.drivers:
            driver.life = None
            driver.killed = True
        for epoch, chain in list(self.chains.items()):
            kept = list(itertools.takewhile(lambda entry: entry.synced, chain))
            self.chains[epoch] = kept
        self.finished = max(self.durable_to, self.finished - forgotten)
        self.durable_to = self.finished  # what has outlived one is on the disk
        for epoch in self.unsynced:
            self.offsets.pop(epoch, None)
        self.unsynced.clear()
        self.passed = {epoch for epoch in self.passed if epoch <= self.finished or self.is_skipped(epoch)}
        self.check()

    def pass_by(self) -> None:
        """Let Spark note the next epoch, whatever has become of it: a function returned early or kept an error back."""
        self.finished += 1
        self.passed.add(self.finished)
        # What a skipped epoch read is not held by its link, and not lost here.
        self.offsets.setdefault(self.finished, f"end {next(self.numbers)} of {self.finished}")
        self.unsynced.discard(self.finished)
        self.trace.append(f"chk-{self.finished} is noted by Spark alone")
        self.check()

    def lose_offsets(self) -> None:
        """Take the newest barrier away, as a hand may."""
        if self.offsets and max(self.offsets) not in self.passed:
            self.trace.append(f"offsets/{max(self.offsets)} is lost")
            del self.offsets[max(self.offsets)]

    def expire(self, transaction: Transaction) -> None:
        """Let the sink drop what was open or prepared for too long."""
        if transaction.state in {"open", "prepared"}:
            self.trace.append(f"{transaction.name} expires")
            transaction.state = "expired"
        self.check()

    def prepare_late(self, transaction: Transaction) -> None:
        """Let a task that nobody waits for prepare."""
        if transaction.state == "open":
            self.trace.append(f"{transaction.name} is prepared late")
            transaction.state = "prepared"

    def put_late(self, number: int) -> None:
        """Let a put that was not answered arrive, after its run has ended; where its number is taken, it is refused."""
        if self.under_way:
            link = self.under_way.pop(number % len(self.under_way))
            chain = self.chains.setdefault(link.epoch, [])
            if link.index == len(chain):
                self.trace.append(f"the put of {link.name} arrives late")
                chain.append(Entry(link))

    def begin_late(self, number: int) -> None:
        """Let a task of an older try begin, after everybody has forgotten it."""
        plan, driver = self.plans[number % len(self.plans)]
        if plan.mode is not Mode.DRAIN:
            self._open(plan, driver, "a", ROWS[:1])

    def settle(self, *, epochs: int = 2) -> None:
        """End all faults: with fresh runs everything must come to rest, soon, with nothing left open."""
        for driver in self.drivers:
            driver.life = None
        # Go on to epochs that nobody has begun; but leftovers are gone before, though nothing new may come.
        goal = max(self.finished, *(epoch for epoch, chain in self.chains.items() if chain), -1) + epochs
        for _ in range(8):
            driver = self.start()
            for _ in range(STEPS_MAX):
                if not driver.alive or self.finished >= goal:
                    break
                planned = len(self.plans)
                self.step(driver)
                if len(self.plans) > planned:
                    self._check_leftovers(driver, self.plans[-1][0])
            if self.finished >= goal:
                break
        law(self.finished >= goal, f"the world does not come to rest: chk-{self.finished} of {goal}")
        if self.guarantee is Guarantee.EXACTLY_ONCE:
            for sink, epoch in itertools.product(SINKS, range(self.finished + 1)):
                seen = self.visible(sink, epoch)
                if epoch in self.passed:
                    wanted = Counter[str]() if self.is_skipped(epoch) else Counter(ROWS)
                    law(seen <= wanted, f"sink {sink}, chk-{epoch}, passed by: {dict(seen)} is visible")
                    continue
                law(seen == Counter(ROWS), f"sink {sink}, chk-{epoch}: {dict(seen)} is visible")
        left = [each.name for each in self.transactions.values() if each.state in {"open", "prepared"}]
        law(not left, f"left open at rest: {left}")

    # --- the laws -----------------------------------------------------------------------------------------

    def is_skipped(self, epoch: int) -> bool:
        chain = self.chains.get(epoch, [])
        return bool(chain) and chain[-1].link.kind is LinkKind.SKIPPED

    def visible(self, sink: str, epoch: int) -> Counter[str]:
        return Counter(
            row
            for each in self.transactions.values()
            if (each.sink, each.epoch, each.state) == (sink, epoch, "committed")
            for row in each.rows
        )

    def check(self) -> None:
        """Nothing is visible that the last word on its epoch does not name, and nothing is visible twice."""
        for each in self.transactions.values():
            if each.state != "committed":
                continue
            links = [entry.link for entry in self.chains.get(each.epoch, []) if entry.synced]
            law(
                any(each.name in names(link.votes) for link in links if link.kind is LinkKind.COMMIT),
                f"{each.name} is visible without a durable decision",
            )
            law(
                each.name in names(self.chains[each.epoch][-1].link.output),
                f"{each.name} is visible, but the last link of chk-{each.epoch} does not name it",
            )
        for sink, epoch in itertools.product(SINKS, self.chains):
            twice = [row for row, count in self.visible(sink, epoch).items() if count > 1]
            law(not twice, f"sink {sink}, chk-{epoch}: {twice} is visible twice")

    def _check_leftovers(self, driver: Driver, plan: Plan) -> None:
        """Nothing of older runs is open when tasks start, also if the epoch is only drained."""
        after = self.chains.get(plan.epoch + 1, [])[-1:]
        if plan.mode is Mode.DRAIN and after and after[0].link.kind is not LinkKind.ABORT:
            return  # Spark has forgotten two commits, so it drains the next epoch at once, too
        left = [
            each.name
            for each in self.transactions.values()
            if each.driver != driver.number and each.state in {"open", "prepared"}
        ]
        law(not left, f"left open by older runs when chk-{plan.epoch} was planned to {plan.mode}: {left}")

    def _check_abort(self, driver: Driver, each: Transaction) -> None:
        owner = self.drivers[each.driver]
        law(driver.rank is not None, f"driver {driver.number} aborts {each.name} without a link of its own")
        law(
            owner.rank is not None and driver.rank is not None and owner.rank <= driver.rank,
            f"driver {driver.number} aborts {each.name} of the newer driver {owner.number}",
        )
        last = self.chains.get(each.epoch, [])[-1:]
        decided = (
            bool(last) and last[0].link.kind is LinkKind.COMMIT and each.name in names(last[0].link.votes)
        )
        law(
            not decided or self.guarantee is Guarantee.AT_MOST_ONCE,
            f"{each.name} is aborted, but the last link of chk-{each.epoch} names it",
        )

    def _check_range(self, epoch: int, start: str | None, plan: Plan) -> None:
        """What Spark notes was read from where the epoch before was decided to end, to where it was itself."""
        decided, before = (self._decided(each) for each in (epoch, epoch - 1))
        law(
            decided is None or decided.barrier == plan.barrier,
            f"chk-{epoch} was read to {plan.barrier} and decided to {decided and decided.barrier}",
        )
        law(
            before is None or start is None or before.barrier == (start,),
            f"chk-{epoch} was read from {start}, the epoch before was decided to {before and before.barrier}",
        )

    def _decided(self, epoch: int) -> Link | None:
        chain = self.chains.get(epoch, [])
        return chain[-1].link if chain and chain[-1].link.kind is LinkKind.COMMIT else None

    def _inputs(self, epoch: int) -> Inputs:
        if epoch not in self.offsets:
            return Inputs()
        end = self.offsets[epoch]
        return Inputs(files=(InputFile(name=f"offsets/{epoch}", digest=end, text=f"v1\n{{}}\n{end}"),))

    # --- Spark --------------------------------------------------------------------------------------------

    def _life(self, driver: Driver) -> Life:
        application = driver.application
        while driver.finished < self.finished + EPOCHS_MAX:
            epoch = driver.finished + 1
            yield "plan"
            start = self.offsets.get(epoch - 1) if driver.end is None else driver.end
            if driver.end is not None or epoch not in self.offsets:
                # Its rename writes over what is there.
                self.offsets[epoch] = f"end {next(self.numbers)} of {epoch}"
                self.unsynced.add(epoch)
            which = self.planner % len(application.planners)
            last, application.planners[which] = application.planners[which], None
            continues = last[1] if last is not None and last[0] == epoch - 1 else None
            context = p.Context(
                epoch=epoch,
                plan=f"{application.name}.p{next(self.numbers)}",
                application=application.name,
                run=f"run{driver.number}",
                guarantee=self.guarantee,
                continues=continues,
                barrier=(self.offsets[epoch],),
                settings={sink: {} for sink in SINKS},
                limit_s=LIMIT_S,
            )
            plan = yield from self._drive(driver, *p.begin(context))
            if plan is None:
                return
            application.planners[which] = (epoch, plan.id)
            self.plans.append((plan, driver.number))
            votes, failed = yield from self._tasks(driver, plan)
            if not failed:
                state, commands = p.step(p.resume(plan), p.VotesCollected(votes))
                failed = (yield from self._drive(driver, state, commands, plan=plan)) is None
            if failed:
                # Spark does so after a failed task and after a failed commit alike.
                yield "abort"
                given_up = p.abandon(plan, run=f"run{driver.number}", votes=votes, reason="failed")
                yield from self._drive(driver, *given_up)
                return
            yield "commits/N"
            self._check_range(epoch, start, plan)
            driver.end = plan.barrier[0]
            self.finished = max(self.finished, epoch)
            driver.finished = epoch

    def _tasks(self, driver: Driver, plan: Plan) -> Generator[str, str, tuple[tuple[Vote, ...], bool]]:
        votes: list[Vote] = []
        for sink in SINKS:
            for slot, rows in enumerate(self._dealt(plan, sink)):
                fault = yield f"task {sink}/{slot}"
                if fault == "fail":
                    return tuple(votes), True
                handle = None
                if rows and plan.mode is not Mode.DRAIN:
                    each = self._open(plan, driver.number, sink, rows)
                    if fault == "late":
                        # The attempt hangs; another one takes its place, and the first may prepare much later.
                        each = self._open(plan, driver.number, sink, rows)
                    if fault == "twin":
                        self._open(plan, driver.number, sink, rows).state = "prepared"
                    yield f"prepare {each.name}"
                    if each.state != "open":
                        return tuple(votes), True
                    each.state = "prepared"
                    handle = Handle(transaction=each.name)
                votes.append(vote_of(plan, driver.number, sink, slot, rows, handle))
        yield "votes"
        return tuple(votes), False

    def _dealt(self, plan: Plan, sink: str) -> tuple[tuple[str, ...], ...]:
        """Deal the rows to slots; at rest as they were, else a decided slot might never find its like."""
        decided = plan.decided.output if plan.decided is not None else ()
        groups = [
            self.transactions[vote.handle.transaction].rows
            for vote in decided
            if vote.handle is not None and vote.sink == sink
        ]
        if self.deal < 3 and groups:
            return tuple(groups[self.deal % len(groups) :] + groups[: self.deal % len(groups)])
        return DEALS[self.deal]

    def _open(self, plan: Plan, driver: int, sink: str, rows: tuple[str, ...]) -> Transaction:
        law(
            self.drivers[driver].rank is not None,
            f"driver {driver} opens a transaction without a link of its own",
        )
        each = Transaction(f"t{next(self.numbers)}", sink, plan.epoch, plan.id, driver, rows)
        self.transactions[each.name] = each
        return each

    def _is_before_the_log(self, driver: Driver) -> bool:
        """Say whether a run is at an epoch that Spark has long noted, before the first one that the log knows."""
        epoch = driver.finished + 1
        begun = [known for known, chain in self.chains.items() if chain]
        return epoch <= self.finished and bool(begun) and epoch < min(begun)

    # --- the loop that carries commands out ---------------------------------------------------------------

    def _drive(
        self, driver: Driver, state: p.State, commands: Sequence[p.Command], *, plan: Plan | None = None
    ) -> Generator[str, str, Plan | None]:
        """Yield the plan, the one to start tasks by or the one that came in; None where the run must stop."""
        queue = deque(commands)
        while queue:
            command = queue.popleft()
            if isinstance(command, p.Stop):
                law(
                    command.reason in STOPS
                    or (command.reason is p.StopReason.GAP and self._is_before_the_log(driver)),
                    f"driver {driver.number} stops: {command}",
                )
                self._say(driver, f"stops: {command.reason}")
                if command.reason is p.StopReason.SUPERSEDED:
                    driver.application.superseded = True
                return None
            if isinstance(command, p.Report) and command.kind is p.ReportKind.EPOCH_SKIPPED:
                continue
            if isinstance(command, p.StartTasks):
                plan = command.plan
                continue
            try:
                event = yield from self._carry_out(driver, command)
            except NoAnswerError:
                self._say(driver, "ends: no answer to a put")
                return None
            if event is not None:
                state, more = p.step(state, event)
                law(
                    isinstance(event, p.LinkPersisted)
                    or not any(isinstance(each, p.CommitHandle) for each in more),
                    f"{type(event).__name__} led to a commit",
                )
                queue.extend(more)
        return plan

    def _carry_out(  # noqa: C901, PLR0911, PLR0912  one line or two for each command
        self, driver: Driver, command: p.Command
    ) -> Generator[str, str, p.Event | None]:
        match command:
            case p.ReadChain(epoch, owners):
                yield "read"
                return self._read(epoch, owners=owners)
            case p.RestoreInputs(links, discard, claim):
                yield "restore"
                wrong = None if discard is None else int(discard.name.rpartition("/")[2])
                is_mine = (
                    wrong is not None and claim is not None and self.chains[wrong][-1].link.plan == claim.plan
                )
                if (
                    is_mine
                    and discard is not None
                    and wrong is not None
                    and self.offsets.get(wrong) == discard.digest
                ):
                    law(self._decided(wrong) is None, f"offsets/{wrong} is decided, and taken away")
                    self.offsets.pop(wrong)
                    yield "restore"
                for link in links:
                    law(link.inputs is not None, f"{link.name} does not hold what its epoch read")
                    self.offsets[link.epoch] = link.barrier[0]
                    self.unsynced.discard(link.epoch)
                return p.InputsRestored(tuple(link.name for link in links))
            case p.CheckPrepared(_, link):
                # A check that sees nothing is no promise: what is voted may expire unseen, before it or after.
                fault = yield f"check of {link.name}"
                late = tuple(sorted(names(link.votes))) if fault == "expiring" else ()
                self.unsynced.discard(link.epoch)
                age_s = 2 * LIMIT_S if fault == "slow" else 0.0
                return p.Checked(age_s, late, inputs=self._inputs(link.epoch))
            case p.PutLink(link):
                return (yield from self._put(driver, link))
            case p.SyncLink(link):
                yield "sync"
                self._sync(link)
                return p.LinkPersisted(link)
            case p.CommitHandle(vote, link, _):
                fault = yield f"commit {vote.handle.transaction if vote.handle else '-'}"
                durable = [entry.link for entry in self.chains.get(link.epoch, []) if entry.synced]
                law(link in durable, f"a commit was sent before {link.name} was durable")
                law(vote in link.votes, f"a commit was sent that {link.name} does not name")
                return p.Resolved(vote, self._commit(vote, fault))
            case p.AbortHandle(vote):
                yield "abort handle"
                if vote.handle is not None:
                    self._abort(driver, self.transactions[vote.handle.transaction])
                return None
            case p.PutReceipt(receipt, _):
                yield "receipt"
                self._put_receipt(receipt)
                return p.ReceiptPersisted()
            case p.Sweep(link, keep):
                return (yield from self._sweep(driver, link, keep))
            case _:
                raise BrokenLawError(f"unexpected: {command}")

    def _read(self, epoch: int, *, owners: bool) -> p.ChainRead:
        before = self.chains.get(epoch - 1, [])
        links = tuple(entry.link for entry in self.chains.get(epoch, []))
        newest = max((number for number, chain in self.chains.items() if chain), default=None)
        earlier = newest is not None and newest < epoch
        last = self.chains[newest][-1].link if newest is not None and earlier else None
        last_receipt = self.receipts.get(newest) if newest is not None and earlier else None
        lies_open = None if links else p.open_epoch(epoch, newest, last, last_receipt)
        noted = lies_open is not None and lies_open <= self.finished
        return p.ChainRead(
            links=links,
            receipt=self.receipts.get(epoch),
            previous=before[-1].link if before else None,
            previous_receipt=self.receipts.get(epoch - 1),
            newest=newest,
            last=last,
            last_receipt=last_receipt,
            passed=Passed(
                epoch=lies_open,
                barrier=(self.offsets[lies_open],) if lies_open in self.offsets else (),
                taken=True,
                inputs=self._inputs(lies_open) if lies_open in self.offsets else None,
            )
            if lies_open is not None and noted
            else None,
            owners=self._owners() if owners else (),
            inputs=self._inputs(epoch),
            inputs_before=self._inputs(epoch - 1) if before else None,
        )

    def _owners(self) -> tuple[str, ...]:
        links = [entry.link for _, chain in sorted(self.chains.items()) for entry in chain]
        return tuple(name for name, _ in itertools.groupby(link.application for link in links))

    def _put(self, driver: Driver, link: Link) -> Generator[str, str, p.Event]:
        fault = yield f"put {link.name} {link.kind}"
        if link.kind is LinkKind.SKIPPED:
            # What Spark noted of it is made durable before.
            self.durable_to = max(self.durable_to, link.epoch)
            self.unsynced -= set(range(link.epoch + 1))
        if fault == "doubt":
            self.under_way.append(link)
            raise NoAnswerError
        chain = self.chains.setdefault(link.epoch, [])
        law(link.index <= len(chain), f"{link.name} would leave a gap")
        if link.kind is LinkKind.SKIPPED:
            law(link.epoch in self.passed, f"{link.name} skips what Spark noted in the end of a run")
            law(
                not chain or chain[-1].link.kind is not LinkKind.COMMIT or link.index < len(chain),
                "skips a decision",
            )
        if link.index < len(chain):
            return p.LinkTaken(chain[link.index].link)
        chain.append(Entry(link))
        yield f"sync of the put of {link.name}"
        self._sync(link)
        if (yield f"answer to the put of {link.name}") == "doubt":
            raise NoAnswerError
        if link.kind is not LinkKind.SKIPPED and (driver.rank is None or link.reason):
            driver.application.rank = next(self.numbers)
        return p.LinkPersisted(link)

    def _sync(self, link: Link) -> None:
        # The folder is synced, and with it every name in it.
        for entry in self.chains[link.epoch][: link.index + 1]:
            entry.synced = True

    def _put_receipt(self, receipt: Receipt) -> None:
        link = self.chains[receipt.epoch][receipt.index].link
        if self.guarantee is Guarantee.EXACTLY_ONCE and not (
            receipt.epoch in self.passed and "lost" in receipt.outcomes
        ):
            law(
                all(self.transactions[name].state == "committed" for name in names(link.output)),
                f"a receipt for {link.name}, but not all of it is committed",
            )
        standing = self.receipts.setdefault(receipt.epoch, receipt)
        law(standing.index == receipt.index, f"two receipts for chk-{receipt.epoch}")

    def _commit(self, vote: Vote, fault: str) -> Outcome:
        assert vote.handle is not None
        each = self.transactions[vote.handle.transaction]
        if fault == "retry":
            return RetryLater("busy")
        if fault == "unknown":
            return Unknown("no answer")
        law(each.state != "open", f"{each.name} was voted, but not prepared")
        if each.state in {"aborted", "expired"}:
            return Lost("the marker still shows its predecessor")
        already = each.state == "committed"
        each.state = "committed"
        if fault == "acted":
            return Unknown("no answer, but it was done")
        return AlreadyCommitted() if already else Committed()

    def _abort(self, driver: Driver, each: Transaction) -> None:
        if each.state in {"open", "prepared"}:
            self._check_abort(driver, each)
            self._say(driver, f"aborts {each.name}")
            each.state = "aborted"

    def _sweep(self, driver: Driver, link: Link, keep: frozenset[str]) -> Generator[str, str, p.Event]:
        stands = [entry.link for entry in self.chains.get(link.epoch, []) if entry.synced]
        law(link in stands, f"a sweep was begun before {link.name} was durable")
        if (yield f"list for the sweep under {link.name}") == "fail":
            return p.SweepFailed("the sink does not answer")
        found = [
            each
            for each in self.transactions.values()
            if each.state in {"open", "prepared"} and each.name not in keep
        ]
        yield "look before the sweep"
        chain = self.chains[link.epoch]
        if chain[-1].link != link or self.chains.get(link.epoch + 1):
            return p.LinkTaken(chain[-1].link)
        for each in found:
            yield f"fence {each.name}"
            self._abort(driver, each)
        return p.Swept(len(found))

    def _say(self, driver: Driver, what: str) -> None:
        self.trace.append(f"driver {driver.number}: {what}")


def names(votes: Sequence[Vote]) -> frozenset[str]:
    """Name the transactions that these votes hold."""
    return frozenset(vote.handle.transaction for vote in votes if vote.handle is not None)


def checksum(rows: Sequence[str]) -> str:
    """Return the sum of the rows' hashes, as the runtime does."""
    total = sum(int.from_bytes(hashlib.blake2b(row.encode(), digest_size=8).digest()) for row in rows)
    return f"{total % 2**64:016x}"


def vote_of(
    plan: Plan, driver: int, sink: str, slot: int, rows: tuple[str, ...], handle: Handle | None
) -> Vote:
    """Return the vote of one attempt."""
    return Vote(
        sink=sink,
        epoch=plan.epoch,
        slot=slot,
        plan=plan.id,
        run=f"run{driver}",
        attempt="0",
        rows=len(rows),
        checksum=checksum(rows),
        handle=handle,
    )
