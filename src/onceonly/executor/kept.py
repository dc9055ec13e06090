"""A process's few things that are dear to make, kept between uses."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("onceonly")

K = TypeVar("K")


class Closable(Protocol):
    """What ``Kept`` asks of a thing."""

    def close(self) -> None: ...


V = TypeVar("V", bound=Closable)


class Kept(Generic[K, V]):
    """At most ``limit`` things, the longest unused is closed first. Any thread.

    A thing in use belongs to its user alone: a second user of the same key makes another one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._things: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def use(
        self, key: K, make: Callable[[], V], *, fits: Callable[[V], bool] = lambda _: True
    ) -> Iterator[V]:
        """Yield the thing of this key; one that does not fit, or whose use raised, is closed and made anew."""
        with self._lock:
            held = self._things.pop(key, None)
        if held is not None and not fits(held):
            close(held)
            held = None
        thing = make() if held is None else held
        try:
            yield thing
        except BaseException:  # an interrupt, too, leaves it in a state that nobody knows
            close(thing)
            raise
        with self._lock:
            surplus = [self._things.pop(key)] if key in self._things else []
            self._things[key] = thing
            while len(self._things) > self._limit:
                surplus.append(self._things.popitem(last=False)[1])
        for each in surplus:
            close(each)


def close(thing: Closable) -> None:
    """Close what nobody uses any more; raises nothing, as that would hide an error or fail whoever comes next."""
    try:
        thing.close()
    except Exception as error:  # noqa: BLE001  a client's own: what it held goes with the process
        log.warning("%s could not be closed: %s: %s", type(thing).__name__, type(error).__name__, error)
