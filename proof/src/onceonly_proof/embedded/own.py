"""What servers of our own have in common: a module that is run, and a file that says when it takes connections."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import TYPE_CHECKING

from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer

if TYPE_CHECKING:
    from pathlib import Path

_READY_S = 20.0
_POLL_S = 0.02


class OwnServer(EmbeddedServer):
    """A server in a process of its own. Not shared between threads."""

    def __init__(self, directory: Path | None, *, prefix: str) -> None:
        super().__init__(directory, prefix=prefix)
        self.port = 0
        """The same through restarts. Known once it was started."""

    def start(self) -> None:
        """Start it and wait until it takes connections. Idempotent while it runs."""
        if self._process is not None:
            return
        self.port = self.port or free_ports(1)[0]
        self.directory.mkdir(parents=True, exist_ok=True)
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        self._process = self._launch([sys.executable, "-m", *self._module()])
        # To connect would be heard.
        self._await(ready.exists, within_s=_READY_S, poll_s=_POLL_S)

    @abstractmethod
    def _module(self) -> list[str]:
        """Return the module's name and what it is told."""
