"""Named crash points. They do nothing unless armed through the environment, in any process.

``ONCEONLY_FAILPOINTS="link.before_put=kill, slot.after_prepare=pause@2"`` arms two of them: the action is
taken when the point is passed for the n-th time (default 1), counted over *all* processes that share
``ONCEONLY_FAILPOINTS_DIR``, and once only. Where no folder is given, each process counts for itself.

``commit.before_handle[files]`` is the point as it is passed for the sink ``files``.

Actions: ``kill`` (SIGKILL to this process), ``pause`` (announce and wait: an outside hand kills the whole process
tree while this step stands still, or lets it go on by putting a file ``resume`` into the folder), ``raise`` (an
ordinary exception).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

NAMES: dict[str, str] = {
    "plan.before_resolve": "planner: before the chain is read",
    "plan.after_claim": "planner: after its ABORT link, before the sweep",
    "plan.before_recommit": "planner: recovery, before a decided handle is committed again",
    "plan.after_recommit": "planner: recovery, after a decided handle was committed again",
    "plan.after_resolve": "planner: after the epoch is resolved",
    "slot.before_begin": "executor: before begin_transaction",
    "slot.during_write": "executor: after a batch was written",
    "slot.before_prepare": "executor: before pre_commit",
    "slot.after_prepare": "executor: after pre_commit, before the vote",
    "link.before_put": "commit: all votes in, before the link is written",
    "link.during_put": "commit: the link is written to a temporary name, not yet in the chain",
    "link.after_put": "commit: the link is durable, nothing is committed",
    "commit.before_handle": "commit: before a handle is committed (count n: after n-1 of them)",
    "commit.after_handle": "commit: after a handle was committed",
    "complete.before": "commit: all handles committed, before a sink is told that its epoch is complete",
    "receipt.before_put": "commit: all handles committed, every sink told, no receipt",
    "receipt.after_put": "commit: after the receipt",
    "sweep.before": "commit: before the sweep",
    "commit.before_return": "commit: before it returns to Spark, commits/N is missing",
}
_ENV = "ONCEONLY_FAILPOINTS"
_ENV_DIR = "ONCEONLY_FAILPOINTS_DIR"

_lock = threading.Lock()
_counts: dict[str, int] = {}
_armed: tuple[str, dict[str, tuple[str, int]]] = ("", {})


class FailpointError(RuntimeError):
    """What the action ``raise`` raises."""


def hit(name: str, *, of: str = "") -> None:
    """Pass the crash point ``name``. Anywhere; costs one look into the environment when nothing is armed.

    ``of`` names the sink that it is passed for: ``name[sink]`` is a point of its own, counted apart.
    """
    spec = os.environ.get(_ENV)
    if not spec:
        return
    if of:
        hit(f"{name}[{of}]")
    action, nth = _parse(spec).get(name, ("", 0))
    if not action or _count(name) != nth:
        return
    _announce(name)
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "pause":
        _wait_for_resume()
        return
    message = f"failpoint {name}"
    raise FailpointError(message)


def fired(folder: Path) -> list[str]:
    """Name the points that have fired, in a folder given as ``ONCEONLY_FAILPOINTS_DIR``. Tests, demo."""
    return sorted(path.name.removesuffix(".fired") for path in folder.glob("*.fired"))


def _parse(spec: str) -> dict[str, tuple[str, int]]:
    global _armed  # noqa: PLW0603  a cache of one environment variable
    if _armed[0] == spec:
        return _armed[1]
    points: dict[str, tuple[str, int]] = {}
    for part in filter(None, (part.strip() for part in spec.split(","))):
        name, _, rest = part.partition("=")
        action, _, nth = rest.partition("@")
        if (
            name.partition("[")[0] not in NAMES
            or action not in {"kill", "pause", "raise"}
            or not (nth or "1").isdigit()
        ):
            message = f"{_ENV} arms {part!r}; known points: {', '.join(NAMES)}; actions: kill, pause, raise"
            raise ValueError(message)
        points[name] = (action, int(nth or "1"))
    _armed = (spec, points)
    return points


def _count(name: str) -> int:
    """Give the number of this pass. Shared between processes by exclusive file creation."""
    folder = os.environ.get(_ENV_DIR)
    with _lock:
        if folder is None:
            _counts[name] = _counts.get(name, 0) + 1
            return _counts[name]
        number = _counts.get(f"{folder}/{name}", 0)
        while True:
            number += 1
            try:
                os.close(os.open(Path(folder) / f"{name}.{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            _counts[f"{folder}/{name}"] = number
            return number


def _wait_for_resume() -> None:
    folder = os.environ.get(_ENV_DIR)
    while folder is None or not (Path(folder) / "resume").exists():
        time.sleep(0.01)


def _announce(name: str) -> None:
    folder = os.environ.get(_ENV_DIR)
    if folder is not None:
        (Path(folder) / f"{name}.fired").write_text(str(os.getpid()), encoding="utf-8")
