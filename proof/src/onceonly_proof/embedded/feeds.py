"""Servers of numbered rows that behave badly: they drop, stall, repeat, send half lines, and are killed.

::

    with EmbeddedFeed("http", total=1000, rate=500) as feed:
        ...  # feed.port
        feed.kill()  # SIGKILL
        feed.start()  # the same rows at the same address

``http`` sends ``{"id": 17}`` in lines and goes on after ``Last-Event-ID``, ``events`` the same as server-sent events.
``socket`` sends each line at most once, as a feed that keeps nothing, and so does ``live``, by HTTP. With a ``rate`` of
0 rows are there as they are allowed (``allow``). It is a process of its own:
``python -m onceonly_proof.embedded.feeds KIND PORT TOTAL RATE SEED FOLDER``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from pathlib import Path

from onceonly_proof.embedded.own import OwnServer
from onceonly_proof.handover import put

_ALLOWED, _SENT = "allowed", "sent"
_REPEATED = 3
_NOTED_MAX = 50
_STALL_S = 0.4
_CALM_ROWS = (20, 200)
_HEAD = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: {}\r\n\r\n"
_BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_TYPES = {"http": "application/x-ndjson", "live": "application/x-ndjson", "events": "text/event-stream"}
KEEPS_NOTHING = frozenset({"socket", "live"})
"""The kinds of which each row is sent to one connection, and never again."""


class EmbeddedFeed(OwnServer):
    """A server of ``total`` rows, ``rate`` in a second; with ``seed`` 0 it behaves. Not shared between threads."""

    title = "the feed"

    def __init__(
        self, kind: str, *, total: int, rate: int, seed: int = 0, directory: Path | None = None
    ) -> None:
        super().__init__(directory, prefix="feed")
        self._kind = kind
        self._told = (str(total), str(rate), str(seed))

    def _module(self) -> list[str]:
        return [__name__, self._kind, str(self.port), *self._told, str(self.directory)]

    def allow(self, count: int) -> None:
        """Let it send so many rows, of those that it has: with a ``rate`` of 0."""
        put(self.directory / _ALLOWED, b"%d" % count)

    def sent(self) -> int:
        """Say how many rows one that keeps nothing has given away, which it sends to nobody else."""
        return _number(self.directory / _SENT)


class _Rows:
    """Which rows there are by now."""

    def __init__(self, total: int, rate: int, seed: int, folder: Path) -> None:
        self.total = total
        self._allowed = folder / _ALLOWED
        self._rate = rate
        self._begun: float | None = None
        self.behaves = seed == 0
        self.draw = random.Random(seed)  # noqa: S311  nobody gains from guessing it
        self._note = folder / _SENT
        self.sent = _number(self._note)
        """How many a feed that keeps nothing has given away."""
        self.newest: object = None
        """The connection of such a feed that is served. An earlier one, whose reader may be dead, gets no more rows."""

    def upto(self) -> int:
        if not self._rate:
            return min(self.total, _number(self._allowed))
        now = time.monotonic()
        self._begun = self._begun or now
        return min(self.total, int((now - self._begun) * self._rate))

    def give_away(self, upto: int) -> None:
        """Note that rows are sent, before they are: also a life that follows sends them no more."""
        put(self._note, b"%d" % upto)

    def calm(self) -> int:
        return self.total if self.behaves else self.draw.randint(*_CALM_ROWS)


def value_of(kind: str, number: int) -> bytes:
    """Return a row as whoever reads it gets it."""
    return json.dumps({"id": number}).encode() if kind in {"http", "live"} else b"%d" % number


def _row(kind: str, number: int) -> bytes:
    value = value_of(kind, number)
    return b"id: %d\ndata: %b\n\n" % (number, value) if kind == "events" else value + b"\n"


def _number(path: Path) -> int:
    return int(path.read_text()) if path.exists() else 0


async def _serve(kind: str, rows: _Rows, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    after, keeps = -1, kind not in KEEPS_NOTHING
    if kind != "socket":
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        with contextlib.suppress(IndexError):
            after = int(head.split("last-event-id:")[1].split("\r\n")[0])
        if not rows.behaves and rows.draw.random() < 0.1:  # noqa: PLR2004
            writer.write(_BUSY)
            return
        writer.write(_HEAD.format(_TYPES[kind]).encode())
        after = after if rows.behaves else max(-1, after - rows.draw.choice((0, 0, _REPEATED)))
    number = after + 1 if keeps else rows.sent
    left = rows.calm()
    rows.newest = writer
    while keeps or rows.newest is writer:
        upto = rows.upto()
        if not keeps and upto > number:
            # A few at a time: what is noted and not sent yet is lost with the server.
            upto = min(upto, number + _NOTED_MAX)
            rows.give_away(upto)
        while number < upto:
            row = _row(kind, number)
            if left == 0 and number < rows.total - 1:
                if rows.draw.random() < 0.5:  # noqa: PLR2004
                    await asyncio.sleep(_STALL_S)
                    if not keeps and rows.newest is not writer:
                        return
                else:
                    writer.write(row[: rows.draw.randint(0, len(row) - 1)])
                    rows.sent = rows.sent if keeps else number + 1
                    await writer.drain()
                    return
                left = rows.calm()
            writer.write(row)
            number += 1
            left -= 1
            rows.sent = rows.sent if keeps else number
        if kind != "socket":
            writer.write(b": still here\n\n" if kind == "events" else b"\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _main(kind: str, port: int, rows: _Rows, folder: Path) -> None:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            try:
                await _serve(kind, rows, reader, writer)
            finally:
                writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", port)
    (folder / "ready").touch()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    _folder = Path(sys.argv[6])
    _total, _rate, _seed = map(int, sys.argv[3:6])
    _rows = _Rows(_total, _rate, _seed, _folder)
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), _rows, _folder))
