"""Second attempts of slow tasks, which Spark starts by itself: how a job has them, and how many there were.

Spark starts none on a host where the first one runs, so each job has a cluster of several hosts on this machine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

HOSTS_MIN: Final = 2
_LOG: Final = "spark-log"
_STARTED: Final = "SparkListenerTaskStart"


def hosts(count: int) -> list[str]:
    """Return addresses of this machine, one a host. Pure."""
    return [f"127.0.0.{number}" for number in range(1, count + 1)]


def settings(life: Path) -> dict[str, str]:
    """Return what a session is told: to look for slow tasks often, and to write down which it starts. Driver, once."""
    log = life / _LOG
    log.mkdir()
    often = {"": "true", ".interval": "100ms", ".quantile": "0.5", ".multiplier": "1.1"}
    # Of a stage with one task there is none that it could be slower than.
    often[".task.duration.threshold"] = "500ms"
    # Of a driver that is killed, little of it is missing.
    told = {
        "enabled": "true",
        "dir": str(log),
        "rolling.enabled": "false",
        "compress": "false",
        "buffer.kb": "1k",
    }
    return {
        **{f"spark.speculation{name}": value for name, value in often.items()},
        **{f"spark.eventLog.{name}": value for name, value in told.items()},
    }


def second_attempts(life: Path) -> int:
    """Count the second attempts that Spark started in a life, while it lives or afterwards; at least so many."""
    found = 0
    for path in (life / _LOG).glob("*"):
        for line in path.read_bytes().splitlines():
            if _STARTED.encode() in line:
                found += _is_second(line)
    return found


def _is_second(line: bytes) -> bool:
    try:
        told = json.loads(line)
        return told["Event"] == _STARTED and bool(told["Task Info"]["Speculative"])
    except (ValueError, KeyError, TypeError):  # torn by a kill
        return False
