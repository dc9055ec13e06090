"""Clients of one store that put the same name at the same moment."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.stores.port import Store


def race(client: Callable[[], Store]) -> None:
    """See that exactly one of eight wins, five times; each has a client of its own."""
    for number in range(5):
        found: list[bytes | None] = []
        name, together = f"links/{number}.json", threading.Barrier(8)

        def put(
            me: int,
            name: str = name,
            together: threading.Barrier = together,
            told: list[bytes | None] = found,
        ) -> None:
            mine = client()
            together.wait()
            told.append(put_once(mine, name, b"%d" % me))

        threads = [threading.Thread(target=put, args=(me,)) for me in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert set(found) == {client().get(name)}
    assert len(client().list_names("links/")) == 5
