"""A Spark cluster of several hosts on one machine: a master, and workers on loopback addresses of their own.

Spark starts no twin of a slow task on the host where the first one runs (``TaskSetManager``), and in ``local-cluster``
all workers are one host.
"""

from __future__ import annotations

import os
import re
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from onceonly.errors import SetupError
from onceonly_proof.embedded.process import GuardedProcess
from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_START_S = 120.0
_SHOWN = 2000
"""How many of the last characters of a daemon's log are shown."""


def _nothing(_host: str) -> dict[str, str]:
    return {}


class Standalone:
    """One master, and one worker with one core for each host. What it writes goes into a folder, which is made.

    ``own`` is the environment that a host has for itself, and its executors with it; ``under`` is the command by which
    its worker is started, and traced, for example.
    """

    def __init__(
        self,
        folder: Path,
        hosts: Sequence[str],
        *,
        own: Callable[[str], Mapping[str, str]] = _nothing,
        under: Callable[[str], Sequence[str]] = lambda _host: (),
    ) -> None:
        self._folder = folder
        self._hosts = hosts
        self._own = own
        self._under = under
        self._env = {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED_JAVA} {os.environ.get('SPARK_DAEMON_JAVA_OPTS', '')}",
            "SPARK_LOCAL_DIRS": str(folder / "spark"),
        }
        self._daemons: list[GuardedProcess] = []
        self.url = ""

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self.url = self._start("master", "Master", "--host", self._hosts[0])
            for host in self._hosts:
                work = str(self._folder / f"work-{host}")
                self._start(host, "Worker", "--host", host, "--cores", "1", "--memory", "1g", "--work-dir", work,
                            self.url, own=self._own(host), under=self._under(host))  # fmt: skip
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers, which end their executors, and the master; then see that none is left."""
        family: list[psutil.Process] = []
        for daemon in reversed(self._daemons):
            if not daemon.has_ended():
                family += psutil.Process(daemon.pid).children(recursive=True)
                daemon.stop(30)
        for process in psutil.wait_procs(family, timeout=10)[1]:
            process.kill()

    def conf(self, env: Mapping[str, str]) -> list[str]:
        """Return the job's arguments to run here, with this environment in its executors."""
        told = {**self.settings(), **{f"spark.executorEnv.{name}": value for name, value in env.items()}}
        pairs = (part for name, value in told.items() for part in ("--conf", f"{name}={value}"))
        return ["--master", self.url, *pairs]

    def settings(self) -> dict[str, str]:
        """Return the settings of a session that runs here, but for its master."""
        return {
            "spark.driver.host": self._hosts[0],
            "spark.executor.memory": "700m",
            "spark.locality.wait": "0",
            # No task begins before each host has its executor.
            "spark.cores.max": str(len(self._hosts)),
            "spark.scheduler.minRegisteredResourcesRatio": "1",
        }

    def _start(
        self,
        name: str,
        what: str,
        *options: str,
        own: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
    ) -> str:
        """Start a daemon and wait until it serves; give what it says of where the master is."""
        log = self._folder / f"{name}.log"
        command = [_spark_class(), f"org.apache.spark.deploy.{what.lower()}.{what}", "--port", "0"]
        given = [f"{name}={value}" for name, value in {**self._env, **(own or {})}.items()]
        where = ["env", f"--chdir={self._folder}", *given]
        daemon = GuardedProcess([*under, *where, *command, "--webui-port", "0", *options], log)
        self._daemons.append(daemon)
        says = {"Master": "Starting Spark master at", "Worker": "Successfully registered with master"}[what]

        deadline = time.monotonic() + _START_S
        while True:
            told = log.read_text(encoding="utf-8", errors="replace")
            if found := re.search(rf"{says} (spark://\S+)", told):
                return found[1]
            if daemon.has_ended() or time.monotonic() > deadline:
                raise SetupError(
                    f"Spark's {what.lower()} did not come up: {told[-_SHOWN:]}",
                    next_step="see to what it says",
                )
            time.sleep(0.05)


def _spark_class() -> str:
    """Return the command of the installed PySpark that starts a daemon."""
    spec = find_spec("pyspark")
    return str(Path(spec.origin if spec and spec.origin else "pyspark").parent / "bin" / "spark-class")
