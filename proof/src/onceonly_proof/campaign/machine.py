"""The machine that a run has had: what it is, what is installed, and its work folder when the run is over. Anywhere."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import psutil

from onceonly.jars.java import find_java

_PACKAGES = ("onceonly", "pyspark", "confluent-kafka", "kafka-python", "numba")


def machine() -> dict[str, str | int | float]:
    """Describe the machine: cores, memory, system, Java. Starts Java once; raises ``SetupError`` without one."""
    java = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=False, timeout=30)
    return {
        "cores": os.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": system(platform.system(), platform.release(), platform.machine()),
        "java": (java.stderr.splitlines() or [""])[0],
    }


def before() -> dict[str, str | int | float]:
    """Describe the machine as ``machine`` does, and what it has to do before a run begins: its load."""
    return {**machine(), "load_before": round(os.getloadavg()[0], 1)}


def system(name: str, release: str, processor: str) -> str:
    """Name a system without the suffix of its kernel's build, which says nothing to others. Pure."""
    number = re.match(r"\d+(\.\d+)?", release)
    return f"{name} {number[0]}, {processor}" if number else f"{name}, {processor}"


def versions() -> dict[str, str]:
    """Return the versions of what runs: Python, this code's commit, and the packages that are installed."""
    found = {"python": platform.python_version(), "commit": commit()}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def commit() -> str:
    """Name the code that runs, where it is a work tree of git; with ``+`` if it was changed."""
    with suppress(OSError, subprocess.SubprocessError):
        git = ["git", "-C", str(Path(__file__).parent)]
        found = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run(
            [*git, "status", "--porcelain", "."], capture_output=True, text=True, check=True
        )
        return found.stdout.strip() + ("+" if changed.stdout.strip() else "")
    return ""


def tidy(folder: Path, kept: list[Path]) -> None:
    """Remove all but the rounds that are kept; the folder too, if there are none. Any number of times."""
    for path in folder.iterdir():
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()
