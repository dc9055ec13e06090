"""Full and read-only disks, made by the kernel in a mount namespace of its own; nothing is left mounted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_HEAD = """
import subprocess, sys
sys.path[:0] = {path!r}
from pathlib import Path
from onceonly.errors import OnceonlyError

# What is named whole is not looked up: the options that it has are those of whoever is root outside.
def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)

def refused(action):
    try:
        action()
    except OnceonlyError as error:
        return f"{{type(error).__name__}} {{error}}"
    raise SystemExit("nothing was refused")

disk = Path({folder!r})
mount("-t", "tmpfs", "-o", "size=1m", "none", str(disk))
"""


def in_namespace(folder: Path, script: str) -> list[str]:
    """Run a script as the root of a mount namespace, which any user of Linux may have; give what it prints.

    It has a ``disk`` of one megabyte, can ``mount``, and say how an action is ``refused``.
    """
    head = _HEAD.format(path=[str(Path(__file__).parents[2])], folder=str(folder))
    ask = [
        "unshare",
        "--mount",
        *(["--map-root-user"] if os.geteuid() else []),
        sys.executable,
        "-c",
        head + script,
    ]
    done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
