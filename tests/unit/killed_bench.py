"""Operator's commands that are killed at each change of a file: a query of files whose folder can be set back."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit import dying, http_double, s3_double
from tests.unit.operator_bench import PATH, Ran, run
from tests.unit.test_conformance_sinks import TestFiles as FilesSuite

from onceonly import failpoints
from onceonly.coordinator import by_hand
from onceonly.log.opening import look
from onceonly_proof.conformance.workload import Workload
from onceonly_proof.conformance.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceonly.errors import InDoubtError
    from onceonly_proof.conformance.query import Query
    from onceonly_proof.conformance.subject import Subject

SINK = ("--sink", "files=onceonly.sinks.files:FilesSink")
SLOTS = 2


def killed(action: Callable[[], object], nth: int, folder: Path) -> bool:
    """Do something in a process that is killed before its n-th change of a file below a folder; say whether it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child starts no thread and returns no more
        child = os.fork()
    if child == 0:
        _die(action, nth, os.path.realpath(folder))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, -signal.SIGKILL}, status
    return status != 0


def _die(action: Callable[[], object], nth: int, folder: str) -> None:
    dying.die_at(nth, folder)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        action()
    os._exit(0)


def killed_apart(nth: int, folder: Path, *words: str | Path) -> bool:
    """Type a command, which is killed before its n-th step in a process of its own; say whether it was.

    A step is a change of a name below a folder, or of what a Kafka broker knows: about to be sent, and answered.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", dying.__file__, str(nth), str(folder), *map(str, words)],
        env={**os.environ, "NO_COLOR": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=240,
    )  # fmt: skip
    assert done.returncode in {0, -signal.SIGKILL}, done
    return done.returncode != 0


@dataclass
class Stage:
    """A query of two slots, its target and Spark's files, all below ``folder`` where ``suite`` has its target there."""

    folder: Path
    suite: Subject = field(default_factory=FilesSuite)
    within_s: int = 2
    """How long the operator gives a target for each answer."""
    world: World = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(self.suite, self.here)
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True)
        told = json.dumps({"id": self.world.query})
        (self.checkpoint / "metadata").write_text(told, encoding="utf-8")

    @property
    def here(self) -> Path:
        return self.folder / "here"

    @property
    def checkpoint(self) -> Path:
        return Path(self.world.work().checkpoint)

    def kills(self, action: Callable[[], object]) -> Iterator[int]:
        """Yield each number of a change before which the action was killed, and once more when it came to its end.

        Each time all is as it was when this was begun.
        """
        before = self.folder / "before"
        shutil.copytree(self.here, before)
        for nth in count(1):
            shutil.rmtree(self.here)
            shutil.copytree(before, self.here)
            is_killed = killed(action, nth, self.here)
            yield nth
            if not is_killed:
                return

    # --- what a job does ----------------------------------------------------------------------------------

    def start(self, epochs: int, at: Path | None = None) -> None:
        """Start the job, which goes on until so many epochs are complete."""
        checkpoint = at or self.checkpoint
        with self._life(epochs, checkpoint) as life:
            for epoch in range(life.first_epoch(), epochs):
                self._set_barrier(epoch, checkpoint)
                life.run_epoch(epoch)
                (checkpoint / f"commits/{epoch}").write_text("v1\n{}", encoding="utf-8")

    def decide(self, epoch: int) -> None:
        """Decide an epoch, and be killed before anything of it is committed."""
        self._set_barrier(epoch, self.checkpoint)
        with self._life(epoch + 1, self.checkpoint) as life, pytest.MonkeyPatch.context() as patched:
            plan = life.plan(epoch)
            votes = [life.slot(plan, name, slot) for name in life.sinks for slot in range(SLOTS)]
            patched.setenv("ONCEONLY_FAILPOINTS", "link.after_put=raise")
            failpoints._counts.clear()
            with pytest.raises(failpoints.FailpointError):
                life.coordinator.decide(plan, votes)

    def begin(self, epoch: int) -> None:
        """Begin an epoch, and be killed before it is decided."""
        self._set_barrier(epoch, self.checkpoint)
        with self._life(epoch + 1, self.checkpoint) as life:
            plan = life.plan(epoch)
            for name in life.sinks:
                life.slot(plan, name, 0)

    def lose(self, epoch: int) -> None:
        """Leave open what an attempt has prepared that nobody asked for any more."""
        with self.world:
            self.world.prepared([900, 901], epoch=epoch, slot=5)

    def _life(self, epochs: int, checkpoint: Path) -> Query:
        query = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
        return self.world.run(query=query, epochs=epochs, slots=SLOTS, checkpoint=str(checkpoint))

    @staticmethod
    def _set_barrier(epoch: int, checkpoint: Path) -> None:
        (checkpoint / f"offsets/{epoch}").write_text(f'v1\n{{}}\n"{epoch}"', encoding="utf-8")

    # --- what an operator does, and anybody sees ------------------------------------------------------------

    def transactions(self, verb: str, what: str, *more: str) -> Ran:
        return run(*self.words(verb, what, *more))

    def words(self, verb: str, what: str, *more: str) -> tuple[str, ...]:
        """Return what is typed after ``onceonly``."""
        sink = self.suite.sink
        given = ("--sink", f"{sink.name}={sink.__module__}:{sink.__qualname__}")
        return (
            "transactions",
            verb,
            what,
            str(self.checkpoint),
            "--yes",
            "--timeout",
            str(self.within_s),
            *given,
            *more,
        )

    def type_what_is_told(self, error: InDoubtError, epoch: int) -> Ran:
        """Type the command that a start in doubt names, as a job tells it."""
        where = str(self.checkpoint)
        told = by_hand.in_doubt(error, where, epoch, look(where)[0].applications()).next_step
        [command] = re.findall(r"^onceonly (transactions .*?) ends what was begun", told)
        sink = self.words("", "")[5:]  # after --yes
        return run(*shlex.split(command.replace("TEXT", "prices")), "--yes", *sink)

    def expect(self, epochs: int) -> None:
        """See each row of so many epochs once, and nothing open."""
        with self.world:
            self.world.expect(Workload(epochs=epochs, slots=SLOTS).numbers(), "each row is there once")
            self.world.expect_no_orphans("nothing is open")


class Killer:
    """Kills a process at its n-th change of a bucket: before it is carried out, or once it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, carried_out: bool) -> None:
        self.left, self.pid = 0, 0
        handle, lock = s3_double._Handler._handle, threading.Lock()

        def counting(handler: Any, method: str) -> None:  # noqa: ANN401  as the double makes them
            with lock:
                is_state = method in {"PUT", "DELETE"} and "/heartbeats/" not in handler.path
                self.left -= is_state
                is_last = is_state and self.left == 0
            if is_last:
                os.kill(self.pid, signal.SIGSTOP)
            if not is_last or carried_out:
                handle(handler, method)
            if is_last:
                os.kill(self.pid, signal.SIGKILL)
                handler.close_connection = True

        monkeypatch.setattr(s3_double._Handler, "_handle", counting)
        # What it says of one that has gone would be in the words of a command here.
        monkeypatch.setattr(http_double._Server, "handle_error", lambda *_: None)

    def run(self, nth: int, *arguments: str | Path) -> bool:
        """Run the command line; say whether it was killed."""
        self.left = nth
        process = subprocess.Popen(
            [sys.executable, "-m", "onceonly", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": PATH, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.pid = process.pid
        said, _ = process.communicate(timeout=60)
        assert process.returncode in {0, -signal.SIGKILL}, said
        self.left = 0
        return process.returncode != 0
