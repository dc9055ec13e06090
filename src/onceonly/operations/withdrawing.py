"""Taking back from targets what was decided after a savepoint, under a claim at its former place. Operator's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.log.actions import NAMES_MAX, Withdrawn
from onceonly.model import handles_of
from onceonly.operations import former, sinks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onceonly.coordinator.coordinator import Participant
    from onceonly.model import Handle
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.former import After, Beyond
    from onceonly.operations.given import Given
    from onceonly.ports.standing import TakenBack
    from onceonly.savepoints.manifest import Savepoint


def refuse_unless_taken_back(after: After, savepoint: Savepoint, given: Given) -> tuple[Withdrawn, ...]:
    """Raise ``ConfigurationError`` where something cannot be taken back, or a sink cannot be made here. Only looks.

    ``UnavailableError`` where a target does not answer. Return what is to be taken back.
    """
    return _of_all(after, savepoint, given, only_look=True)


def withdraw(after: After, savepoint: Savepoint, given: Given) -> tuple[Withdrawn, ...]:
    """Take back what was decided after a savepoint; return of each sink what went. Idempotent, safe to be killed in.

    ``refuse_unless_taken_back`` has looked before. Raises as it does.
    """
    return _of_all(after, savepoint, given, only_look=False)


def _of_all(after: After, savepoint: Savepoint, given: Given, *, only_look: bool) -> tuple[Withdrawn, ...]:
    return tuple(
        each
        for checkpoint, found in after
        for each in _of_each(checkpoint, found, savepoint, given, only_look=only_look)
    )


def _of_each(
    checkpoint: Checkpoint, found: Sequence[Beyond], savepoint: Savepoint, given: Given, *, only_look: bool
) -> list[Withdrawn]:
    """Have each sink take back what is beyond, or look whether it can; return what it is."""
    handles, epoch = _handles(checkpoint, found), former.since(checkpoint, savepoint)
    taken: list[Withdrawn] = []
    # A function of the user's may write to sinks in turn: not all that is beyond is of those of the newest epochs.
    with sinks.participants(checkpoint, given, since=epoch) as made:
        takers = _takers(made, found)
        sinks.refuse_other_target(checkpoint, given, made, since=epoch)
        for each in found:
            context = sinks.context_of(checkpoint.query, each.sink, made[each.sink])
            with sinks.asking(checkpoint, each.sink):
                back = takers[each.sink](context, epoch, handles[each.sink], only_look=only_look)
            taken.append(
                Withdrawn(
                    query=checkpoint.query, sink=each.sink, epochs=each.epochs, rows=each.rows,
                    files=len(back.files), names=back.files[:NAMES_MAX], entry=back.entry,
                )
            )  # fmt: skip
    return taken


def _handles(checkpoint: Checkpoint, found: Sequence[Beyond]) -> dict[str, list[Handle]]:
    handles: dict[str, list[Handle]] = {each.sink: [] for each in found}
    for each in found:
        for number in each.epochs:
            chain = checkpoint.log.chain(number)
            if not chain:
                raise _cannot(each, f"the log keeps no details of chk-{number} any more (onceonly.history)")
            handles[each.sink] += handles_of(chain[-1].output).get(each.sink, ())
    return handles


def _takers(made: Mapping[str, Participant], found: Sequence[Beyond]) -> dict[str, Callable[..., TakenBack]]:
    takers: dict[str, Callable[..., TakenBack]] = {}
    for each in found:
        if each.sink not in made:
            raise _cannot(each, "no epoch since says how its sink is reached")
        take = getattr(made[each.sink].sink, "withdraw", None)
        if take is None:
            raise _cannot(each, "its target cannot take anything back")
        takers[each.sink] = take
    return takers


def _cannot(each: Beyond, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{each.sentence}: {why}, and nothing was withdrawn",
        next_step="take a newer savepoint; or take it away yourself and say --output again",
    )
