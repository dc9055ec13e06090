"""A page server in a thread of the test, and a client that sends what it is told, byte for byte."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from onceonly.ui import serving
from onceonly.ui.application import application
from onceonly.ui.gate import Gate
from onceonly.ui.stream import Streams

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from starlette.types import ASGIApp

    from onceonly.operations.find import Checkpoint
    from onceonly.operations.search import Problem
    from onceonly.ui.gate import Door

WAIT_S = 10.0


@dataclass(frozen=True)
class Answer:
    """What the server sent."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Page:
    """A server, and what lets in."""

    door: Door
    address: str
    streams: Streams = field(default_factory=Streams)
    running: list[uvicorn.Server] = field(default_factory=list)

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0]

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": f"{self.door.cookie}={self.door.token}"}

    def ask(self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request as it is, without a cookie of its own."""
        connection = self.connection()
        try:
            connection.putrequest(method, path, skip_host="Host" in (headers or {}))
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read().decode())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        """Ask for a page with the cookie."""
        return self.ask(path, headers={**self.cookie, **headers})

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.door.port, timeout=WAIT_S)

    def cut(self) -> None:
        """Cut all connections in the middle, as a network does that fails."""
        (server,) = self.running

        def cut() -> None:
            for each in list(server.server_state.connections):
                assert isinstance(each, H11Protocol)
                each.transport.abort()

        server.servers[0].get_loop().call_soon_threadsafe(cut)

    @contextmanager
    def following(self, path: str, **headers: str) -> Iterator[Iterator[dict[str, str]]]:
        """Follow a stream: its events as they come."""
        connection = self.connection()
        try:
            connection.request("GET", path, headers={**self.cookie, **headers})
            answer = connection.getresponse()
            assert answer.status == 200
            yield events_of(answer)
        finally:
            connection.close()


def events_of(answer: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    """Yield the events of a stream: each with ``event``, ``data`` and, where it has one, ``id``."""
    event: dict[str, str] = {}
    while line := answer.readline().decode():
        name, colon, value = line.rstrip("\n").partition(": ")
        if name and colon:
            event[name] = value
        elif not name and "event" in event:
            yield event
            event = {}
        elif not name:
            event = {}


@contextmanager
def serve(
    app: ASGIApp | Sequence[Checkpoint],
    *,
    prefix: str = "",
    places: Sequence[str] = (),
    events: Path | None = None,
    problems: Sequence[Problem] = (),
) -> Iterator[Page]:
    """Serve checkpoints, or an application in their place, on a free port, until the block ends."""
    served = serving.listen(port=0, prefix=prefix)
    page = Page(served.door, served.address)
    if not callable(app):
        app = application(
            app, page.streams, prefix=served.door.prefix, places=places, events=events, problems=problems
        )
    config = uvicorn.Config(
        Gate(app, served.door), http="h11", ws="none", log_config=None, timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    page.running.append(server)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [served.listener]})
    thread.start()
    try:
        yield page
    finally:
        page.streams.close()
        server.should_exit = True
        thread.join(WAIT_S)
        served.listener.close()
        assert not thread.is_alive()
