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
