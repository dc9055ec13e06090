"""A topic is fed at a rate by a process of its own, so that who measures does not slow the sender."""

from __future__ import annotations

import json
import subprocess
import sys


def feed(servers: str, topic: str, *, rate: int, seconds: float, partitions: int, record_bytes: int) -> int:
    """Send records at a rate for so long, and return how many the broker has taken."""
    told = {
        "servers": servers,
        "topic": topic,
        "rate": rate,
        "total": int(rate * seconds),
        "partitions": partitions,
        "record_bytes": record_bytes,
    }
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.load.sender", json.dumps(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["taken"])
