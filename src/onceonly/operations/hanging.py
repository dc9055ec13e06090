"""``transactions hanging``: what targets have open and no log knows; each with what it is and what ends it. Looks only.

What a running job has open belongs to it, and what a link names is told by ``transactions list``. What a target only
remembers of a query, it may forget where that query's checkpoint is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import OnceonlyError, UnavailableError
from onceonly.log import left
from onceonly.operations import look, sinks
from onceonly.settings import registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given
    from onceonly.operations.planned_job import PlannedJob
    from onceonly.ports.standing import Hanging


@dataclass(frozen=True, slots=True, kw_only=True)
class Hung:
    """One transaction that is open. ``transaction`` and ``query`` are empty where nothing tells them.

    Where ``is_open`` is false, the target only remembers the query; None says that nobody could look.
    """

    sink: str
    told: str
    transaction: str = ""
    query: str = ""
    blocks: str = ""
    command: str = ""
    is_open: bool | None = True


def hanging(checkpoint: Checkpoint, given: Given, *, beside: Sequence[Checkpoint] = ()) -> list[Hung]:
    """Ask the targets of one query what is open there that no log knows: neither its own, nor that of one ``beside``.

    Raises ``UnavailableError``, ``ConfigurationError`` where a target is another one than the log names.
    """
    known = _Known((checkpoint, *beside))
    found: dict[tuple[str, str, str], Hung] = {}
    with sinks.participants(checkpoint, given) as made:
        sinks.refuse_other_target(checkpoint, given, made)
        for name, each in made.items():
            with sinks.asking(checkpoint, name):
                found |= known.not_in(name, each.sink.hanging())
        own = [] if checkpoint.query in known.alive else sinks.outside(checkpoint, made)
    told = {name for name, *_ in found}
    for name, leftover in own:
        if leftover.transaction not in told and leftover.transaction not in known.named:
            found[leftover.transaction, "", ""] = Hung(
                sink=name, told=f"open in the target, and no link names it: {_ends(checkpoint)}",
                transaction=leftover.transaction, query=checkpoint.query,
                command=look.abort_by_hand(checkpoint, leftover.transaction),
            )  # fmt: skip
    return list(found.values())


def in_target(job: PlannedJob, *, beside: Sequence[Checkpoint] = ()) -> list[Hung]:
    """Ask the target of a job that a file describes, where no checkpoint is left that names it.

    Raises ``UnavailableError``, ``ConfigurationError``.
    """
    name, sink = registry.find(job.format)
    settings = registry.settings_of(job.options, name, sink)
    made = registry.build(settings.sink, sink)
    try:
        return list(_Known(beside).not_in(settings.sink.name, made.hanging()).values())
    except OnceonlyError:
        raise
    except Exception as error:
        raise UnavailableError(
            f"the target of the sink {settings.sink.name} could not be asked: {type(error).__name__}: {error}",
            next_step="see to it and ask again",
        ) from error
    finally:
        made.close()


class _Known:
    """What the logs of some queries know."""

    def __init__(self, checkpoints: Sequence[Checkpoint]) -> None:
        self._queries = {each.query: each for each in checkpoints}
        # One that goes on has open what its log will name.
        self.alive = {query for query, each in self._queries.items() if each.run.alive}
        self.named = {name for each in checkpoints for name in sinks.pending(each)}
        self._used = {query: sinks.names(each) for query, each in self._queries.items()}

    def not_in(self, sink: str, items: Iterable[Hanging]) -> dict[tuple[str, str, str], Hung]:
        """Return what none of them knows, by what tells it from the others."""
        found: dict[tuple[str, str, str], Hung] = {}
        for item in items:
            has_sink = item.sink in self._used.get(item.query, ())
            if (
                item.query not in self.alive
                and item.transaction not in self.named
                and (item.is_open is not False or not has_sink)
            ):
                key = item.transaction, item.blocks, "" if item.is_open else item.told
                found[key] = _hung(sink, item, self._queries.get(item.query), has_sink=has_sink)
        return found


def _ends(owner: Checkpoint) -> str:
    """Say what ends what a query has open that no link names."""
    return left.ends_open(owner.home) if owner.was_restored else "the query's next start aborts it"


def _hung(sink: str, item: Hanging, owner: Checkpoint | None, *, has_sink: bool) -> Hung:
    told, command = item.told, item.command
    if item.is_open is None:
        lost = "" if owner else f". Its checkpoint is not here: if that is gone for good, {item.if_lost}"
        told = f"{told}, of the query {item.query}: ask again as the user that its job runs as{lost}"
    elif owner is not None and (has_sink or not item.sink):
        told, command = (
            f"{told}; no link names it: {_ends(owner)}",
            look.abort_by_hand(owner, item.transaction),
        )
    elif owner is not None:
        again = ": a start that has it again aborts it" if item.is_open else ""
        told = (
            f"{told}, and of the query {item.query}, whose newest epochs have no such sink{again}. If it never comes "
            f"back, {item.if_lost}"
        )
    elif item.query:
        told = (
            f"{told}, and of the query {item.query}, whose checkpoint is not here: name a folder above it. If that is "
            f"gone for good, {item.if_lost}"
        )
    return Hung(
        sink=sink,
        told=told,
        transaction=item.transaction,
        query=item.query,
        blocks=item.blocks,
        command=command,
        is_open=item.is_open,
    )
