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


class Stuck(Thing):
    def close(self) -> None:
        raise ConnectionError("the client's own error")


def test_what_cannot_be_closed_hides_no_error_and_fails_nobody(caplog: pytest.LogCaptureFixture) -> None:
    held: Kept[str, Thing] = Kept(1)
    with pytest.raises(OSError, match=r"^broken$"), held.use("a", lambda: Stuck("")):
        raise OSError("broken")
    for key, fits in (("a", True), ("a", False), ("b", True)):
        with held.use(key, lambda: Stuck(""), fits=lambda _, fits=fits: fits):  # type: ignore[misc]  # a parameter more
            pass
    told = [record.message for record in caplog.records]
    assert told == ["Stuck could not be closed: ConnectionError: the client's own error"] * 3
