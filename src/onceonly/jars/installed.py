"""The PySpark that is installed here, looked at without importing it: which version, which Scala, which classes."""

from __future__ import annotations

import importlib.util
import mmap
import os
import re
from dataclasses import dataclass
from pathlib import Path

from onceonly.errors import SetupError

# As Spark names its own jars; a vendor's version goes on behind the three numbers.
_CORE = re.compile(r"spark-core_(\d+\.\d+)-(\d+\.\d+\.\d+).*\.jar")
_VERSION = re.compile(r"""^__version__.*?["'](\d+\.\d+\.\d+)""", re.MULTILINE)
_SCALA_OF_3, _SCALA = "2.12", "2.13"


@dataclass(frozen=True, slots=True)
class Spark:
    """One Spark. ``version`` has three numbers, ``scala`` has two."""

    version: str
    scala: str

    @property
    def line(self) -> str:
        """The first two numbers of the version."""
        return self.version.rpartition(".")[0]


def installed() -> Spark:
    """Return which Spark a job of this Python would run on. Anywhere; looks at files, imports nothing.

    Raises:
        SetupError: there is no PySpark here.
    """
    named = (_CORE.fullmatch(path.name) for path in jars("spark-core_*.jar"))
    found = next(filter(None, named), None)
    if found is not None:
        return Spark(version=found[2], scala=found[1])
    # Some platforms keep Spark's jars elsewhere.
    for folder in _folders():
        path = folder / "version.py"
        told = _VERSION.search(path.read_text(encoding="utf-8")) if path.is_file() else None
        if told is not None:
            return Spark(told[1], _SCALA_OF_3 if told[1].startswith("3.") else _SCALA)
    raise SetupError(
        "Which version of Spark a job would run on is not known: there is no PySpark here.",
        next_step="install it with `pip install 'onceonly[spark]'`, or run this where the job runs",
    )


def has_class(name: str) -> bool:
    """Say whether Spark's SQL module has a class of this name. Anywhere; False where its jar is not found."""
    # The names in a jar are not compressed, so that no list of ten thousand of them has to be read.
    entry = name.replace(".", "/").encode() + b".class"
    for path in jars("spark-sql_*.jar"):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as jar:
            if jar.find(entry) >= 0:
                return True
    return False


def jars(pattern: str) -> list[Path]:
    """Return the jars of Spark's own folder with such a name. Anywhere; looks at files."""
    home = os.environ.get("SPARK_HOME")
    return sorted(
        path for folder in ([Path(home)] if home else _folders()) for path in (folder / "jars").glob(pattern)
    )


def _folders() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    return [Path(folder) for folder in (spec.submodule_search_locations if spec else None) or ()]
