"""Drivers and tasks of one epoch in processes of their own: started, paused at a crash point, killed. No Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly import failpoints
from onceonly.log import open_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.model import LinkKind

LIFE = Path(__file__).with_name("late_life.py")
BOUND_S = 60.0
KILLED = -9


@dataclass
class Lives:
    """The lives of one query on one checkpoint. ``sink`` is the name of its format."""

    folder: Path
    sink: str
    options: dict[str, str]
    query: str = "q"
    limit_s: float | None = None
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def let_pass(self, seconds: float) -> None:
        """Move the drivers' time on. Once this was called, they have no other than the test's."""
        now = float(self.clock.read_text(encoding="utf-8")) if self.clock.exists() else 1000.0
        written = self.folder / "clock.new"
        written.write_text(str(now + seconds), encoding="utf-8")
        written.replace(self.clock)

    @property
    def clock(self) -> Path:
        return self.folder / "clock"

    @property
    def fired(self) -> Path:
        return self.folder / f"fired-{len(self.processes)}"

    def start(self, word: str = "", *, armed: str = "") -> subprocess.Popen[str]:
        given = {
            "folder": str(self.folder),
            "sink": self.sink,
            "options": self.options,
            "query": self.query,
            "limit_s": self.limit_s,
            "word": word,
        }
        fired = self.folder / f"fired-{len(self.processes) + 1}"
        fired.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(LIFE), json.dumps(given)],
            env={**os.environ, "ONCEONLY_FAILPOINTS": armed, "ONCEONLY_FAILPOINTS_DIR": str(fired)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    def live(self, word: str = "", *, armed: str = "") -> tuple[int, str]:
        """Return the exit code, and the last line that was said."""
        return self.end(self.start(word, armed=armed))

    @staticmethod
    def end(process: subprocess.Popen[str]) -> tuple[int, str]:
        out, err = process.communicate(timeout=BOUND_S)
        assert process.returncode in {0, 3, KILLED}, err
        return process.returncode, (out.strip().splitlines() or [""])[-1]

    @contextmanager
    def paused(self, word: str = "", *, at: str) -> Iterator[subprocess.Popen[str]]:
        """Hold a process at a crash point; it goes on when the block ends."""
        process = self.start(word, armed=f"{at}=pause")
        folder, deadline = self.fired, time.monotonic() + BOUND_S
        while not failpoints.fired(folder):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, f"{at} was not passed"
            time.sleep(0.01)
        yield process
        (folder / "resume").touch()

    def chain(self) -> list[LinkKind]:
        log = open_log(str(self.folder / "checkpoint"), query=self.query, create=False)
        return [link.kind for link in log.chain(0)]

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
