"""Runs ``spark-submit`` of the PySpark that is installed, with what it is told; for servers, which are no Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

COMMAND = Path(pyspark.__file__).parent / "bin" / "spark-submit"

if __name__ == "__main__":
    os.execv(COMMAND, [str(COMMAND), *sys.argv[1:]])  # noqa: S606  as Spark means it
