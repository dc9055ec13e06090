"""The process of a contender: started, given orders one by one, and killed as a whole. Harness."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import UnavailableError
from onceonly_proof.process import JobProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_POLL_S = 0.01
READY_TIMEOUT_S = 180.0
ORDER_TIMEOUT_S = 120.0


class FailedError(UnavailableError):
    """A contender could not do what it was told. It is a result of the run, and the benchmark goes on."""

    code = "BENCHMARK_RUN_FAILED"


@dataclass(slots=True)
class Contending:
    """A living contender. Orders go over files, as JVMs write to every pipe they get. One thread."""

    process: JobProcess
    folder: Path
    orders: int = 0
    has_paced: bool = False
    """It is warm for runs at a rate."""

    @classmethod
    def start(cls, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> Contending:
        """Start it, and wait until it takes orders. Raises ``FailedError``."""
        (folder / "tmp").mkdir(parents=True)
        process = JobProcess.start(
            [*command, str(folder)],
            log=folder / "job.log",
            env=env,
            cwd=folder,
        )
        started = cls(process, folder)
        try:
            started._wait(folder / "ready", READY_TIMEOUT_S)
        except BaseException:
            started.kill()
            raise
        return started

    def order(self, what: str, **details: object) -> dict[str, Any]:
        """Have it do something, and give its answer. Raises ``FailedError``."""
        self.orders += 1
        written = self.folder / f"order-{self.orders}.tmp"
        written.write_text(json.dumps({"do": what, **details}), encoding="utf-8")
        written.replace(self.folder / f"order-{self.orders}.json")
        answered = self.folder / f"answer-{self.orders}.json"
        self._wait(answered, ORDER_TIMEOUT_S)
        answer: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
        if "error" in answer:
            raise FailedError(str(answer["error"]), next_step="see the contender's own words in the results")
        return answer

    def kill(self) -> None:
        """End it, with all its processes. Idempotent."""
        self.process.kill()

    def _wait(self, path: Path, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not path.exists():
            ended = self.process.exit_code is not None
            if ended or time.monotonic() > deadline:
                what = "ended" if ended else f"gave no answer in {timeout_s:.0f} s"
                raise FailedError(
                    f"the process {what}; its last lines:\n{self.process.last_lines()}",
                    next_step="see whether memory or disk are short, then run the benchmark again",
                )
            time.sleep(_POLL_S)
