"""The addresses of the page server: pages, what they need, and the stream of each checkpoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly.log.dated import KEEP
from onceonly.ui import records
from onceonly.ui.pages import Pages, sheet
from onceonly.ui.roster import Roster
from onceonly.ui.traces import Traces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from starlette.requests import Request

    from onceonly.operations.find import Checkpoint
    from onceonly.operations.search import Problem
    from onceonly.ui.stream import Streams
    from onceonly.ui.watcher import Watcher

_STATIC: Final = Path(__file__).with_name("static")
_NOT_FOUND, _CANNOT_TELL = 404, 503
_EPOCH: Final = re.compile("(?:chk-)?([0-9]{1,18})")


def application(
    checkpoints: Sequence[Checkpoint],
    streams: Streams,
    *,
    prefix: str = "",
    places: Sequence[str] = (),
    events: Path | None = None,
    problems: Sequence[Problem] = (),
) -> Starlette:
    """Return the application of some checkpoints, and of those that come below ``places``.

    ``events`` is the folder of their event log, ``problems`` are of those that could not be opened. It lets everybody
    in: ``gate`` stands before it.
    """
    return _Answers(Roster(checkpoints, places, problems), streams, prefix, Traces(events)).application()


class _Answers:
    """What is answered at each address. Those that read a checkpoint are in threads of the server's pool."""

    def __init__(self, roster: Roster, streams: Streams, prefix: str, traces: Traces) -> None:
        self._roster = roster
        self._streams = streams
        self._prefix = prefix
        self._traces = traces
        self._pages = Pages(roster, base=prefix, traces=traces)

    def application(self) -> Starlette:
        """Return the application."""
        pages = self._pages
        epoch = self._page(lambda of, asked: pages.epoch(of, _number(asked, "epoch")))
        found = Starlette(
            routes=[
                Route("/", self._front),
                Route("/page.js", lambda _: _file("page.js", "text/javascript")),
                Route("/page.css", lambda _: Response(sheet(), media_type="text/css")),
                Route("/icon.svg", lambda _: _file("icon.svg", "image/svg+xml")),
                Route("/events", self._all_events),
                Route("/{key}/events", self._events),
                Route("/{key}/now", self._page(lambda of, asked: pages.now(of, _runs(asked)))),
                Route(
                    "/{key}/timeline", self._page(lambda of, asked: pages.timeline(of, _number(asked, "to")))
                ),
                Route("/{key}/epoch", epoch),
                Route("/{key}/epoch/{epoch}", epoch),
                Route("/{key}/doubt", self._page(lambda of, _: pages.doubt(of))),
                Route(
                    "/{key}/latency", self._page(lambda of, asked: pages.latency(of, _number(asked, "to")))
                ),
                Route("/{key}", self._home),
                Route("/{path:path}/", self._without_slash),
            ],
            exception_handlers={_NOT_FOUND: self._nowhere},
        )
        found.router.redirect_slashes = False  # it knows of no prefix
        return found

    def _page(self, make: Callable[[Watcher, Request], str]) -> Callable[[Request], Response]:
        def page(request: Request) -> Response:
            key = request.path_params["key"]
            watcher = self._roster.get(key)
            if watcher is None:
                return self._failed(f"there is no query {key} here", "choose one of the list", _NOT_FOUND)
            try:
                return HTMLResponse(make(watcher, request))
            except ConfigurationError as error:
                return self._failed(error.what, error.next_step, _NOT_FOUND)
            except OnceonlyError as error:
                return self._failed(error.what, error.next_step, _CANNOT_TELL)

        return page

    def _events(self, request: Request) -> Response:
        watcher = self._roster.get(request.path_params["key"])
        if watcher is None:
            return PlainTextResponse("There is no such query here.", _NOT_FOUND)
        # The browser's own word is newer than that of the page, where it has come back by itself.
        said = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return _stream(self._streams.follow(watcher, self._traces, records.parse(said)))

    def _all_events(self, _request: Request) -> Response:
        return _stream(self._streams.follow_all(self._roster))

    def _front(self, _request: Request) -> Response:
        self._roster.look()
        if len(self._roster.all) == 1 and not self._roster.unopened:
            return RedirectResponse(f"{self._prefix}/{self._roster.all[0].key}/now", 303)
        return HTMLResponse(self._pages.overview())

    def _home(self, request: Request) -> Response:
        key = request.path_params["key"]
        if self._roster.get(key) is None:
            raise HTTPException(_NOT_FOUND)
        return RedirectResponse(f"{self._prefix}/{key}/now", 303)

    def _without_slash(self, request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{self._prefix}/{request.path_params['path'].rstrip('/')}{query}", 303)

    def _nowhere(self, _request: Request, _error: Exception) -> Response:
        return self._failed("there is no such page", "choose one of the list", _NOT_FOUND)

    def _failed(self, what: str, next_step: str, status: int) -> Response:
        return HTMLResponse(self._pages.failed(what, next_step), status)


def _stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(
        events,
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},  # a proxy that collects it would be late
    )


def _file(name: str, media_type: str) -> Response:
    return Response((_STATIC / name).read_bytes(), media_type=media_type)


def _runs(request: Request) -> int | None:
    """Return how many runs are asked for, as far as any are kept; None where it is not said."""
    text = request.query_params.get("runs", "").strip()
    if not text:
        return None
    if not re.fullmatch("[0-9]{1,9}", text) or not int(text):
        raise ConfigurationError(f"{text!r} is no number of runs", next_step=f"write it as runs={KEEP}")
    return min(int(text), KEEP)


def _number(request: Request, name: str) -> int | None:
    """Return the epoch that is asked for, in the path or by the field of a form; None where none is."""
    text = str({**request.query_params, **request.path_params}.get(name, "")).strip()
    if not text:
        return None
    match = _EPOCH.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"{text!r} does not name an epoch", next_step="write it as 7 or chk-7")
    return int(match[1])
