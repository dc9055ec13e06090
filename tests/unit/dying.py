"""Kills a process before its n-th change of a file below a folder."""

from __future__ import annotations

import os
import signal
import sys

# How many paths each of https://docs.python.org/3/library/audit_events.html begins with, of those that change names.
_NAMES = {"os.link": 2, "os.mkdir": 1, "os.remove": 1, "os.rename": 2, "os.rmdir": 1}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# A look at who is alive, and whether a file system is fit, are nobody's state.
_NO_STATE = ("/alive", "probe")


def die_at(nth: int, folder: str) -> None:
    """Kill this process before its n-th change of a file below a folder."""
    left = nth

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        paths = arguments[: _NAMES.get(event, 0)]
        if event == "open" and isinstance(flags := arguments[2], int) and flags & _WRITES:
            paths = arguments[:1]
        texts = [str(os.fspath(path)) for path in paths if isinstance(path, str | os.PathLike)]
        if any(text.startswith(folder) for text in texts) and not any(
            name in text for text in texts for name in _NO_STATE
        ):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
