"""Kills a process before its n-th step: a change of a file below a folder, or of what a Kafka broker knows."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# How many paths each of https://docs.python.org/3/library/audit_events.html begins with, of those that change names.
_NAMES = {"os.link": 2, "os.mkdir": 1, "os.remove": 1, "os.rename": 2, "os.rmdir": 1}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
# A look at who is alive, and whether a file system is fit, are nobody's state.
_NO_STATE = ("/alive", "probe")
# What is sent to a broker that it does not forget.
_CHANGES = ("InitProducerId", "EndTxn")


def die_at(nth: int, folder: str, *, names_alone: bool = False) -> Callable[[], None]:
    """Kill this process before its n-th step; return what counts a step that is no change of a file.

    With ``names_alone``, a file that is opened to be written is none, as it gets its name later.
    """
    left = nth

    def step() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        paths = arguments[: _NAMES.get(event, 0)]
        if event == "open" and not names_alone and isinstance(flags := arguments[2], int) and flags & _WRITES:
            paths = arguments[:1]
        texts = [str(os.fspath(path)) for path in paths if isinstance(path, str | os.PathLike)]
        if any(text.startswith(folder) for text in texts) and not any(
            name in text for text in texts for name in _NO_STATE
        ):
            step()

    sys.addaudithook(hook)
    return step


def count_requests(step: Callable[[], None]) -> None:
    """Count what changes what a broker knows as two steps: before it is sent, and once it is answered."""
    from kafka.net.connection import KafkaConnection

    send = KafkaConnection._send_request

    def counting(self: Any, request: Any, future: Any = None, **more: Any) -> Any:  # noqa: ANN401  it is untyped
        if type(request).__name__.startswith(_CHANGES):
            step()
            future.add_both(lambda _: step())
        return send(self, request, future, **more)

    KafkaConnection._send_request = counting


def main() -> None:
    """``python dying.py NTH FOLDER WORD…``: a command of onceonly that is killed there."""
    import onceonly.cli

    nth, folder, *words = sys.argv[1:]
    count_requests(die_at(int(nth), os.path.realpath(folder), names_alone=True))
    sys.argv = ["onceonly", *words]
    onceonly.cli.main()


if __name__ == "__main__":
    main()
