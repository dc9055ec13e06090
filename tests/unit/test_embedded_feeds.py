"""The feeds that campaigns read: what a feed that keeps nothing has sent, it sends to nobody again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from onceonly_proof.embedded import feeds

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Draw:
    """Three calm rows, then a stall, and so on."""

    def randint(self, _least: int, _most: int) -> int:
        return 3

    def random(self) -> float:
        return 0.0

    def choice(self, given: tuple[int, ...]) -> int:
        return given[0]


class Reader:
    """A connection, whose reader may be dead: what is written to it says nothing of that for a while."""

    def __init__(self, sent: list[int]) -> None:
        self._sent = sent

    def write(self, data: bytes) -> None:
        self._sent += map(int, data.split())

    async def drain(self) -> None:
        await asyncio.sleep(0)


def test_a_connection_that_wakes_up_behind_a_newer_one_sends_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_STALL_S", 0.01)
    (tmp_path / feeds._ALLOWED).write_text("12")
    rows = feeds._Rows(12, 0, 1, tmp_path)
    rows.draw = Draw()  # type: ignore[assignment] # as much of one as is asked
    sent: list[int] = []

    async def connected(seconds: float) -> None:
        serving: Any = feeds._serve("socket", rows, asyncio.StreamReader(), Reader(sent))  # type: ignore[arg-type] # as above
        await asyncio.wait({asyncio.ensure_future(serving)}, timeout=seconds)

    async def reconnected() -> None:
        for _ in range(4):  # each but the last is left while it stalls
            await connected(0.005)
        await connected(1.0)

    asyncio.run(reconnected())
    assert sent == list(range(12))


def test_lines_that_nobody_listened_to_are_sent_to_nobody_else(tmp_path: Path) -> None:
    (tmp_path / feeds._ALLOWED).write_text("9")
    rows = feeds._Rows(9, 0, 1, tmp_path)
    rows.draw = Draw()  # type: ignore[assignment] # as above
    sent: list[bytes] = []

    class Client(Reader):
        def write(self, data: bytes) -> None:
            sent.append(data)

    async def connected() -> None:
        asked = asyncio.StreamReader()
        asked.feed_data(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.wait_for(feeds._serve("live", rows, asked, Client([])), 1)  # type: ignore[arg-type] # as above

    for row in (4, 8):  # a stall of none; then it breaks off in the middle of a line
        sent.clear()
        rows.draw.random = lambda: 0.6  # type: ignore[method-assign]
        asyncio.run(connected())
        assert sent[0].startswith(b"HTTP/1.1 200")
        assert [line for line in sent[1:] if line.endswith(b"\n")] == [
            feeds._row("live", number) for number in range(row - 4, row - 1)
        ]
        assert rows.sent == row
