"""A Spark cluster of several hosts on one machine: a master, and workers on loopback addresses of their own.

Spark starts no twin of a slow task on the host where the first one runs (``TaskSetManager``), and in ``local-cluster``
all workers are one host.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil
import pyspark

from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SPARK_CLASS = str(Path(pyspark.__file__).with_name("bin") / "spark-class")
_START_S = 120.0


def _nothing(_host: str) -> dict[str, str]:
    return {}


class Standalone:
    """One master, and one worker with one core for each host. What it writes goes into a folder.

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
            **os.environ,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED_JAVA} {os.environ.get('SPARK_DAEMON_JAVA_OPTS', '')}",
            "SPARK_LOCAL_DIRS": str(folder / "spark"),
        }
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
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
            if daemon.poll() is None:
                family += psutil.Process(daemon.pid).children(recursive=True)
                daemon.terminate()
                daemon.wait(30)
        for process in psutil.wait_procs(family, timeout=10)[1]:
            process.kill()

    def conf(self, env: Mapping[str, str]) -> list[str]:
        """Return the job's arguments to run here, with this environment in its executors."""
        settings = {
            "driver.host": self._hosts[0],
            "executor.memory": "700m",
            "locality.wait": "0",
            # No task begins before each host has its executor.
            "cores.max": str(len(self._hosts)),
            "scheduler.minRegisteredResourcesRatio": "1",
        }
        settings |= {f"executorEnv.{name}": value for name, value in env.items()}
        pairs = (part for name, value in settings.items() for part in ("--conf", f"spark.{name}={value}"))
        return ["--master", self.url, *pairs]

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
        command = [_SPARK_CLASS, f"org.apache.spark.deploy.{what.lower()}.{what}", "--port", "0"]
        with log.open("wb") as out:
            daemon = subprocess.Popen(
                [*under, *command, "--webui-port", "0", *options], stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                env={**self._env, **(own or {})}, cwd=self._folder,
            )  # fmt: skip
        self._daemons.append(daemon)
        says = {"Master": "Starting Spark master at", "Worker": "Successfully registered with master"}[what]

        def said() -> re.Match[str] | None:
            assert daemon.poll() is None, log.read_text(encoding="utf-8")
            return re.search(rf"{says} (spark://\S+)", log.read_text(encoding="utf-8"))

        return _until(said, log)[1]


def _until(condition: Callable[[], re.Match[str] | None], log: Path) -> re.Match[str]:
    deadline = time.monotonic() + _START_S
    while (found := condition()) is None:
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
        time.sleep(0.05)
    return found
