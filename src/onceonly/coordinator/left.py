"""Sinks that a query had in its newest epochs and no longer has: a start leaves them out, or gives them another name.

The start that claims ends what they left open, as it does for sinks that stay: a target may keep it for long (Kafka's
readers wait for its time-out), or for ever (files). It does its best: nothing of the query depends on it. But what is
decided for one of them is committed before the query goes on; and where one is known to have come further than the
checkpoint, that is an older one, and its rows would be written again under the new name. Driver.
"""

from __future__ import annotations

import logging
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.executor.kept import close
from onceonly.model import LinkKind, differing, handles_of
from onceonly.ports import QueryContext

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from typing import TypeAlias

    from onceonly.model import Around, Link, SinkUse
    from onceonly.ports import Leftover, Sink

    Target: TypeAlias = Mapping[str, str | int]
    Revive: TypeAlias = Callable[[str, SinkUse, Target], Sink | None]
    """Makes a sink of its name, its use and its target; None where it cannot be made here."""

log = logging.getLogger("onceonly")

_WAIT_S = 5.0
"""How long the start waits for a target that may no longer exist."""


@dataclass(frozen=True, slots=True)
class LeftSink:
    """A sink that the query no longer has, made once more, what it left open, and its newest epoch by its target."""

    name: str
    sink: Sink
    leftovers: Sequence[Leftover]
    newest: int | None


def left_of(links: Collection[Link], known: Collection[str]) -> dict[str, Link]:
    """Return the newest of ``links`` for each sink in them that is not ``known``, by its name. Pure."""
    found: dict[str, Link] = {}
    for link in sorted(links, key=lambda each: (each.epoch, each.index), reverse=True):
        for name in link.uses.keys() - known:
            found.setdefault(name, link)
    return found


def left_sinks(found: Mapping[str, Link], revive: Revive, *, query: str) -> Iterator[LeftSink]:
    """Yield those that are ``found``, as their links used them, with what they left open. Each is closed afterwards.

    Raises nothing; the log names a target that cannot be asked.
    """
    for name, link in sorted(found.items()):
        asked = background.begin("onceonly-left", _ask, name, link, revive, query)
        has_answered = bool(wait([asked], _WAIT_S).done)
        if not has_answered:
            asked.add_done_callback(_let_go)
        error = asked.exception() if has_answered else TimeoutError(f"no answer within {_WAIT_S:g} s")
        if error is not None:
            log.warning(
                "Query %s begins without its sink %s, and what that left open could not be looked for: %s: %s. A "
                "time-out of the target ends it, if it has one.", query, name, type(error).__name__, error,
            )  # fmt: skip
            continue
        one = asked.result()
        if one is not None:
            try:
                yield one
            finally:
                close(one.sink)


def owed_by(around: Around) -> dict[str, Link]:
    """Name the sinks to which the last epoch owes commits, or to be told that it is complete, with its link. Pure."""
    last = around.last
    is_owed = last is not None and last.kind is LinkKind.COMMIT and around.last_receipt is None
    return dict.fromkeys(handles_of(last.output), last) if last is not None and is_owed else {}


@contextmanager
def owed_sinks(owed: Mapping[str, Link], known: Collection[str], revive: Revive) -> Iterator[dict[str, Sink]]:
    """Make those that are not ``known``, as far as that can be; they are closed in the end."""
    made: dict[str, Sink] = {}
    try:
        for name in sorted(owed.keys() - known):
            link = owed[name]
            try:
                sink = revive(name, link.uses[name], link.settings[name])
            except Exception as error:  # noqa: BLE001  whatever it is, the query stops, and says what can be done
                log.warning("The sink %s of chk-%s cannot be made here: %s", name, link.epoch, error)
                continue
            made |= {} if sink is None else {name: sink}
        yield made
    finally:
        for sink in made.values():
            close(sink)


def _let_go(asked: Future[LeftSink | None]) -> None:
    """Close what nobody waits for any more."""
    if asked.exception() is None and (late := asked.result()) is not None:
        close(late.sink)


def _ask(name: str, link: Link, revive: Revive, query: str) -> LeftSink | None:
    """Return the sink, what it left open and how far it came; None where there is nothing to be asked."""
    use, then = link.uses.get(name), link.settings.get(name, {})
    sink = None if use is None else revive(name, use, then)
    if use is None or sink is None:
        return None
    try:
        if then and not differing(then, sink.identity()):
            context = QueryContext(query=query, sink=name, guarantee=use.guarantee)
            leftovers = list(sink.recover(context)) if sink.capabilities.recovers else []
            newest = sink.newest_epoch(context)
            if leftovers or newest is not None:
                return LeftSink(name, sink, leftovers, newest)
    except BaseException:  # whatever it is, its connections are nobody else's
        close(sink)
        raise
    close(sink)
    return None
