"""What is told to people of each step: its stamp, and a line in the event log. Nothing is decided by it.

The event log is every step of the protocol, in every process, as one JSON line. It is off unless ``ONCEONLY_EVENTS``
names a folder. Each process appends to a file of its own, so that no line is torn by another process; a line is
written with one ``write``. Readers merge the files. Clocks only place an event in a picture.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.model import Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_ENV = "ONCEONLY_EVENTS"
_FIELDS: Mapping[str, type | tuple[type, ...]] = {
    "t": (int, float), "incarnation": str, "seq": int, "kind": str, "query": str, "epoch": int,
}  # fmt: skip
"""What every line has, whatever it is of, and by which it is known."""
_lock = threading.Lock()
_writer: _Writer | None = None


class _Writer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = os.getpid()
        self.incarnation = uuid.uuid4().hex[:12]
        self.sequence = 0
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.pid}-{self.incarnation}.jsonl"
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def stamp() -> Stamp:
    """Say when it is, by this machine's wall clock, and which process this is. Anywhere, any number of times."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Stamp(at=now, host=_host(), pid=os.getpid())


@functools.cache
def _host() -> str:
    return socket.gethostname()


def enabled() -> bool:
    """Say whether events are recorded."""
    return bool(os.environ.get(_ENV))


def record(  # noqa: PLR0913  one keyword for each field of the line
    kind: str,
    *,
    actor: str,
    query: str = "",
    epoch: int = -1,
    run: str = "",
    sink: str = "",
    slot: int = -1,
    transaction: str = "",
    causes: str = "",
    **more: str | float | bool | None,
) -> None:
    """Record one step. Any process, any thread; a failure to write it never stops the protocol.

    ``actor`` is planner, executor, committer or driver; ``t`` is seconds since 1970, for pictures only.
    """
    folder = os.environ.get(_ENV)
    if not folder:
        return
    global _writer  # noqa: PLW0603  one writer a process, made anew after a fork
    # A full disk must not stop the query: the log is for people.
    with _lock, contextlib.suppress(OSError):
        if _writer is None or _writer.pid != os.getpid():
            _writer = _Writer(Path(folder))
        _writer.sequence += 1
        line: dict[str, Any] = {
            "seq": _writer.sequence,
            "actor": actor,
            "incarnation": _writer.incarnation,
            "t": time.time(),
            "kind": kind,
            "query": query,
            "run": run,
            "epoch": epoch,
            "sink": sink,
            "slot": slot,
            "transaction": transaction,
            "causes": causes,
            **more,
        }
        os.write(_writer.file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


class Steps:
    """Records the steps of one query's coordinator, and tells them to whoever watches. Driver.

    ``actor`` names the process; ``watch`` is given every step that the event log would record. ``plan`` is the id of
    the plan that is worked on: who acts (docs/explanation/model.md).
    """

    def __init__(
        self, *, actor: str, query: str, watch: Callable[[Mapping[str, str | int]], None] | None
    ) -> None:
        self.plan = ""
        self._actor = actor
        self._query = query
        self._watch = watch

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens: what is dear to work out need not be, else."""
        return self._watch is not None or enabled()

    def __call__(self, kind: str, epoch: int, *, run: str = "", **more: str | int) -> None:
        more["plan"] = self.plan
        if self._watch is not None:
            self._watch({"kind": kind, "query": self._query, "epoch": epoch, "run": run, **more})
        if enabled():
            record(kind, actor=self._actor, query=self._query, epoch=epoch, run=run, **more)  # type: ignore[arg-type]  # fields by name


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield all events of a folder in the order of their clocks; a torn line is left out.

    Raises ``ConfigurationError`` for a line that is of something else.
    """
    found = [
        parse(text, path, number)
        for path in folder.glob("*.jsonl")
        for number, text in enumerate(path.read_bytes().splitlines(), 1)
    ]
    yield from in_order(line for line in found if line is not None)


def in_order(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines in the order of their clocks. Pure."""
    return sorted(lines, key=lambda line: (line["t"], line["incarnation"], line["seq"]))


def parse(text: bytes, path: Path, number: int) -> dict[str, Any] | None:
    """Return a line of a file; None for one that is torn. Raises ``ConfigurationError`` for one of something else."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    if not _is_event(line):
        raise ConfigurationError(
            f"line {number} of {path} is not of an event log",
            next_step="name the folder that ONCEONLY_EVENTS named, or take the file out of it",
        )
    found: dict[str, Any] = line
    return found


def _is_event(line: object) -> bool:
    return isinstance(line, dict) and all(isinstance(line.get(name), kind) for name, kind in _FIELDS.items())
