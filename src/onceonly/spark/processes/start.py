"""Lets Spark's Python processes start from the installed PySpark: ``spark.executorEnv.PYTHONPATH`` names ``FOLDER``.

Spark puts its zipped copy of PySpark first on the path of every Python that it starts. A zip holds no compiled files,
so each of them compiles PySpark's source anew: 1.1 s of a processor instead of 0.25 until it is ready to fork (PySpark
4.2, measured). A query with a Python sink starts four of them, three one after the other before its first rows are
visible. ``spark.python.daemon.module`` would reach only those that run tasks.
"""

from __future__ import annotations

import os
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(__file__).with_name("site")
"""Holds what Python runs when it starts, and nothing else. On a machine where it is missing, nothing changes."""
_ZIP = os.path.join("pyspark", "python", "lib", "pyspark.zip")  # noqa: PTH118  the end of a text


def without_zips(path: Sequence[str]) -> list[str]:
    """Return a module path without the zips of a PySpark that is installed on it as well, otherwise as it is.

    Only where the zips lie inside the installed package, as from pip: then both are the same version.
    """
    installed = {os.path.realpath(entry) for entry in path}
    libs = {
        Path(entry).parent
        for entry in path
        if entry.endswith(_ZIP) and os.path.realpath(Path(entry).parents[3]) in installed
    }
    rest = [entry for entry in path if not (entry.endswith(".zip") and Path(entry).parent in libs)]
    return rest if all(PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j")) else list(path)
