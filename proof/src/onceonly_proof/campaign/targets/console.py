"""Console: what drivers print, read from their logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from onceonly_proof.auditor import Seen
from onceonly_proof.campaign.targets.port import Unserved

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly_proof.auditor import Orphan, Reader

_LIVES, _TASK, _LOG = "lives", "task.json", "job.log"
_HEAD: Final = ("key", "value")
_NULL: Final = "NULL"


class Console(Unserved):
    """Tables in the logs of a query's lives. Rows are printed one table after another."""

    shows_whole_epochs = False

    def __init__(self, folder: Path) -> None:
        self._lives = folder.parent / _LIVES

    def options(self, name: str) -> dict[str, str]:  # noqa: ARG002  a query's lives are known by their task
        return {"numRows": "1000", "truncate": "false"}

    def reader(self, sink: str, name: str) -> Reader:
        return Printed(sink, self._lives, name)


class Printed:
    """Reads the logs of all lives that had a task with a target of this name; fulfils ``Reader``."""

    def __init__(self, sink: str, lives: Path, name: str) -> None:
        self._sink, self._lives, self._name = sink, lives, name

    def rows(self) -> Iterator[Seen]:
        """Yield the lines of tables, but for their heads; what a driver did not live to print whole is none."""
        for task in sorted(self._lives.glob(f"*/{_TASK}")):
            if json.loads(task.read_bytes())["target"] != self._name:
                continue
            text = (task.parent / _LOG).read_text(encoding="utf-8", errors="replace")
            for order, line in enumerate(text.split("\n")[:-1]):
                if line.startswith("|") and line.endswith("|"):
                    cells = tuple(cell.strip() for cell in line[1:-1].split("|"))
                    if cells != _HEAD:
                        key, value = cells
                        found = None if key == _NULL else key.encode()
                        yield Seen(self._sink, found, value.encode(), task.parent.name, order)

    def orphans(self) -> list[Orphan]:
        """Return none: nothing waits anywhere."""
        return []

    def close(self) -> None:
        """Nothing is kept open between calls."""
