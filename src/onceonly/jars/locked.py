"""The jars of Spark's Kafka connector, and of whatever else an installed distribution lists: resolved once.

A distribution names a package of its own under the entry point ``onceonly.jars``; that package holds a ``jars.lock``.
The jars live in ``ONCEONLY_CACHE``, ``$XDG_CACHE_HOME/onceonly`` or ``~/.cache/onceonly``, below
``jars``. A jar gets its name there only after its sha256 was found right; each process checks it
again at its first use. What is there and right is never fetched again.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from onceonly.errors import SetupError
from onceonly.jars import ivy
from onceonly.jars.installed import Spark, installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

LISTS = "onceonly.jars"
"""The group of entry points that name packages with a lock list."""
_ATTEMPTS_MAX = 3  # repositories hiccup; a longer outage is the caller's to wait for
_OFFLINE = ("UnknownHost", "ConnectException", "NoRouteToHost", "went silent", "Host ")
UNFINISHED = ".resolving-"
"""How the names of folders begin that are only on their way into the cache."""
_log = logging.getLogger(__name__)
_verified: set[Path] = set()


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock list."""

    coordinates: str
    """``group:artifact:version``, and ``@zip`` behind it for what is no jar"""
    sha256: str
    used_by: frozenset[str]
    """``spark-4.2_2.13`` for the connector that was tried with Spark 4.2 for Scala 2.13; with a version, as in
    ``broker-3.9``, what is fetched only where it is asked for."""

    @property
    def file_name(self) -> str:
        """The name in the cache folder, unique in the list."""
        _, artifact, version, kind = ivy.parts(self.coordinates)
        return f"{artifact}-{version}.{kind}"


def connector_jars(console: Console | None = None) -> list[Path]:
    """Return the jars that the installed Spark needs to read and write Kafka; see `ensure_jars`.

    Raises:
        SetupError: also where no connector was tried with that Spark.
    """
    spark = installed()
    if not _locked(_connector(spark)):
        raise SetupError(
            f"The jars of the Kafka connector for Spark {spark.version} (Scala {spark.scala}) are in no lock list.",
            next_step="set spark.jars.packages to onceonly.packages(), which Spark resolves by itself",
        )
    return ensure_jars(console, used_by=_connector(spark))


def packages() -> str:
    """Return the Maven coordinates of Spark's Kafka connector, comma-separated, for ``spark.jars.packages``.

    Driver; looks at the PySpark that is installed, and at nothing else. They are those that were tried with PySpark of
    its line (as 4.2), the nearest where not every mirror has its own; of a line that was not tried, it is Spark's own
    name for its connector. ``spark.jars.packages`` asks for what they depend on, too, which not every mirror has; where
    it fails, use `spark_jars`. Raises ``SetupError`` where there is no PySpark.
    """
    spark = installed()
    tried = [jar.coordinates for jar in _locked(_connector(spark))]
    return ",".join(tried) or f"org.apache.spark:spark-sql-kafka-0-10_{spark.scala}:{spark.version}"


def spark_jars(console: Console | None = None) -> str:
    """Return the local paths of the connector's jars, comma-separated, for ``spark.jars``.

    Driver; those that were tried with the PySpark that is installed, fetched where they are missing. Raises
    ``SetupError`` where that is not possible.
    """
    return ",".join(map(str, connector_jars(console)))


def cache_folder() -> Path:
    """Return the folder in which onceonly keeps what it downloaded. Pure; may not exist yet."""
    own = os.environ.get("ONCEONLY_CACHE")
    if own:
        return Path(own)
    common = os.environ.get("XDG_CACHE_HOME")
    return (Path(common) if common else Path.home() / ".cache") / "onceonly"


def ensure_jars(console: Console | None = None, *, used_by: str | None = None) -> list[Path]:
    """Return the paths of all jars but those of one version only, or of those for one use; fetch what is missing.

    Driver or user's machine; idempotent; instant when all are there. Safe in several processes at
    once: one fetches, the others wait for it. Shows a progress bar if a console is given.

    Raises:
        SetupError: no Java, no network, or the repository gave something else than was locked.
    """
    jars = _locked(used_by)
    folder = cache_folder() / "jars"
    if any(not _is_intact(folder, jar) for jar in jars):
        with alone_in(folder):
            # Whoever was here before us may have fetched them.
            missing = [jar for jar in jars if not _is_intact(folder, jar)]
            if missing:
                _resolve(missing, folder, console)
    return [folder / jar.file_name for jar in jars]


@cache
def _lock_list() -> tuple[Jar, ...]:
    lists = ["onceonly.jars", *(point.value for point in metadata.entry_points(group=LISTS))]
    jars: dict[str, Jar] = {}
    for package in dict.fromkeys(lists):
        text = resources.files(package).joinpath("jars.lock").read_text()
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, sha256, users = line.split()
                used_by = frozenset(users.split(","))
                # Two lists may name one jar; with another checksum it would be another file under the same name.
                known = jars.get(name, Jar(name, sha256, used_by))
                if known.sha256 != sha256:
                    raise SetupError(
                        f"The lock lists of {' and '.join(dict.fromkeys(lists))} expect different bytes of {name}.",
                        next_step="install versions of onceonly and onceonly-proof that were released together",
                    )
                jars[name] = Jar(name, sha256, known.used_by | used_by)
    return tuple(jars.values())


def _locked(used_by: str | None) -> list[Jar]:
    if used_by is None:
        every = [jar for jar in _lock_list() if any("-" not in user for user in jar.used_by)]
        return list(dict.fromkeys([*every, *_locked(_connector(installed()))]))
    return [jar for jar in _lock_list() if used_by in jar.used_by]


def _connector(spark: Spark) -> str:
    """Return the user of the jars that were tried with a Spark."""
    return f"spark-{spark.line}_{spark.scala}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_intact(folder: Path, jar: Jar) -> bool:
    path = folder / jar.file_name
    if not path.is_file():
        return False
    if path not in _verified:
        if _sha256(path) != jar.sha256:
            _log.warning("%s is damaged and is resolved again.", path)
            return False
        _verified.add(path)
    return True


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Be the only process in a folder of the cache, which is made; clear away what others left unfinished.

    Raises:
        SetupError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise SetupError(
            f"The cache folder {folder} cannot be written: {error.strerror}.",
            next_step="let ONCEONLY_CACHE name a folder that can, then run the command again",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the process, however that ends
        for leftover in folder.glob(f"{UNFINISHED}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def _resolve(jars: Sequence[Jar], folder: Path, console: Console | None) -> None:
    missing = list(jars)
    problems: list[str] = []
    with _progress(console, len(jars)) as report:
        for _ in range(_ATTEMPTS_MAX):
            before = len(missing)
            with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=folder) as name:
                problems = ivy.fetch((jar.coordinates for jar in missing), Path(name), report)
                missing = [jar for jar in missing if not _install(jar, Path(name), folder)]
            is_offline = any(sign in line for line in problems for sign in _OFFLINE)
            if not missing or (is_offline and len(missing) == before):
                break
    if missing:
        raise _failure(missing, problems)


def _install(jar: Jar, source: Path, folder: Path) -> bool:
    fetched = source / jar.file_name
    if not fetched.is_file() or _sha256(fetched) != jar.sha256:
        return False
    fetched.replace(folder / jar.file_name)
    _verified.add(folder / jar.file_name)
    return True


def _failure(missing: Sequence[Jar], problems: Sequence[str]) -> SetupError:
    names = ", ".join(jar.coordinates for jar in missing[:3])
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""  # noqa: PLR2004 - as above
    offline = [line for line in problems if any(sign in line for sign in _OFFLINE)]
    if offline:
        why = f"the Maven repository cannot be reached from this machine ({offline[0]})"
    elif problems:
        why = f"the Maven repository did not deliver them ({problems[-1]})"
    else:
        why = "the Maven repository delivered other bytes than the lock list expects"
    return SetupError(
        f"Jars are missing: {names}{more}; {why}.",
        next_step=(
            f"check the network, or let {ivy.REPOSITORY_VARIABLE} name a mirror, then run `onceonly jars`"
        ),
    )


@contextmanager
def _progress(console: Console | None, total: int) -> Iterator[Callable[[str], None]]:
    if console is None:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console) as bar:
        look_up = bar.add_task("Looking up jars ", total=total)
        download = bar.add_task("Downloading jars", total=total)

        def on_line(line: str) -> None:
            if line.startswith("\tfound "):
                bar.advance(look_up)
            elif "[SUCCESSFUL ]" in line:
                bar.advance(download)

        yield on_line
