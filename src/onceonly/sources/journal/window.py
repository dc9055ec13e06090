"""The ids that a writer remembers, so that what a feed sends again is left out. No I/O."""

from __future__ import annotations

import time
from bisect import insort
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


_BREAK_S: Final = 1.0
AGAIN: Final = 0
"""The number of what came again: such ids are in no segment and in no fold by themselves."""


class Clock:
    """For how long a journal was written in all, by all its writers, while something could come. One thread.

    While a feed is away, or has to wait, it stands still: what that sends again comes afterwards, however late. Short
    breaks count, as those of a server that ends each answer: there, ids would be remembered for ever.
    """

    def __init__(self) -> None:
        self._before_s = 0.0
        """What the writers before have counted."""
        self._began = time.monotonic()
        self._stops_at: float | None = None

    def after(self, at_s: float) -> float:
        """Go on from what a writer before has noted, or from more; return that."""
        self._before_s, self._began = max(self._before_s, at_s), time.monotonic()
        return self._before_s

    def seconds(self) -> float:
        """Return for how long it was in all."""
        upto = time.monotonic()
        if self._stops_at is not None:
            upto = min(upto, self._stops_at)
        return round(self._before_s + upto - self._began, 3)

    def stop(self) -> None:
        """Stand still, unless it is soon told to go on. Idempotent."""
        if self._stops_at is None:
            self._stops_at = time.monotonic() + _BREAK_S

    def go_on(self) -> None:
        """Count again. Idempotent."""
        if self._stops_at is not None:
            self._began += max(0.0, time.monotonic() - self._stops_at)
            self._stops_at = None


class Window:
    """Hashes of ids by the segment that holds them. One thread.

    An id is forgotten when it was learnt, or came again, more than ``seconds`` ago by the journal's own clock: a wall
    clock that jumps makes nobody forget, and short lives do not remember for ever.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._known: dict[bytes, tuple[float, int]] = {}
        """When each was learnt last, and of which segment or fold: it may be learnt twice, where only what comes again
        is left out."""
        self._again: set[bytes] = set()
        self._learnt: deque[tuple[float, int, tuple[bytes, ...]]] = deque()
        """In the order of their time."""

    def __len__(self) -> int:
        return len(self._known)

    def news(self, hashes: Sequence[bytes | None], suspects: Sequence[bool] | None = None) -> list[bool]:
        """Say of each whether it is new: not remembered, and the first of its kind here.

        None is always new, and so is what is not one of ``suspects``.
        """
        seen: set[bytes] = set()
        found = []
        for each, suspect in zip(hashes, suspects or (True,) * len(hashes), strict=True):
            new = each is None or not suspect or (each not in self._known and each not in seen)
            found.append(new)
            if each is not None:
                seen.add(each)
        return found

    def learn(self, number: int, hashes: Sequence[bytes], at_s: float) -> None:
        """Remember the ids of a segment, of a fold, or of ``AGAIN``, which are known since ``at_s``."""
        if hashes:
            insort(self._learnt, (at_s, number, tuple(hashes)))
            newer = (each for each in hashes if self._known.get(each, (at_s, 0))[0] <= at_s)
            self._known.update(dict.fromkeys(newer, (at_s, number)))
        if number == AGAIN:
            self._again.update(hashes)

    def again(self, hashes: Iterable[bytes]) -> bool:
        """Remember for longer what has come again: a feed that gives the same at each connection goes on to do so.

        Not each time, as they may come again without pause. Say whether any is remembered for longer.
        """
        now = self._clock()
        late = [each for each in hashes if now - self._known.get(each, (now, 0))[0] > self._seconds / 2]
        self.learn(AGAIN, tuple(dict.fromkeys(late)), now)
        return bool(late)

    def came_again(self) -> dict[float, list[bytes]]:
        """Return what is remembered since it came again, by when that was, in this order."""
        found: dict[float, list[bytes]] = {}
        for at_s, each in sorted((self._known[each][0], each) for each in self._again):
            found.setdefault(at_s, []).append(each)
        return found

    def forget(self) -> None:
        """Forget what is old enough."""
        due = self._clock() - self._seconds
        while self._learnt and self._learnt[0][0] < due:
            at_s, number, hashes = self._learnt.popleft()
            for each in hashes:
                if self._known.get(each) == (at_s, number):
                    del self._known[each]
                    self._again.discard(each)

    def between(self, first: int, last: int) -> list[bytes]:
        """Return what is remembered of the segments from ``first`` to ``last``."""
        found = (hashes for _, number, hashes in self._learnt if first <= number <= last)
        return list(dict.fromkeys(chain.from_iterable(found)))

    def oldest(self) -> int | None:
        """Return the number of the oldest segment or fold of which anything is remembered."""
        return min((number for _, number, _ in self._learnt if number != AGAIN), default=None)
