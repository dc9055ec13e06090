"""What ``onceonly doctor`` asks of the targets of a checkpoint: whether they answer, and stand where the log does.

Reads only. The log is read after a target, so that what a run commits meanwhile is in it.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
from typing import TYPE_CHECKING, Final

from onceonly.coordinator.looking_back import EPOCHS_MAX, look_back, past_of
from onceonly.errors import OnceonlyError
from onceonly.families import behind
from onceonly.model import LinkKind, handles_of
from onceonly.operations import disk, look, sinks
from onceonly.operations.heard import leaves_word
from onceonly.operations.probes import Sick, Unasked
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from onceonly.coordinator.coordinator import Participant
    from onceonly.model import Handle
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given

TRIED: Final = "nothing, while epochs are committed: a start tries what it needs"
"""The next step where a right cannot be seen."""


def answer(checkpoint: Checkpoint, given: Given) -> None:
    """See that each sink can be built here, and leads to a target that answers and is the one of the log."""
    silent: list[str] = []
    with sinks.participants(checkpoint, given) as made:
        sinks.refuse_other_target(checkpoint, given, made)
        newest = _newest_handles(checkpoint, made)
        for name, each in made.items():
            with sinks.asking(checkpoint, name):
                each.sink.identity()
                # Many know their target's name without a question.
                if name in newest:
                    each.sink.look_up(newest[name])
                    continue
                context = sinks.context_of(checkpoint.query, name, each)
                # It may have said so without a question, too.
                if each.sink.newest_epoch(context) is not None:
                    continue
                if each.sink.capabilities.recovers:
                    list(each.sink.recover(context))
                else:
                    silent.append(name)
    if silent:
        raise Unasked(
            f"the target of the sink {', '.join(silent)} can only be written to, and not asked", TRIED
        )


def hold_it(checkpoint: Checkpoint, given: Given) -> None:
    """See that the targets hold what the log says they were given. Raises ``TargetBehindError``, as a start does."""
    newest = checkpoint.log.newest()
    if newest is None:
        return
    with sinks.participants(checkpoint, given) as made:
        # Who has said to go on is told by each start; some note that they have told it.
        asked = {
            name: each
            for name, each in made.items()
            if each.use is None or each.use.options.get(behind.OPTION) != behind.GO_ON
        }
        around = checkpoint.log.around(newest, owners=False)
        with _warnings() as told:
            look_back(
                past_of(checkpoint.log, newest, around, asked.keys()).written,
                asked,
                about=f"Query {checkpoint.query}, chk-{newest}",
                context=lambda name: sinks.context_of(checkpoint.query, name, asked[name]),
                checked=True,
            )
    if told:
        raise Unasked(
            " ".join(told), f"onceonly audit {shlex.quote(checkpoint.path)} says what stands in the target"
        )


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect what a start would warn of, in place of the log."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("onceonly")
    logger.addHandler(handler)
    try:
        yield told
    finally:
        logger.removeHandler(handler)


def not_ahead(checkpoint: Checkpoint, given: Given) -> None:
    """See that no target holds an epoch of this query that its log has not decided."""
    if checkpoint.moved is not None:
        return  # its log goes on elsewhere
    with sinks.participants(checkpoint, given) as made:
        for name, each in made.items():
            with sinks.asking(checkpoint, name):
                held = each.sink.newest_epoch(sinks.context_of(checkpoint.query, name, each))
            if held is None:
                continue
            decided = _decided(checkpoint)
            if held > decided:
                ends = f"its log ends at chk-{decided}" if decided >= 0 else "its log has decided nothing"
                raise Sick(
                    f"the target of the sink {name} holds chk-{held} of query {checkpoint.query}, and {ends}: an older "
                    "checkpoint was restored, or a copy of it is in use elsewhere",
                    "do not start the query: its rows would be there twice, or be taken for written. Restore the "
                    f"newest checkpoint, or stop the copy; onceonly audit {shlex.quote(checkpoint.path)} says what "
                    "stands in the target. Or start on a new checkpoint, and accept that rows are repeated",
                )


def left_open(checkpoint: Checkpoint, given: Given) -> None:
    """See that nothing of a query that is down is open that no link names."""
    if checkpoint.run.alive:
        return  # its own business
    try:
        outside = sinks.open_outside(checkpoint, given)
    except OnceonlyError:
        return  # the probe before tells
    if outside and not leaves_word(checkpoint):
        raise Unasked(
            f"{n(len(outside), 'transaction is')} open that no link names, as {outside[0][1].transaction} of the sink "
            f"{outside[0][0]}, and nobody tells whether its run lives: one on Spark Connect leaves no word",
            "nothing, while epochs are committed; else start the query",
        )
    if outside:
        sink, item = outside[0]
        by_hand = look.abort_by_hand(checkpoint, item.transaction)
        raise Sick(
            f"{n(len(outside), 'transaction is')} open that no link names, as {item.transaction} of the sink {sink}",
            f"start the query, or {by_hand}" if by_hand else "start the query",
        )


def rights(checkpoint: Checkpoint, given: Given) -> None:
    """See that the targets permit what an epoch does. Raises ``ConfigurationError`` that names what is missing."""
    unseen: list[str] = []
    with sinks.participants(checkpoint, given) as made:
        for name, each in made.items():
            context = sinks.context_of(checkpoint.query, name, each)
            with sinks.asking(checkpoint, name):
                why = each.sink.require_rights(context, user=jobs_user(checkpoint))
            unseen += [f"of the sink {name}, {why}"] if why else []
    if unseen:
        raise Unasked("; ".join(unseen), TRIED)


def jobs_user(checkpoint: Checkpoint) -> int | None:
    """Return the user whom Spark's newest offsets belong to, None where that is not told."""
    numbers = checkpoint.told.files.numbers("offsets")
    if not numbers or checkpoint.folder is None:
        return None
    return disk.owner(checkpoint.folder / "offsets" / str(max(numbers)))


def _newest_handles(checkpoint: Checkpoint, made: Mapping[str, Participant]) -> dict[str, Handle]:
    """Return the newest handle of each sink, as far as the log keeps details: some have rows in few epochs."""
    found: dict[str, Handle] = {}
    for epoch in reversed(checkpoint.epochs[-EPOCHS_MAX:]):
        for link in reversed(checkpoint.log.chain(epoch)):
            found = {name: handles[0] for name, handles in handles_of(link.output).items()} | found
        if made.keys() <= found.keys():
            break
    return found


def _decided(checkpoint: Checkpoint) -> int:
    """Return the newest epoch of which something may stand in a target; -1 for none."""
    newest = checkpoint.log.newest()
    if newest is None:
        return -1
    kinds: Collection[LinkKind] = {link.kind for link in checkpoint.log.chain(newest)}
    # Of an epoch that is only claimed, nothing is committed.
    return newest - 1 if kinds == {LinkKind.ABORT} else newest
