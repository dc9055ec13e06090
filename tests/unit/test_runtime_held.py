"""What a process keeps between uses: one thing for each key, as long as it fits."""

from __future__ import annotations

import pytest

from onceonly.executor.kept import Kept


class Thing:
    def __init__(self, start: str) -> None:
        self.start = start
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_thing_is_used_again_until_another_start_asks_for_it() -> None:
    held: Kept[str, Thing] = Kept(2)

    def use(start: str) -> Thing:
        with held.use("q", lambda: Thing(start), fits=lambda thing: thing.start == start) as thing:
            return thing

    first = use("a")
    assert use("a") is first
    second = use("b")
    assert (first.is_closed, second.start, second.is_closed) == (True, "b", False)


def test_the_longest_unused_is_closed_first_and_what_failed_at_once() -> None:
    held: Kept[str, Thing] = Kept(2)
    made = {}
    for key in ("a", "b", "c"):
        with held.use(key, lambda: Thing("")) as made[key]:
            pass
    assert [made[key].is_closed for key in "abc"] == [True, False, False]
    with pytest.raises(OSError, match="broken"), held.use("b", lambda: Thing("")) as thing:
        raise OSError("broken")
    assert thing is made["b"]
    assert thing.is_closed
