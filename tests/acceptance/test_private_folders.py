"""Executors that share no folder: the checkpoint is on S3, and each has files that nobody else can see.

The kernel's own word for it: all files that the processes of each host open are traced, and those of both compared.
Needs strace, and the right to trace one's own children.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark
import pytest
from harness import open_transactions
from test_executors import executor_of

import onceonly
import onceonly_proof
from onceonly.jars.locked import ensure_jars, spark_jars
from onceonly.spark.processes.start import FOLDER
from onceonly_proof.embedded.s3 import EmbeddedS3
from onceonly_proof.embedded.standalone import Standalone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness import Bench

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(900)]

ROWS = [(f"k{number % 17}", str(number)) for number in range(400)]
HOSTS = KILLED, OTHER = "127.0.0.1", "127.0.0.2"
BUCKET = "checkpoints"
POINT = "slot.after_prepare"
# A file that was opened, by the name that the kernel gives it.
_OPENED = re.compile(r" = \d+<(/[^>]*)>$", re.MULTILINE)
_KERNEL = (
    "/proc",
    "/sys",
    "/dev/null",
    "/dev/urandom",
    "/dev/random",
    "/dev/tty",
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
)


class Hosts:
    """What each host has for itself, in a folder, and the trace of what it opens."""

    def __init__(self, folder: Path) -> None:
        strace = shutil.which("strace")
        if strace is None:
            pytest.fail("strace is needed and was not found; install it (Debian, Ubuntu: apt install strace)")
        self.folder = folder
        self._strace = strace

    def own(self, host: str) -> dict[str, str]:
        """Return the environment of a host: all that says where files go."""
        folders = {name: self.folder / host / name for name in ("home", "tmp", "spark", "fired", "cache")}
        for each in folders.values():
            each.mkdir(parents=True)
        armed = {"ONCEONLY_FAILPOINTS": f"{POINT}=pause@2"} if host == KILLED else {}
        return {
            "HOME": str(folders["home"]),
            "TMPDIR": str(folders["tmp"]),
            "XDG_CACHE_HOME": str(folders["cache"]),
            "SPARK_LOCAL_DIRS": str(folders["spark"]),
            "ONCEONLY_FAILPOINTS_DIR": str(self.fired(host)),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Java has a shared folder of its own for what its processes measure.
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folders['tmp']} -XX:-UsePerfData",
            **armed,
        }

    def under(self, host: str) -> list[str]:
        """Return the command that traces a host. What is traced is its parent, and ends as it would without."""
        return [self._strace, "-D", "-f", "-qq", "-y", "-e", "trace=openat,open,creat", "-e", "signal=none",
                "-o", str(self._trace(host))]  # fmt: skip

    def fired(self, host: str) -> Path:
        return self.folder / host / "fired"

    def opened(self, host: str) -> set[str]:
        return set(_OPENED.findall(self._trace(host).read_text(encoding="utf-8", errors="replace")))

    def _trace(self, host: str) -> Path:
        return self.folder / f"{host}.trace"


def installation() -> list[str]:
    """Name the folders of what is installed: Python, Java, Spark, its jars, onceonly and the tests themselves."""
    java = shutil.which("java")
    assert java
    folders = {
        sys.prefix,
        sys.base_prefix,
        str(Path(pyspark.__file__).parent),
        str(Path(os.path.realpath(java)).parents[1]),
        os.environ.get("JAVA_HOME", sys.prefix),
        *(str(Path(package.__file__ or "").parents[1]) for package in (onceonly, onceonly_proof)),
        str(Path(__file__).parent),
        *filter(os.path.isabs, sys.path),  # where the sources are, if they are installed by their place
    }
    return sorted(os.path.realpath(each) for each in folders)


def outside(paths: Iterable[str], folders: Iterable[str]) -> list[str]:
    within = tuple(folders)
    return sorted(
        path for path in paths if not any(path == each or path.startswith(f"{each}/") for each in within)
    )


def test_two_executors_without_a_common_folder_write_each_row_once_though_one_is_killed(
    bench: Bench, tmp_path: Path
) -> None:
    hosts = Hosts(tmp_path / "hosts")
    bench.feed(ROWS)
    with (
        EmbeddedS3(tmp_path / "s3") as s3,
        Standalone(tmp_path, HOSTS, own=hosts.own, under=hosts.under) as cluster,
    ):
        s3.make_bucket(BUCKET)
        settings = {
            "spark.jars": ",".join([spark_jars(), *map(str, ensure_jars(used_by="store-s3a"))]),
            "spark.executor.extraJavaOptions": "",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]),
            **{f"spark.hadoop.{name}": value for name, value in s3.hadoop().items()},
        }
        bench.args = ["--checkpoint", f"s3a://{BUCKET}/job", *cluster.conf({})]
        bench.args += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        run = bench.start()
        try:
            fired = hosts.fired(KILLED) / f"{POINT}.fired"
            run.until(lambda: fired.exists() and fired.read_text(encoding="utf-8"), f"{POINT} on {KILLED}")
            killed = executor_of(int(fired.read_text(encoding="utf-8")))
            assert f"work-{KILLED}" in killed.cwd()
            killed.kill()
            psutil.wait_procs([killed], timeout=30)
            assert run.wait() == 0, run.tail()
        finally:
            run.kill_tree()
        query = json.loads(s3.read(BUCKET, "job/metadata") or b"")["id"]
    bench.assert_exactly_once(ROWS)
    assert open_transactions(bench.kafka.bootstrap_servers, query) == []
    assert not bench.checkpoint.exists()
    here, there = (hosts.opened(host) for host in HOSTS)
    writers = [{path for path in each if "/onceonly/sinks/kafka/" in path} for each in (here, there)]
    assert all(writers), "both have written, and the trace has seen it"
    assert outside(here & there, [*_KERNEL, *installation()]) == []
