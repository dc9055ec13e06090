"""``transactions explain``: one transaction in words: what it is, what was decided, what comes next, what to type.

``of_decided`` and ``of_undecided`` are pure: they draw from the model of the checkpoint, and from what a target has
said. What neither knows is ``unknown``, and is said so.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.executor import diverted
from onceonly.log import files, left
from onceonly.log.actions import ActionFiles
from onceonly.model import Guarantee, LinkKind, seconds_of
from onceonly.operations import disk, look, sinks
from onceonly.operations.elsewhere import Elsewhere
from onceonly.operations.states import HandleState, meaning
from onceonly.ports.standing import Stands
from onceonly.words import n

if TYPE_CHECKING:
    from onceonly.model import Vote
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given
    from onceonly.operations.states import HandleView
    from onceonly.ports import Leftover
    from onceonly.ports.standing import Standing

UNKNOWN = "unknown"
NOTHING = "nothing"
_RANGES_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A transaction in words, a sentence or a few for each question; ``epoch`` is None where nothing tells it.

    ``standing`` is the target's answer in one word, ``command`` what to type, empty where there is nothing to type.
    """

    transaction: str
    sink: str
    epoch: int | None
    standing: str
    what: str
    rows: str
    decided: str
    target: str
    blocks: str
    until: str
    others: tuple[str, ...]
    next_start: str
    command: str
    opposite: str

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Heading and text of each part, in the order of reading."""
        return (
            ("is", self.what),
            ("rows", self.rows),
            ("decided", self.decided),
            ("target", f"{self.standing}: {self.target}"),
            ("blocks", self.blocks),
            ("lives", self.until),
            ("beside it", "\n".join(self.others) or "nothing"),
            ("next start", self.next_start),
            ("type", self.command or "nothing"),
            ("opposite", self.opposite),
        )


def explain(checkpoint: Checkpoint, name: str, given: Given, *, within_s: float = 30.0) -> Explanation | None:
    """Explain a transaction of a checkpoint, by its name or the beginning of it; None where it is not of this one.

    Of a name that several epochs have used, one after the other, the newest transaction is explained.
    Any process, beside a run too. Asks its target; only looks. Raises ``ConfigurationError`` for a name that is not one
    transaction's, ``LogError`` and ``UnavailableError`` for a log that cannot be read.
    """
    model = look.unsettled(checkpoint, everything=True)
    candidates = [
        (epoch, handle) for epoch, handle in model.transactions if handle.transaction.startswith(name)
    ]
    names = dict.fromkeys(handle.transaction for _, handle in candidates)
    if len(names) > 1 and name not in names:
        raise ConfigurationError(
            f"{name!r} stands for {n(len(names), 'transaction')}: {', '.join(list(names)[:3])}",
            next_step="give more of its name; onceonly transactions list --all has the names in full",
        )
    # Kafka's names are used again, by later epochs: the newest is meant, and comes first.
    chosen = next((each for each in candidates if each[1].transaction == name), (*candidates, None)[0])
    if chosen is not None and not sinks.is_open_again(checkpoint, given, chosen[1]):
        epoch, handle = chosen
        whole = look.epoch(checkpoint, epoch.view.epoch, sizes=False)
        assert handle.vote.handle is not None  # noqa: S101  only votes with one have a view
        told = sinks.look_up(checkpoint, given, [(handle.vote.sink, handle.vote.handle)], within_s=within_s)
        return of_decided(whole, handle, told[handle.vote.sink, handle.transaction])
    outside = [
        (sink, item)
        for sink, item in sinks.open_outside(checkpoint, given)
        if (item.transaction == chosen[1].transaction if chosen else item.transaction.startswith(name))
    ]
    if not outside:
        return None
    [(sink, item), *more] = outside
    if more:
        raise ConfigurationError(
            f"{name!r} stands for {n(len(outside), 'transaction')}", next_step="give more of its name"
        )
    told = sinks.look_up(checkpoint, given, [(sink, item.handle)], within_s=within_s)
    command = "" if model.run.alive else look.abort_by_hand(checkpoint, item.transaction)
    return of_undecided(model, sink, item, told[sink, item.transaction], command)


def aborted_by_hand(checkpoint: Checkpoint, name: str) -> list[str]:
    """Say of each transaction of this name, or that begins with it, who has aborted it. Any process; reads only."""
    told = {
        each: f"transaction {each} is aborted: {action.sentence}; nothing is to be done"
        for action in reversed(ActionFiles(checkpoint.store).newest())
        for each in action.aborted
        if action.after and each.startswith(name)
    }
    return list(told.values())


def of_decided(model: CheckpointModel, handle: HandleView, standing: Standing) -> Explanation:
    """Explain a transaction that a link names; ``model`` has its epoch in full. Pure."""
    epoch, vote = model.epoch, handle.vote
    use = handle.link.uses.get(vote.sink)
    at = f" at {vote.stamp.at}, by process {vote.stamp.pid} on {vote.stamp.host}" if vote.stamp else ""
    next_start, command, opposite = _outlook(model, handle, standing)
    if model.is_moved and not model.is_left:
        next_start = f"there is none before the move from {model.home} is accepted; then: {next_start}"
        command = command and f"onceonly checkpoints accept-move {shlex.quote(model.path)}"
    return Explanation(
        transaction=handle.transaction,
        sink=vote.sink,
        epoch=epoch.view.epoch,
        standing=standing.stands.value,
        what=f"{_prepared(vote, epoch.view.name)} for the sink {vote.sink}"
        f"{f' ({use.sink}, {use.guarantee.value})' if use is not None else ''}, in run {vote.run or UNKNOWN}{at}",
        rows=f"{vote.rows} of the {n(_rows(epoch), 'row')} of {epoch.view.name}, {_ranges(epoch)}",
        decided=_decided(model, handle),
        target=f"{standing.told}; but {standing.hindered}" if standing.hindered else standing.told,
        blocks=standing.blocks or UNKNOWN,
        until=standing.until or UNKNOWN,
        others=tuple(
            f"{other.vote.sink}, slot {other.vote.slot}: {other.state.value} ({n(other.vote.rows, 'row')}, "
            f"{other.transaction})"
            for other in epoch.handles
            if (other.vote.sink, other.transaction) != (vote.sink, handle.transaction)
        ),
        next_start=next_start,
        command=command,
        opposite=opposite,
    )


def _prepared(vote: Vote, epoch: str) -> str:
    of = diverted.of_slot(vote)
    if of is None:
        return f"what slot {vote.slot} of {epoch} has prepared"
    return (
        f"dead letters of rows of slot {of} of {epoch}, which the target refused beside all others, prepared"
    )


def of_undecided(
    model: CheckpointModel, sink: str, item: Leftover, standing: Standing, command: str
) -> Explanation:
    """Explain a transaction that a target has open and no link names. Pure."""
    epoch = UNKNOWN if item.epoch is None else f"chk-{item.epoch}"
    # What names no epoch is of the newest: older ones are settled before a run goes on.
    return Explanation(
        transaction=item.transaction,
        sink=sink,
        epoch=item.epoch,
        standing=standing.stands.value,
        what=f"what an attempt has begun for the sink {sink}; its epoch is {epoch}",
        rows=f"{UNKNOWN}: the log holds the votes of decided epochs only",
        decided=f"nothing: no link in {model.address}/onceonly names it",
        target=standing.told,
        blocks=standing.blocks or UNKNOWN,
        until=standing.until or UNKNOWN,
        others=(),
        next_start=(left.ends_open(model.home) if model.is_left else _alive(model))
        or "it fences and aborts this transaction under a link of its own, and Spark runs the epoch again: its rows "
        "come from the source once more, and are written once",
        command=command,
        opposite="to commit it: nobody should, and no command here does. Its rows will be written again, and would be "
        "there twice",
    )


def _outlook(model: CheckpointModel, handle: HandleView, standing: Standing) -> tuple[str, str, str]:
    """Say what the next start does, what to type, and what the opposite would do."""
    epoch, rows = model.epoch.view.name, handle.vote.rows
    undone = "to take it back: no command here does. Its rows are visible"
    if handle.state is HandleState.COMMITTED:
        return f"{NOTHING}: {epoch} is settled as far as this transaction goes", "", undone
    if handle.state is HandleState.TRIED:
        return (
            f"{NOTHING}: at most once, the one try is over; the target alone says whether its rows are visible",
            "",
            "to try again: no command here does, as its rows might then be there twice",
        )
    if handle.state is HandleState.LOST:
        if handle.vote not in model.epoch.chain[-1].votes:
            again = f"{NOTHING}: its rows were written again under another transaction of {epoch}"
            if model.epoch.chain[-1].kind is LinkKind.ABORT:
                again = f"it runs {epoch} again, and writes its rows anew"
            return _alive(model) or again, "", "to commit it: the target has fenced it, and refuses"
        return (
            _alive(model)
            or f"it runs {epoch} again and writes the {n(rows, 'row')} that were lost, and no others",
            "",
            "to commit it: the target has fenced it, and refuses",
        )
    if handle.link.guarantee is Guarantee.AT_MOST_ONCE:
        return (
            _alive(model)
            or f"it gives the transaction up: at most once, the decision was the one try, and its "
            f"{n(rows, 'row is')} lost if not visible",
            "",
            "to commit it: no command here does, as its rows might then be there twice",
        )
    stops = f"the others of {epoch} are committed, and the query stops with IN_DOUBT, and aborts and writes nothing"
    does = {
        Stands.OPEN: f"it commits this transaction and all others of {epoch}, before it reads a row",
        Stands.COMMITTED: f"it finds this transaction committed, commits the others of {epoch}, and puts the receipt",
        Stands.GONE: f"it finds this transaction lost, and writes its {n(rows, 'row')} again, once",
        Stands.UNKNOWN: "it asks the target to commit this transaction: open, it is committed; lost for sure, its "
        f"{n(rows, 'row is')} written again, once; if nobody can tell, {stops}",
    }[standing.stands]
    if standing.hindered:
        does = f"{stops}: a part of what waits is gone, or damaged"
    if isinstance(standing, Elsewhere):
        does = (
            "where its options lead there, too, it stops before it reads a row, and nothing is touched: what was "
            "decided for one target never goes to another"
        )
        refused = "to abort it: that is refused as well, as long as its target is another one"
        return _alive(model) or does, "", refused
    opposite = "to abort it (--against-decision --because TEXT): "
    opposite += (
        "its rows are visible, and no command here takes them back"
        if standing.stands is Stands.COMMITTED
        else f"the {n(_rows(model.epoch), 'row')} of {epoch} would not be lost, as the next start would write them "
        "again, once"
    )
    command = "" if model.run.alive else _command(model, "commit", handle.transaction)
    if command and standing.hindered:
        command = f"{_command(model, 'abort', handle.transaction)} --against-decision --because TEXT"
        opposite = "to commit it: it ends in doubt, unless what was removed is brought back"
    return _alive(model) or does, command, opposite


def _alive(model: CheckpointModel) -> str:
    if not model.run.alive:
        return ""
    return f"a run is alive ({model.run.who}), and ends this transaction by itself; nothing is to be done"


def _command(model: CheckpointModel, verb: str, transaction: str) -> str:
    return f"onceonly transactions {verb} {shlex.quote(transaction)} {shlex.quote(model.path)}"


def _decided(model: CheckpointModel, handle: HandleView) -> str:
    epoch, link = model.epoch, handle.link
    name = f"{model.address}/onceonly/{files.link(link.epoch, link.index)}"
    at = seconds_of(link.stamp)
    by = f", by process {link.stamp.pid} on {link.stamp.host}" if link.stamp else ""
    when = disk.iso(at or epoch.since(handle)) or UNKNOWN
    said = f"to commit: link {link.name} ({link.kind.value}), put at {when}{by}, in {name}"
    last = epoch.chain[-1]
    if epoch.receipt is not None:
        receipt = f"{model.address}/onceonly/{files.receipt(link.epoch)}"
        said += f"; the receipt says that all of {epoch.view.name} is committed, in {receipt}"
    for action in model.actions:
        said += f"; {action.sentence}" if action.concerns(link.epoch, model.query) else ""
    if handle.state is HandleState.LOST and last.name != link.name:
        said += f"; link {last.name} ({last.kind.value}) says since: {meaning(last.reason)}"
    return said


def _rows(epoch: EpochModel) -> int:
    return sum(vote.rows for vote in epoch.chain[-1].output) or sum(
        handle.vote.rows for handle in epoch.handles
    )


def _ranges(epoch: EpochModel) -> str:
    parts = [
        f"{part.partition or 'the source'} from {_offset(part.start)} to {_offset(part.end)}"
        for source in epoch.sources
        for part in source
        if part.span != 0
    ]
    if not parts:
        return f"whose ranges are {UNKNOWN}"
    more = f" and {len(parts) - _RANGES_MAX} more" if len(parts) > _RANGES_MAX else ""
    return f"which reads {', '.join(parts[:_RANGES_MAX])}{more}"


def _offset(value: object) -> str:
    return "the beginning" if value is None else str(value)
