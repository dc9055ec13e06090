"""Work in a thread of its own, for a process that may end before it. Any process."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def begin(name: str, work: Callable[..., T], *arguments: object) -> Future[T]:
    """Begin ``work`` in a thread called ``name``; what it gives or raises comes where it is waited for."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            future.set_exception(error)

    # A daemon: it must not keep a process alive that Spark wants gone.
    threading.Thread(target=run, name=name, daemon=True).start()
    return future
