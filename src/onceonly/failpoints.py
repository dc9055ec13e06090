"""Named crash points. They do nothing unless armed through the environment, in any process.

``ONCEONLY_FAILPOINTS="link.before_put=kill, slot.after_prepare=pause@2"`` arms two of them: the action is
taken when the point is passed for the n-th time (default 1), counted over *all* processes that share
``ONCEONLY_FAILPOINTS_DIR``, and once only. Where no folder is given, each process counts for itself.

``commit.before_handle[files]`` is the point as it is passed for the sink ``files``.

``ONCEONLY_FAILPOINTS="@/path/file"`` reads the same text, commas or lines, from a file, and reads it again when the
file changes, so that a running job can be armed anew (``arm`` writes it). There ``link.after_put=kill#17`` gives an
arming an id: it counts from the moment when it was armed and fires once, whatever fired before under another id.

Actions: ``kill`` (SIGKILL to this process), ``pause`` (announce and wait: an outside hand kills the whole process
tree while this step stands still, or lets it go on by putting a file ``resume``, or ``resume#17`` for one id, into
the folder), ``raise`` (an ordinary exception).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    "letters.before_begin": "executor: the first row of the slot was refused, before the dead letters' transaction",
    "letters.before_prepare": "executor: the rows are prepared, before pre_commit of the dead letters",
    "letters.after_prepare": "executor: rows and dead letters are prepared, before the votes",
    "link.before_check": "commit: all votes in, before it is seen whether the epoch is in time",
    "link.before_put": "commit: all votes in and in time, before the link is written",
    "link.during_put": "commit: the link is written to a temporary name, not yet in the chain",
    "link.after_put": "commit: the link is durable, nothing is committed",
    "commit.before_handle": "commit: before a handle is committed (count n: after n-1 of them)",
    "commit.after_handle": "commit: after a handle was committed",
    "complete.before": "commit: all handles committed, before a sink is told that its epoch is complete",
    "receipt.before_put": "commit: all handles committed, every sink told, no receipt",
    "receipt.after_put": "commit: after the receipt",
    "sweep.before": "commit: before the sweep",
    "commit.before_return": "commit: before it returns to Spark, commits/N is missing",
    "rehearsal.after_divert": "commit: what stands in for a transaction with rows that its target refuses is prepared",
    "divert.after_prepare": "operator: what stands in for a transaction is prepared, which is still there",
    "divert.after_void": "operator: the transaction is void, and no link names what stands in for it",
    "divert.after_link": "operator: a link names what stands in for the transaction, whose rows are still there",
    "journal.before_put": "receiver: rows are received, their segment is not written",
    "journal.after_put": "receiver: the segment is durable, the feed has not been told",
    "journal.before_fold": "receiver: segments are read, before their ids are folded",
    "journal.after_fold": "receiver: ids are folded, before the segments are deleted",
    "range.before_put": "executor: a task of the Kinesis source has read, before it is fixed what",
    "range.after_put": "executor: it is fixed what a task of the Kinesis source reads, before its first row",
    "savepoint.before_copy": "operator: a savepoint or a restored checkpoint, before one of its files is there",
    "savepoint.after_copy": "operator: after one of its files is there (count n: n of them)",
    "savepoint.before_manifest": "operator: all files of a savepoint are there, it has no manifest yet",
    "savepoint.after_manifest": "operator: the manifest is durable, nobody was told",
    "savepoint.before_id": "operator: all of a restored checkpoint is there but Spark's id of the query",
    "savepoint.after_undo": "operator: a savepoint that is dropped has lost its manifest, its files are there",
}
OF_LETTERS: tuple[str, ...] = tuple(name for name in NAMES if name.startswith("letters."))
"""Those that are passed only where rows are refused and become dead letters."""
OF_REHEARSALS: tuple[str, ...] = tuple(name for name in NAMES if name.startswith("rehearsal."))
"""Those that are passed only where a target refuses rows beside all others of their epoch."""
OF_OPERATOR: tuple[str, ...] = tuple(name for name in NAMES if name.startswith("divert."))
"""Those that no query passes, but ``onceonly transactions divert``."""
OF_JOURNALS: tuple[str, ...] = tuple(name for name in NAMES if name.startswith("journal."))
"""Those that a receiver passes, which writes a feed into a journal."""
OF_RANGES: tuple[str, ...] = tuple(name for name in NAMES if name.startswith("range."))
"""Those that a source passes whose ranges are fixed by their reader."""
OF_SAVEPOINTS: tuple[str, ...] = tuple(name for name in NAMES if name.startswith("savepoint."))
"""Those that ``onceonly savepoint`` passes."""
EVERYWHERE: tuple[str, ...] = tuple(
    name
    for name in NAMES
    if name not in {*OF_LETTERS, *OF_REHEARSALS, *OF_OPERATOR, *OF_JOURNALS, *OF_RANGES, *OF_SAVEPOINTS}
)
"""Those that every query passes."""
_ENV = "ONCEONLY_FAILPOINTS"
_ENV_DIR = "ONCEONLY_FAILPOINTS_DIR"

_ACTIONS = frozenset({"kill", "pause", "raise"})


@dataclass(frozen=True, slots=True)
class _Arming:
    """One action at the n-th pass of one point. Passes and firing are noted under its ``key``."""

    point: str
    action: str
    nth: int
    key: str


_lock = threading.Lock()
_counts: dict[str, int] = {}
# What was read last, and what it was read from.
_armed: tuple[tuple[object, ...], dict[str, list[_Arming]]] = ((), {})


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
    armings = _read(spec).get(name, ())
    # A pass counts for all before one of them acts, and once for those that share a key.
    passes = {key: _count(key) for key in {each.key for each in armings}}
    for arming in armings:
        if passes[arming.key] == arming.nth:
            _act(arming)


def is_armed(names: Iterable[str]) -> bool:
    """Say whether one of these crash points may act, for whatever sink; as cheap as a pass when nothing is armed."""
    spec = os.environ.get(_ENV, "")
    return spec != "" and not {name.partition("[")[0] for name in _read(spec)}.isdisjoint(names)


def hit_all(name: str, *, of: Iterable[str]) -> None:
    """Pass the crash point ``name`` once for each of these sinks; as cheap as one pass when nothing is armed."""
    if os.environ.get(_ENV):
        for each in of:
            hit(name, of=each)


def arm(file: Path, armings: Iterable[str]) -> None:
    """Write the file that ``ONCEONLY_FAILPOINTS=@file`` names, in one step. Tests, campaign; one at a time.

    Raises:
        ValueError: an arming names no known point or action.
    """
    text = "\n".join(armings)
    _parse(text)
    written = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    written.write_text(text, encoding="utf-8")
    written.replace(file)


def fired(folder: Path) -> list[str]:
    """Name what has fired, in a folder given as ``ONCEONLY_FAILPOINTS_DIR``: ``point`` or ``point#id``. Tests, demo."""
    return sorted(path.name.removesuffix(".fired") for path in folder.glob("*.fired"))


def _read(spec: str) -> dict[str, list[_Arming]]:
    """Return what is armed, parsed once for each text or each state of the file."""
    global _armed  # noqa: PLW0603  a cache of what was read last
    if not spec.startswith("@"):
        if _armed[0] != (spec,):
            _armed = ((spec,), _parse(spec))
        return _armed[1]
    path = spec[1:]
    try:
        # Written by rename, a new text has a new inode; the time tells it from a number that is used again.
        status = os.stat(path)  # noqa: PTH116  on every pass: without the cost of a Path
        state = (spec, status.st_mtime_ns, status.st_ino, status.st_size)
        if _armed[0] != state:
            _armed = (state, _parse(Path(path).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    return _armed[1]


def _parse(text: str) -> dict[str, list[_Arming]]:
    points: dict[str, list[_Arming]] = {}
    for part in filter(None, (part.strip() for part in text.replace("\n", ",").split(","))):
        name, _, rest = part.partition("=")
        rest, _, own = rest.partition("#")
        action, _, nth = rest.partition("@")
        if name.partition("[")[0] not in NAMES or action not in _ACTIONS or not (nth or "1").isdigit():
            message = f"{_ENV} arms {part!r}; known points: {', '.join(NAMES)}; actions: kill, pause, raise"
            raise ValueError(message)
        key = f"{name}#{own}" if own else name
        points.setdefault(name, []).append(_Arming(name, action, int(nth or "1"), key))
    return points


def _act(arming: _Arming) -> None:
    _announce(arming.key)
    if arming.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if arming.action == "pause":
        _wait_for_resume(arming)
        return
    message = f"failpoint {arming.point}"
    raise FailpointError(message)


def _count(key: str) -> int:
    """Return the number of this pass. Shared between processes by exclusive file creation."""
    folder = os.environ.get(_ENV_DIR)
    with _lock:
        if folder is None:
            _counts[key] = _counts.get(key, 0) + 1
            return _counts[key]
        number = _counts.get(f"{folder}/{key}", 0)
        while True:
            number += 1
            try:
                os.close(os.open(Path(folder) / f"{key}.{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            _counts[f"{folder}/{key}"] = number
            return number


def _wait_for_resume(arming: _Arming) -> None:
    folder = os.environ.get(_ENV_DIR)
    _, mark, own = arming.key.partition("#")
    names = ["resume", f"resume{mark}{own}"]
    while folder is None or not any((Path(folder) / name).exists() for name in names):
        time.sleep(0.01)


def _announce(key: str) -> None:
    folder = os.environ.get(_ENV_DIR)
    if folder is not None:
        # In one step: who sees it reads whole who it was.
        told = Path(folder) / f"{key}.{os.getpid()}.told"
        told.write_text(str(os.getpid()), encoding="utf-8")
        told.replace(told.with_name(f"{key}.fired"))
