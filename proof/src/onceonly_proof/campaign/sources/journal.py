"""What rounds over a journal have in common: its options, and the receiver beside the job, which dies, too."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly_proof.embedded.process import GuardedProcess
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from random import Random

_POLL_S = 0.1
_UP_S = 120.0


class Reading:
    """How a job reads over a journal: by a receiver inside of it or, as often as not, by one beside it."""

    def __init__(
        self,
        draw: Random,
        feed: str,
        given: Mapping[str, str],
        folder: Path,
        env: Mapping[str, str],
        *,
        rows: int,
        tasks: int,
    ) -> None:
        self.options = {
            **given,
            "journal": str(folder / "journal"),
            "linger": "20 ms",
            # Small, so that an epoch has some.
            "segmentBytes": "16k",
            "maxRowsPerTrigger": str(rows),
            "tasks": str(tasks),
        }
        self._receiver: Receiver | None = None
        if draw.random() < 0.5:  # noqa: PLR2004  as often as not
            self._receiver = Receiver(feed, self.options, folder, env)
            self.options["receiver"] = "outside"

    def start(self) -> None:
        """Start the receiver beside the job, if there is one. Raises ``UnavailableError``."""
        if self._receiver is not None:
            self._receiver.start()

    def close(self) -> None:
        """End it. Idempotent."""
        if self._receiver is not None:
            self._receiver.close()


class Receiver:
    """``onceonly journal run``, in a process of its own, and started again whenever it has died."""

    def __init__(self, feed: str, given: Mapping[str, str], folder: Path, env: Mapping[str, str]) -> None:
        told = [f"{name}={value}" for name, value in env.items()]
        words = [word for name, value in given.items() for word in ("-o", f"{name}={value}")]
        self._command = [
            "env", *told, sys.executable, "-W", "ignore", "-m", "onceonly", "journal", "run", feed, *words,
        ]  # fmt: skip
        self._folder = folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    def start(self) -> None:
        """Start it, and wait until there is a journal. Raises ``UnavailableError``."""
        self._thread.start()
        if not until((self._folder / "journal" / "journal").exists, _UP_S):
            raise UnavailableError(
                "the receiver beside the job has made no journal",
                next_step="read receiver.log in the kept folder",
            )

    def close(self) -> None:
        """End it. Idempotent."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            process = GuardedProcess(self._command, self._folder / "receiver.log")
            while not self._ended.is_set() and not process.has_ended(_POLL_S):
                pass
            process.kill()
