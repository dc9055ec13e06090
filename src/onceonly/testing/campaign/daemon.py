"""Stands in for the Python that Spark starts workers with: imports what they need before the first is forked.

A campaign's workers die by the hundred, and each new one would spend most of a second on imports. ``interpreter``
writes the executable for ``spark.pyspark.python``; the rest is Spark's own daemon, unchanged.
"""

from __future__ import annotations

import importlib
import runpy
import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# None of them starts a thread when it is imported, so they outlive a fork.
_NEEDED = (
    "confluent_kafka.admin",
    "kafka",
    "onceonly.sinks.files.sink",
    "onceonly.sinks.kafka.sink",
    "onceonly.spark.format",
    "pyarrow",
    "pyspark.worker",
)


def interpreter(folder: Path) -> str:
    """Write the executable, and give its path. Driver, before Spark starts."""
    path = folder / "python"
    command = shlex.join([sys.executable, "-W", "ignore", "-m", "onceonly.testing.campaign.daemon"])
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def main() -> None:
    """Run ``-m MODULE …`` as Python would."""
    flag, module, *rest = sys.argv[1:]
    if flag != "-m":
        message = f"Spark has started Python with {sys.argv[1:]}, where -m MODULE was expected"
        raise SystemExit(message)
    for name in _NEEDED:
        importlib.import_module(name)
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
