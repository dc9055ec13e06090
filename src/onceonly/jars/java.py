"""Finds the Java that runs the broker and Ivy: the one PySpark would take."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from onceonly.errors import SetupError

JAVA_VERSION_MIN = 17  # what Spark 4 and Kafka 4 brokers ask for
_ANSWER_TIMEOUT_S = 30
_NEXT_STEP = (
    "install a Java runtime of version 17 or newer (Debian, Ubuntu: "
    "apt install openjdk-17-jre-headless) or let JAVA_HOME name one, then run the command again"
)


def find_java(oldest: int = JAVA_VERSION_MIN) -> str:
    """Return the path of a Java of this version or newer. Anywhere; idempotent; asks a given Java only once.

    ``JAVA_HOME`` goes before ``PATH``, as in PySpark.

    Raises:
        SetupError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise SetupError("This machine has no `java` on its PATH.", next_step=_NEXT_STEP)
    version = _version(java)
    if version is None:
        raise SetupError(f"{java} does not run as a Java.", next_step=_NEXT_STEP)
    if version < oldest:
        raise SetupError(f"{java} is Java {version}, which is too old.", next_step=_NEXT_STEP)
    return java


@cache
def _version(java: str) -> int | None:
    try:
        answer = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # 'openjdk version "17.0.15" 2025-04-15'; Java 8 calls itself "1.8".
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else None
