"""A real OpenSearch or Elasticsearch on loopback, as their builders test with it: gone with the process. Needs Java.

::

    with EmbeddedOpenSearch() as search:
        ...  # search.url
        search.kill()  # SIGKILL
        search.start()  # the same documents at the same address
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.request import urlopen

from onceonly.jars.java import find_java
from onceonly.jars.locked import ensure_jars
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Mapping

_READY_S = 180.0
_CALL_S = 10.0
_POLL_S = 0.1
_OLDEST_JAVA = 11
_SETTINGS = {
    "cluster.name": "onceonly",
    "node.name": "one",
    "network.host": "127.0.0.1",
    "discovery.type": "single-node",
    "cluster.routing.allocation.disk.threshold_enabled": "false",
}
_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")
# What would choose another collector, or write where the server was unpacked.
_NOT_OURS = re.compile(r"G1|Xlog:gc|InitiatingHeapOccupancy|HeapDumpPath|ErrorFile|^-Xm[sx]")


class EmbeddedOpenSearch(EmbeddedServer):
    """One node without plug-ins: no users, no TLS. Not shared between threads.

    ``settings`` are lines of its own; ``heap_mib`` is enough for tests, and too little for who loads it in earnest.
    """

    title = name = "opensearch"
    refuses_root = True
    lines_shown = 5
    kinds_own: ClassVar[Mapping[str, str]] = {}
    """Settings of this kind of server."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        heap_mib: int = 384,
    ) -> None:
        super().__init__(directory, prefix=self.name)
        self._heap = (f"-Xms{heap_mib}m", f"-Xmx{heap_mib}m")
        self.settings = {**_SETTINGS, **self.kinds_own, **(settings or {})}
        self._ports: list[int] = []

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1, the same through restarts. Known once it was started."""
        return self._ports[0]

    @property
    def url(self) -> str:
        """The address for the sink's option ``url``, the same through restarts. Known once it was started."""
        return f"http://127.0.0.1:{self.port}"

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
                "JAVA_OPTS": " ".join((*self._heap, *_OPTIONS)),
            }.items()
        }
        command = [
            "env",
            *(f"{name}={value}" for name, value in told.items()),
            str(self._home / "bin" / self.name),
        ]
        self._process = self._launch(command)
        self._await(self._answers, within_s=_READY_S, poll_s=_POLL_S)

    @property
    def _home(self) -> Path:
        return next(self.directory.glob(f"{self.name}-*"))

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
        self.own(self.directory)

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/_cluster/health", timeout=_CALL_S) as answer:  # noqa: S310  of this machine
                return b'"status":"red"' not in answer.read()
        except OSError:
            return False


class EmbeddedElasticsearch(EmbeddedOpenSearch):
    """The same of Elasticsearch."""

    title = name = "elasticsearch"
    kinds_own: ClassVar[Mapping[str, str]] = {"xpack.security.enabled": "false"}
