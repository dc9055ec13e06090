"""A real OpenSearch or Elasticsearch on loopback, as their builders test with it: gone with the process. Needs Java.

::

    with EmbeddedOpenSearch() as search:
        ...  # search.url
        search.kill()  # SIGKILL
        search.start()  # the same documents at the same address
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.request import urlopen

from onceonly.errors import SetupError
from onceonly.jars.java import find_java
from onceonly.jars.locked import ensure_jars
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import Embedded, GuardedProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

_READY_S = 180.0
_CALL_S = 10.0
_POLL_S = 0.1
_OLDEST_JAVA = 11
_NOT_ROOT = "nobody"
_SETTINGS = {
    "cluster.name": "onceonly",
    "node.name": "one",
    "network.host": "127.0.0.1",
    "discovery.type": "single-node",
    "cluster.routing.allocation.disk.threshold_enabled": "false",
}
_OPTIONS = ("-Xms384m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")
# What would choose another collector, or write where the server was unpacked.
_NOT_OURS = re.compile(r"G1|Xlog:gc|InitiatingHeapOccupancy|HeapDumpPath|ErrorFile|^-Xm[sx]")


class EmbeddedOpenSearch(Embedded):
    """One node without plug-ins: no users, no TLS. Not shared between threads. ``settings`` are lines of its own.

    Started by root, whom the server refuses, it runs as the user nobody, and needs a folder that this one can reach: by
    default one in memory.
    """

    name: ClassVar[str] = "opensearch"
    own: ClassVar[Mapping[str, str]] = {}
    """Settings of this kind of server."""

    def __init__(self, directory: Path | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        self._is_temporary = directory is None
        self._user = pwd.getpwnam(_NOT_ROOT) if os.geteuid() == 0 else None
        # What pytest gives is its user's alone.
        memory = Path("/dev/shm")  # noqa: S108  made by mkdtemp below it
        self.directory = directory or Path(
            tempfile.mkdtemp(
                prefix=f"onceonly-{self.name}-", dir=memory if self._user and memory.is_dir() else None
            )
        )
        self.settings = {**_SETTINGS, **self.own, **(settings or {})}
        self._ports: list[int] = []
        self._process: GuardedProcess | None = None

    @property
    def url(self) -> str:
        """The address for the sink's option ``url``, the same through restarts. Known once it was started."""
        return f"http://127.0.0.1:{self._ports[0]}"

    def start(self) -> None:
        """Start it and wait until it answers; after a kill, with the same documents. Idempotent while it runs.

        Raises:
            SetupError: no Java, no archive, or it did not come up; shows its last words.
        """
        if self._process is not None:
            return
        if not self._ports:
            self._ports = free_ports(2)
            self._unpack()
        java = str(Path(find_java(oldest=_OLDEST_JAVA)).resolve().parents[1])
        config, temporary = str(self._home / "config"), str(self.directory / "tmp")
        # Both ask for these, by names of their own.
        told = {
            f"{kind}_{name}": value
            for kind in ("OPENSEARCH", "ES")
            for name, value in {
                "JAVA_HOME": java,
                "PATH_CONF": config,
                "TMPDIR": temporary,
                "JAVA_OPTS": " ".join(_OPTIONS),
            }.items()
        }
        command = [
            "env",
            *(f"{name}={value}" for name, value in told.items()),
            str(self._home / "bin" / self.name),
        ]
        self._process = GuardedProcess(command, self._log, user=self._user and self._user.pw_uid)
        deadline = time.monotonic() + _READY_S
        while not self._answers():
            if self._process.has_ended(_POLL_S) or time.monotonic() > deadline:
                self.kill()
                words = self._log.read_text(errors="replace").splitlines()[-5:] if self._log.exists() else []
                raise SetupError(
                    f"{self.name} in {self.directory} did not come up: {' '.join(words) or 'it said nothing'}",
                    next_step="read its log there; usual are a full disk and too little memory",
                )

    def kill(self) -> None:
        """End it with SIGKILL; its documents stay. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def close(self) -> None:
        """End it, and remove its folder, unless that was given. Idempotent."""
        self.kill()
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def _home(self) -> Path:
        return next(self.directory.glob(f"{self.name}-*"))

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _unpack(self) -> None:
        [archive] = ensure_jars(used_by=f"search-{self.name}")
        self.directory.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(self.directory)
        for script in (self._home / "bin").iterdir():
            script.chmod(0o755)
        paths = {"path.data": self.directory / "data", "path.logs": self.directory / "logs"}
        ports = {"http.port": self._ports[0], "transport.port": self._ports[1]}
        lines = [f"{name}: {value}\n" for name, value in {**self.settings, **paths, **ports}.items()]
        (self._home / "config" / f"{self.name}.yml").write_text("".join(lines))
        options = self._home / "config" / "jvm.options"
        kept = [line for line in options.read_text().splitlines() if not _NOT_OURS.search(line)]
        options.write_text("\n".join(kept) + "\n")
        for name in ("data", "logs", "tmp"):
            (self.directory / name).mkdir()
        if self._user is not None:
            for path in (self.directory, *self.directory.rglob("*")):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/_cluster/health", timeout=_CALL_S) as answer:  # noqa: S310  of this machine
                return b'"status":"red"' not in answer.read()
        except OSError:
            return False


class EmbeddedElasticsearch(EmbeddedOpenSearch):
    """The same of Elasticsearch."""

    name: ClassVar[str] = "elasticsearch"
    own: ClassVar[Mapping[str, str]] = {"xpack.security.enabled": "false"}
