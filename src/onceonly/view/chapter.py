"""One epoch of a view: its marks in the log's order, what took time, its phases. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceonly.log import files
from onceonly.log.identity import FOLDER
from onceonly.model import Guarantee, LinkKind, seconds_of
from onceonly.operations.disk import BARRIER, NOTED, put, size
from onceonly.operations.states import OWED, SETTLED, WITH_REASON, EpochState, HandleState, meaning
from onceonly.view.clock import TOLERANCE_S
from onceonly.view.telling import by, moment, outcomes, took
from onceonly.view.values import (
    COMMIT,
    DECIDE,
    DRIVER,
    EXECUTORS,
    WRITE,
    Bar,
    Epoch,
    Mark,
    Phase,
    What,
    Work,
    lane_of,
)
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.model import Link, Stamp, Vote
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
    from onceonly.operations.states import EpochView, HandleView
    from onceonly.view.clock import Clock, Placed

_ENDS: Final = {
    LinkKind.COMMIT: What.DECISION,
    LinkKind.ABORT: What.ABORT,
    LinkKind.SKIPPED: What.SKIPPED,
}
UNTOLD: Final = "which of its transactions was slow, the log does not tell"
_BECAME: Final = {
    HandleState.COMMITTED: (What.COMMITTED, "committed, some time between its decision and the receipt"),
    HandleState.PENDING: (What.DOUBT, "decided, and not known to be committed"),
    HandleState.LOST: (What.LOST, "lost: proven not committed, and fenced"),
    HandleState.TRIED: (What.TRIED, "tried once; whether its rows are visible, the target alone says"),
}


class Chapter:
    """Tells one epoch; made and used once, in the log's order, as the places of its steps go on from each other."""

    def __init__(self, found: EpochModel, model: CheckpointModel, clock: Clock) -> None:
        self._found = found
        self._run_is_alive = model.run.alive
        self._clock = clock
        self._marks: list[Mark] = []
        self._bars: list[Bar] = []
        self._phases: tuple[Phase, ...] = ()
        self._slow = ""
        (self._fold if found.view.folded else self._tell)()

    @property
    def epoch(self) -> Epoch:
        """What is drawn of it."""
        found, view = self._found, self._found.view
        return Epoch(
            number=view.epoch, state=view.state, words=words(view), once=once(found), folded=view.folded,
            at=self._at(),
            marks=tuple(self._marks), bars=tuple(self._bars), phases=self._phases, slow=self._slow,
            sinks=view.sinks, outcomes=view.outcomes, refused=view.dead_letters, aborts=view.aborts,
            pending=view.pending, behind=found.behind, behind_s=found.behind_s,
            ranges=found.sources, parts=found.parts, note=found.note,
        )  # fmt: skip

    def _at(self) -> float | None:
        """Return when it was last heard of: by its log, and where that has no time, by whatever has one."""
        if self._found.at is not None:
            return self._found.at
        return next((mark.at for mark in reversed(self._marks) if mark.at is not None), None)

    # --- a folded one -----------------------------------------------------------------------------------------

    def _fold(self) -> None:
        view, at = self._found.view, self._found.at
        told = f"{view.name}, {words(view)}: folded into one line of history"
        if at is None:
            placed = self._clock.next(None, "")
            self._marks.append(Mark(what=What.FOLDED, lane=DRIVER, told=told, place=placed.place))
        else:
            begin = self._clock.next(at - (view.planned_s or 0.0), "")
            placed = self._clock.next(at, "")
            end = self._clock.next(at + (view.settled_s or 0.0), "")
            self._marks.append(
                Mark(
                    what=What.FOLDED, lane=DRIVER, told=told, place=placed.place, at=at, skewed=placed.skewed
                )
            )
            assert begin.place is not None  # noqa: S101  it has a clock
            self._bars.append(Bar(work=Work.FOLDED, lane=DRIVER, told=told, begin=begin.place, end=end.place))
        self._phases = (
            Phase(name=f"{WRITE} and {DECIDE}", seconds=view.planned_s),
            Phase(name=COMMIT, seconds=view.settled_s if view.settled_s is not None else view.seconds),
        )

    # --- one with its details ---------------------------------------------------------------------------------

    def _tell(self) -> None:
        found, view = self._found, self._found.view
        at = self._step(BARRIER)
        if at is None and not found.chain:
            at = found.at
        if at is not None or not found.chain:
            told = f"barrier of {view.name}: Spark wrote its end offsets ahead"
            self._beside(
                What.BARRIER, at, told=told, file=f"offsets/{view.epoch}", checksum=self._sum_of_barrier()
            )
        for number, link in enumerate(found.chain):
            self._link(link, is_last=number + 1 == len(found.chain))
        self._receipt()
        noted = self._step(NOTED)
        if noted is not None:
            told = f"Spark noted {view.name} as done"
            self._beside(What.NOTED, noted, told=told, file=f"commits/{view.epoch}")

    def _link(self, link: Link, *, is_last: bool) -> None:
        """Tell one link: its plan, the votes that came by it, itself, and what became of its transactions."""
        record = f"link {link.name}"
        begin = None
        if link.planned is not None:
            begin = self._spine(What.PLAN, link.planned, told=f"plan of {record} handed out", record=record)
        before = self._clock.floor
        stamp, at = link.stamp, self._when(link)
        placed = self._clock.next(at, stamp.host if stamp else "")
        for vote in link.votes:
            own = vote.stamp
            own_at = seconds_of(own) or None
            host = own.host if own else ""
            where = self._clock.between(own_at, host, begin.place if begin else before, placed.place)
            self._marks.append(
                Mark(
                    what=What.VOTE, lane=EXECUTORS, place=where.place, at=own_at, skewed=where.skewed,
                    told=f"slot {vote.slot} of {vote.sink} voted to commit: {_amount(vote)}", by=by(own),
                    record=record, file=self._file(link), sink=vote.sink, slot=vote.slot, rows=vote.rows,
                    checksum=vote.checksum, transaction=vote.handle.transaction if vote.handle else "",
                    plan=vote.plan, size=vote.bytes or None,
                )
            )  # fmt: skip
            if begin is not None and begin.place is not None and where.place is not None:
                told = f"slot {vote.slot} of {vote.sink} wrote and prepared {_amount(vote)}"
                self._bars.append(
                    Bar(
                        work=Work.WRITING, lane=EXECUTORS, told=told, begin=begin.place, end=where.place,
                        sink=vote.sink, slot=vote.slot,
                    )
                )  # fmt: skip
        why = meaning(link.reason) or f"every slot voted: {n(len(link.pending), 'transaction')}"
        self._marks.append(
            Mark(
                what=_ENDS[link.kind], lane=DRIVER, told=f"{record}, {link.kind.value}: {why}", place=placed.place,
                at=at, skewed=placed.skewed, by=by(stamp), record=record, file=self._file(link), plan=link.plan,
                checksum=self._sum(files.link(link.epoch, link.index)),
            )
        )  # fmt: skip
        if is_last:
            self._phases, self._slow = _phases(link, self._found, self._finished_by(link))

    def _receipt(self) -> None:
        """Tell the receipt, and what became of each transaction before it."""
        found, receipt = self._found, self._found.receipt
        decided = {mark.record: mark.place for mark in self._marks if mark.what is What.DECISION}
        placed: Placed | None = None
        if receipt is not None:
            host = receipt.stamp.host if receipt.stamp else ""
            placed = self._clock.next(seconds_of(receipt.stamp) or None, host)
        for handle in found.handles:
            self._marks.append(self._became(handle, placed.place if placed else None))
        self._commits(decided, placed)
        if receipt is not None and placed is not None:
            said = outcomes(receipt.outcomes) or "nothing was to be committed"
            self._marks.append(
                Mark(
                    what=What.RECEIPT, lane=DRIVER, told=f"receipt: {said}", place=placed.place,
                    at=seconds_of(receipt.stamp) or None, skewed=placed.skewed, by=by(receipt.stamp),
                    record=f"receipt of link {receipt.epoch}.{receipt.index}",
                    file=f"{FOLDER}/{files.receipt(receipt.epoch)}",
                    checksum=self._sum(files.receipt(receipt.epoch)),
                )
            )  # fmt: skip

    def _became(self, handle: HandleView, receipt: float | None) -> Mark:
        what, said = _BECAME[handle.state]
        if handle.state is HandleState.COMMITTED and self._found.receipt is None:
            said = (
                "committed, as an operator's command has found"
                if handle.transaction in self._found.by_hand
                else "committed, as the link says that was put after its own"
            )
        vote = handle.vote
        # Nobody notes when one transaction was committed; by the receipt all are.
        return Mark(
            what=what, lane=lane_of(vote.sink), told=f"{handle.transaction}: {said}",
            place=receipt if handle.state is HandleState.COMMITTED else None,
            record=f"link {handle.link.name}", file=self._file(handle.link), sink=vote.sink, slot=vote.slot,
            rows=vote.rows, checksum=vote.checksum, transaction=handle.transaction,
        )  # fmt: skip

    def _commits(self, decided: dict[str, float | None], placed: Placed | None) -> None:
        """Draw a bar for each sink from a decision to the receipt, or on where there is none."""
        handles, receipt = self._found.handles, self._found.receipt
        for sink in dict.fromkeys(handle.vote.sink for handle in handles):
            own = [handle for handle in handles if handle.vote.sink == sink]
            begin = decided.get(f"link {own[-1].link.name}")
            doubt = sum(handle.state is HandleState.PENDING for handle in own)
            if begin is None:
                continue
            if doubt:
                told = f"{n(doubt, 'transaction')} of {sink} in doubt since {moment(begin)}"
                self._bars.append(Bar(work=Work.DOUBT, lane=lane_of(sink), told=told, begin=begin, sink=sink))
            elif placed is not None and placed.place is not None:
                told = f"{n(len(own), 'transaction')} of {sink} committed"
                # Without both clocks, the places are those of the steps before.
                timed = self._when(own[-1].link) and receipt is not None and seconds_of(receipt.stamp)
                told += (
                    f" within {took(placed.place - begin)}" if timed else "; how long it took is not known"
                )
                work, later = Work.COMMITTING, self._finished_by(own[-1].link)
                if later:
                    work, told = Work.DOUBT, f"{told}: in doubt until {later} finished it"
                self._bars.append(
                    Bar(work=work, lane=lane_of(sink), told=told, begin=begin, end=placed.place, sink=sink)
                )

    def _finished_by(self, decision: Link) -> str:
        """Name the process that finished what another one had decided; empty where it was the same, or is not known."""
        receipt = self._found.receipt
        decided, settled = by(decision.stamp), by(receipt.stamp if receipt is not None else None)
        return settled if decided and settled != decided else ""

    # --- helpers ----------------------------------------------------------------------------------------------

    def _spine(self, what: What, stamp: Stamp, *, told: str, record: str) -> Placed:
        at = seconds_of(stamp) or None
        placed = self._clock.next(at, stamp.host)
        self._marks.append(
            Mark(
                what=what, lane=DRIVER, told=told, place=placed.place, at=at, skewed=placed.skewed, by=by(stamp),
                record=record,
            )
        )  # fmt: skip
        return placed

    def _beside(self, what: What, at: float | None, *, told: str, file: str, checksum: str = "") -> None:
        """Add a mark of a file of Spark's: its time is the file system's, and moves nothing."""
        placed = self._clock.between(at, "", self._clock.floor, None)
        self._marks.append(
            Mark(
                what=what,
                lane=DRIVER,
                told=told,
                place=placed.place,
                at=at,
                skewed=placed.skewed,
                file=file,
                checksum=checksum,
            )
        )

    def _when(self, link: Link) -> float | None:
        """Return when a link was put: by its stamp, or by its file where an older onceonly did not stamp it."""
        return seconds_of(link.stamp) or self._step(put(link))

    def _step(self, what: str) -> float | None:
        return next((step.at for step in self._found.steps if step.what == what), None)

    def _sum(self, name: str) -> str:
        """Return the checksum of a file of the log; empty where the epoch was not read in full."""
        return self._found.checksums.get(name, "")

    def _sum_of_barrier(self) -> str:
        """Return the checksum of the barrier's file as the newest link that has it noted it."""
        inputs = [link.inputs for link in reversed(self._found.chain) if link.inputs is not None]
        name = f"offsets/{self._found.view.epoch}"
        return next((each.digest for found in inputs for each in found.files if each.name == name), "")

    def _file(self, link: Link) -> str:
        return f"{FOLDER}/{files.link(link.epoch, link.index)}"


def words(view: EpochView) -> str:
    """Say the state of an epoch."""
    if view.state is EpochState.DECIDED:
        pending = n(view.pending, "transaction")
        return f"decided, {pending} in doubt" if view.pending else "decided, no receipt yet"
    why = meaning(view.reason) if view.state in WITH_REASON else ""
    return f"{view.state.value}: {why}" if why else view.state.value


def once(found: EpochModel) -> str:
    """Say how often the rows of an epoch were written, without a full stop; empty where nothing is decided."""
    view = found.view
    rows, count = (sum(each) for each in zip(*view.sinks.values(), strict=True)) if view.sinks else (0, 0)
    if not rows or view.state not in SETTLED | OWED:
        return ""
    last = found.chain[-1] if found.chain else None
    under = f"its {n(rows, 'row')} are in {n(count, 'transaction')} under one decision"
    under += f", link {last.name}" if last is not None else ""
    if view.state in OWED:
        return f"not written twice: {under}, and not all of them are known to be committed"
    if last is not None and last.guarantee is not Guarantee.EXACTLY_ONCE:
        return f"{last.guarantee}: {under}" + (
            "; a try before may have left rows, too" if view.aborts else ""
        )
    void = "; whatever tries before it had prepared is void" if view.aborts else ""
    return f"written once: {under}, and committed{void}"


def _phases(link: Link, found: EpochModel, finished_by: str) -> tuple[tuple[Phase, ...], str]:
    """Return the phases of the try that was decided, and what took longest of them.

    ``finished_by`` names the process that finished it, where that is not the one that decided it.
    """
    planned, decided = seconds_of(link.planned), seconds_of(link.stamp)
    settled = seconds_of(found.receipt.stamp if found.receipt else None)
    votes = {(vote.sink, vote.slot): seconds_of(vote.stamp) for vote in link.votes}
    last = max(votes.values(), default=0.0)
    if any(at and not _fits(planned, at, decided) for at in votes.values()):
        last = 0.0  # one clock is wrong, so that nobody knows which vote was the last, and when
    contradicted = bool(votes) and not last and any(votes.values())
    commit = _between(decided, settled)
    if commit is None and found.receipt is not None and not settled:
        commit = found.receipt.seconds
    spans = {WRITE: _between(planned, last), DECIDE: _between(last, decided), COMMIT: commit}
    phases = tuple(Phase(name=name, seconds=span) for name, span in spans.items())
    known = {name: span for name, span in spans.items() if span is not None}
    if link.kind is not LinkKind.COMMIT or not known or contradicted:
        return phases, ""
    longest = max(known, key=lambda name: known[name])
    slow = f"{longest} took longest: {took(known[longest])}"
    if longest == WRITE and len(votes) > 1:
        sink, slot = max(votes, key=lambda key: votes[key])
        others = sorted(at for at in votes.values() if at)
        lead = f", {took(last - others[-2])} after the one before" if len(others) > 1 else ""
        slow += f"; slot {slot} of {sink} voted last{lead}"
    if longest == COMMIT and finished_by:
        slow += f"; it was in doubt until {finished_by} finished it"
    elif longest == COMMIT and link.pending:
        slow += f"; {_committed_last(link.pending)}"
    return phases, slow


def _committed_last(votes: Sequence[Vote]) -> str:
    """Say which slot's transaction was committed last, as far as the log tells: a receipt is of all of them."""
    if len(votes) == 1:
        return f"its one transaction is that of slot {votes[0].slot} of {votes[0].sink}"
    return UNTOLD


def _between(before: float, after: float) -> float | None:
    """Return the seconds between two moments; None where one is not known, or clocks contradict the order."""
    return after - before if before and after and after >= before else None


def _fits(planned: float, voted: float, decided: float) -> bool:
    """Say whether a vote was between its plan and its decision by their clocks, as far as these are known."""
    return planned - TOLERANCE_S <= voted and (not decided or voted <= decided + TOLERANCE_S)


def _amount(vote: Vote) -> str:
    return n(vote.rows, "row") + (f", {size(vote.bytes)}" if vote.bytes else "")
