"""What is new, told to the tabs that look: server-sent events, each record of the log with its position as ``id``.

A browser that comes back says which position it has seen last, and is told what has come since: nothing is lost and
nothing is told twice. One look at the log serves all streams.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool

from onceonly.errors import OnceonlyError
from onceonly.options import without_secrets
from onceonly.ui import records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from onceonly.ui.records import Position, Record
    from onceonly.ui.roster import Roster
    from onceonly.ui.traces import Traces
    from onceonly.ui.watcher import Watcher

STREAMS_MAX: Final = 5
"""How many tabs are told at once: a browser has six connections to a server, and one must be left for its pages."""
BEAT_S: Final = 15.0
"""How often a stream says that it is alive, so that proxies keep it."""
RETRY_MS: Final = 1_000


class Streams:
    """The open streams of a server. In its event loop."""

    def __init__(self) -> None:
        self._open: OrderedDict[object, asyncio.Event] = OrderedDict()
        self._closing = False

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """End all streams, and let no other begin. Idempotent."""
        self._closing = True
        for ended in self._open.values():
            ended.set()

    def follow(self, watcher: Watcher, traces: Traces, last: Position | None) -> AsyncIterator[str]:
        """Yield what comes into a log after ``last``, until the server ends or newer streams need the place.

        That the event log has grown is told, too: of a long epoch it alone hears for a while.
        """
        return self._until_ended(lambda ended: _told(watcher, traces, last, ended))

    def follow_all(self, roster: Roster) -> AsyncIterator[str]:
        """Yield an event where any query stands otherwise than before, or a new one is there; ends as ``follow``."""
        return self._until_ended(lambda ended: _all_told(roster, ended))

    async def _until_ended(self, tell: Callable[[asyncio.Event], AsyncIterator[str]]) -> AsyncIterator[str]:
        me, ended = object(), asyncio.Event()
        self._open[me] = ended
        if self._closing:
            ended.set()
        while len(self._open) > STREAMS_MAX:
            self._open.popitem(last=False)[1].set()
        try:
            async for each in tell(ended):
                yield each
            yield event({}, name="ended" if self._closing else "crowded")
        finally:
            self._open.pop(me, None)


async def _told(
    watcher: Watcher, traces: Traces, last: Position | None, ended: asyncio.Event
) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    state: tuple[str, ...] = ()
    # A page asks for itself anew at the first state that it is told, and with it for what was there until now.
    size = await run_in_threadpool(traces.size)
    quiet_s = 0.0
    while not ended.is_set():
        new, last, now = await run_in_threadpool(_look, watcher, last)
        parts = [event({}, name="gap")] if new is None else []
        parts += [event(_record(each), name="record", at=each.position) for each in new or ()]
        if now != state:
            parts.append(event({"run": now[0], "trouble": now[-1]}, name="state"))
            state = now
        if (grown := await run_in_threadpool(traces.size)) != size:
            parts.append(event({}, name="trace"))
            size = grown
        if parts:
            quiet_s = 0.0
            yield "".join(parts)
        elif quiet_s >= BEAT_S:
            quiet_s = 0.0
            yield ": beat\n\n"
        try:
            await asyncio.wait_for(ended.wait(), watcher.every_s)
        except TimeoutError:
            quiet_s += watcher.every_s


async def _all_told(roster: Roster, ended: asyncio.Event) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    state: tuple[tuple[str, ...], ...] = ()
    quiet_s = 0.0
    while not ended.is_set():
        now = await run_in_threadpool(roster.state)
        if now != state or quiet_s >= BEAT_S:
            yield event({}, name="state") if now != state else ": beat\n\n"
            state, quiet_s = now, 0.0
        try:
            await asyncio.wait_for(ended.wait(), roster.every_s)
        except TimeoutError:
            quiet_s += roster.every_s


def _look(
    watcher: Watcher, last: Position | None
) -> tuple[list[Record] | None, Position | None, tuple[str, ...]]:
    """Return what is new, how far it goes, and what stands beside the log: run, newest barrier, what is unreadable."""
    try:
        new = watcher.since(last)
        model = watcher.model()
    except OnceonlyError as error:
        return [], last, ("unknown", "", without_secrets(error.what))
    if new:
        last = new[-1].position
    elif new is None or last is None:
        last = records.newest(model.epochs)
    stands = f"{model.epochs[0].view.name} {model.epochs[0].view.state}" if model.epochs else ""
    trouble = watcher.trouble
    return new, last, (model.run.word, stands, without_secrets(trouble.what) if trouble is not None else "")


def _record(found: Record) -> dict[str, str]:
    return {"position": str(found.position), "name": found.name, "what": found.what, "at": found.at}


def event(data: Mapping[str, str], *, name: str, at: Position | None = None) -> str:
    """Return an event as it is sent. Pure; JSON has no end of line in it, so that no text can end the event."""
    id_ = f"id: {at}\n" if at is not None else ""
    return f"{id_}event: {name}\ndata: {json.dumps(data)}\n\n"
