"""Taking back from targets what was decided after a savepoint, under a claim at its former place. Operator's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.model import handles_of
from onceonly.operations import former, sinks
from onceonly.ports import QueryContext
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onceonly.coordinator.coordinator import Participant
    from onceonly.model import Handle
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.former import After, Beyond
    from onceonly.operations.given import Given
    from onceonly.savepoints.manifest import Savepoint


def refuse_unless_taken_back(after: After, savepoint: Savepoint, given: Given) -> None:
    """Raise ``ConfigurationError`` where something cannot be taken back, or a sink cannot be made here. Only looks.

    ``UnavailableError`` where a target does not answer.
    """
    for checkpoint, found in after:
        _of_each(checkpoint, found, savepoint, given, only_look=True)


def withdraw(after: After, savepoint: Savepoint, given: Given) -> list[str]:
    """Take back what was decided after a savepoint; say of each sink what went. Idempotent, safe to be killed in.

    Raises as ``refuse_unless_taken_back``, before any target is touched.
    """
    refuse_unless_taken_back(after, savepoint, given)
    told: list[str] = []
    for checkpoint, found in after:
        counts = _of_each(checkpoint, found, savepoint, given, only_look=False)
        told += [f"withdrawn from sink {name}: {n(count, 'file')}" for name, count in counts.items()]
    return told


def _of_each(
    checkpoint: Checkpoint, found: Sequence[Beyond], savepoint: Savepoint, given: Given, *, only_look: bool
) -> dict[str, int]:
    """Have each sink take back what is beyond, or look whether it can; return what it is, in files."""
    handles, epoch = _handles(checkpoint, found), former.since(checkpoint, savepoint)
    counts: dict[str, int] = {}
    with sinks.participants(checkpoint, given) as made:
        takers = _takers(made, found)
        sinks.refuse_other_target(checkpoint, given, made)
        for name, take in takers.items():
            context = QueryContext(query=checkpoint.query, sink=name, guarantee=made[name].guarantee)
            with sinks.asking(checkpoint, name):
                counts[name] = take(context, epoch, handles[name], only_look=only_look)
    return counts


def _handles(checkpoint: Checkpoint, found: Sequence[Beyond]) -> dict[str, list[Handle]]:
    handles: dict[str, list[Handle]] = {each.sink: [] for each in found}
    for each in found:
        for number in each.epochs:
            chain = checkpoint.log.chain(number)
            if not chain:
                raise _cannot(each, f"the log keeps no details of chk-{number} any more (onceonly.history)")
            handles[each.sink] += handles_of(chain[-1].output).get(each.sink, ())
    return handles


def _takers(made: Mapping[str, Participant], found: Sequence[Beyond]) -> dict[str, Callable[..., Any]]:
    takers: dict[str, Callable[..., Any]] = {}
    for each in found:
        participant = made.get(each.sink)
        take = getattr(participant.sink, "withdraw", None) if participant is not None else None
        if take is None:
            raise _cannot(each, "its target cannot take anything back")
        takers[each.sink] = take
    return takers


def _cannot(each: Beyond, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{each.sentence}: {why}, and nothing was withdrawn",
        next_step="take a newer savepoint; or take it away yourself and say --output again",
    )
