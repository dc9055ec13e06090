"""Runs a benchmark from its plan to its results. Blocks; every process that it starts has ended when it returns."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benchmarks import store
from benchmarks.contenders import contenders
from benchmarks.contenders.base import python_path
from benchmarks.lives import Contending
from benchmarks.parts import bounded, paced
from benchmarks.plan import Clock, fingerprint, runs
from benchmarks.settings import MEMORY, told
from benchmarks.values import Measured
from benchmarks.world import open_world
from onceonly.errors import OnceonlyError
from onceonly.jars.locked import ensure_jars
from onceonly_proof.campaign import machine as host

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.contenders.base import Contender
    from benchmarks.display import Display
    from benchmarks.plan import Sizes
    from benchmarks.store import Store
    from benchmarks.values import Results, Run
    from benchmarks.world import World

CORES_MAX = 8
"""More than so many partitions and tasks say nothing more about a single broker."""
_WHY_MAX = 800
_WITHOUT_PROCESS = {"commit", "recovery"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked for. ``parts`` and ``names`` of contenders: those of the size, if there is none."""

    sizes: Sizes
    command: str
    """What does the same again."""
    path: Path
    parts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    fresh: bool = False


def run(options: Options, display: Display) -> Results:
    """Do what is planned and not done yet, and give the results; the file is written after each run.

    Where the size has a limit, rounds for which there is no time are left out.

    Raises:
        SetupError: Java or the broker's jars are missing, or the broker does not come up.
    """
    ensure_jars(used_by="broker")
    every = contenders()
    planned = runs(options.sizes, options.parts, options.names)
    used = {each.contender: every[each.contender] for each in planned}
    kept = _open(options, planned, used)
    ready = _prepared(used, kept, display)
    done = {each.run.id for each in kept.results.runs if each.outcome != "failed"}
    left = [each for each in planned if each.id not in done and each.contender in ready]
    display.begin(total=len(left))
    clock = Clock(options.sizes.limit_s)
    with ExitStack() as close:
        folder = Path(tempfile.mkdtemp(prefix="bench-"))
        close.callback(shutil.rmtree, folder, ignore_errors=True)
        cores = min(os.cpu_count() or 1, CORES_MAX)
        world = close.enter_context(open_world(folder, options.sizes, cores))
        processes = close.enter_context(Processes(world, display))
        for done_so_far, each in enumerate(left):
            processes.keep({_process(ready[later.contender], later) for later in left[done_so_far:]})
            if not clock.has_time_for(each, time.monotonic(), processes.once_s):
                display.keep(f"No time for round {each.round}: {options.sizes.limit_s:.0f} s would pass.")
                break
            _run(processes, ready[each.contender], each, kept)
    kept.finish()
    return kept.results


def _open(options: Options, planned: Sequence[Run], used: Mapping[str, Contender]) -> Store:
    """Go on with the results that are there, if the same was asked of the same code and not brought to its end."""
    settings = {name: told(each.settings()) for name, each in used.items()}
    versions = host.versions()
    for each in used.values():
        versions |= each.versions()
    print_of = fingerprint(options.sizes, planned, settings, versions)
    found = None if options.fresh else store.interrupted(options.path, print_of)
    if found is not None:
        return store.Store(options.path, found)
    machine = host.before()
    results = store.begin(
        sizes=options.sizes,
        command=options.command,
        fingerprint=print_of,
        planned=len(planned),
        settings=settings,
        machine=machine,
        versions=versions,
    )
    return store.Store(options.path, results)


def _prepared(used: Mapping[str, Contender], kept: Store, display: Display) -> dict[str, Contender]:
    """Get what the contenders need; one that cannot be had is noted, and the others run without it."""
    ready: dict[str, Contender] = {}
    for name, contender in used.items():
        display.say(f"preparing {name}")
        try:
            contender.prepare()
        except OnceonlyError as error:
            kept.leave_out(name, error.what)
            display.keep(f"{name} cannot be had here: {error.what}")
        else:
            ready[name] = contender
    return ready


_Process = tuple[str, bool]
"""A contender's name, and whether the process has nothing but runs of few rows."""


def _process(contender: Contender, run: Run) -> _Process:
    """Say which process of a contender does a run. Pure."""
    return contender.name, contender.is_tuned and run.work.has_few_rows


@dataclass(slots=True)
class Processes:
    """The contenders' processes. Each starts at its first run, and stays, and gets warm, until a run of it fails.

    A process that does not even come up is not tried again: its other runs have failed with it.
    """

    world: World
    display: Display
    once_s: float = 0.0
    """What starting and warming up has taken."""
    _living: dict[_Process, Contending] = field(default_factory=dict)
    _hopeless: dict[_Process, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.keep(set())

    def of(self, contender: Contender, run: Run) -> tuple[Contending | None, str]:
        """Return a contender's process, warmed up by a work like ``run``; none, and why, where there can be none."""
        process = _process(contender, run)
        if process not in self._living and process not in self._hopeless:
            with self.once():
                started, why = _warm(self.world, contender, run, self.display)
            if started is None:
                self._hopeless[process] = why
            else:
                self._living[process] = started
        return self._living.get(process), self._hopeless.get(process, "")

    @contextmanager
    def once(self) -> Iterator[None]:
        """Count what the block takes as something that is not done again."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.once_s += time.monotonic() - began_s

    def keep(self, needed: set[_Process]) -> None:
        """End all others, as each has a heap."""
        for process in self._living.keys() - needed:
            self.end(process)

    def end(self, process: _Process) -> None:
        """End a process with all that belongs to it. Idempotent."""
        _end(self._living.pop(process, None))


def _run(processes: Processes, contender: Contender, run: Run, kept: Store) -> None:
    """Do a run. One that fails ends its process, and the contender's next run gets a new one."""
    processes.display.run(run)
    needs_process = run.part not in _WITHOUT_PROCESS
    contending, why = processes.of(contender, run) if needs_process else (None, "")
    if why:
        measured = [Measured(run=run, outcome="failed", why=why)]
    else:
        measured = _measured(processes, contender, contending, run)
    kept.add(*measured)
    processes.display.done(measured)
    if any(one.outcome == "failed" for one in measured):
        processes.end(_process(contender, run))


def _measured(
    processes: Processes, contender: Contender, contending: Contending | None, run: Run
) -> list[Measured]:
    """Do one run. Whatever stops the contender is the run's result; what stops the broker ends the benchmark."""
    world, display = processes.world, processes.display
    try:
        if contending is None:
            return _by_itself(world, run, display)
        part = paced if run.work.rate else bounded
        if run.work.rate and not contending.has_paced:
            display.say("warming up for runs at a rate")
            with processes.once():
                paced.warm_up(world, contender, contending, run)
            contending.has_paced = True
        return [part.measure(world, contender, contending, run, display.say)]
    except (OnceonlyError, OSError) as error:
        if world.kafka.pid is None:
            raise
        return [Measured(run=run, outcome="failed", why=_why(error))]


def _warm(world: World, contender: Contender, run: Run, display: Display) -> tuple[Contending | None, str]:
    """Start a contender's process, and let it do a run that is not measured; give none, and why, where it fails."""
    folder = world.fresh_folder()
    _, few_rows = _process(contender, run)
    contender.write_session(folder, world.cores, few_rows=few_rows)
    display.say("starting and warming up")
    # Flink unpacks its planner, 46 MB, and leaves it there when it is killed.
    jvm = f"-Xmx{MEMORY} -Djava.io.tmpdir={folder / 'tmp'}"
    env = {"PYTHONPATH": python_path(), "JVM_ARGS": jvm, "SPARK_LOCAL_IP": "127.0.0.1"}
    contending: Contending | None = None
    try:
        contending = Contending.start(contender.command(), folder, env)
        if not few_rows:
            bounded.warm_up(world, contender, contending, run, display.say)
    except (OnceonlyError, OSError) as error:
        _end(contending)
        if world.kafka.pid is None:
            raise
        return None, _why(error)
    except BaseException:
        _end(contending)
        raise
    return contending, ""


def _why(error: OnceonlyError | OSError) -> str:
    text = error.what if isinstance(error, OnceonlyError) else str(error)
    return text if len(text) <= _WHY_MAX else f"{text[: _WHY_MAX // 4]} … {text[-_WHY_MAX * 3 // 4 :]}"


def _end(contending: Contending | None) -> None:
    if contending is not None:
        contending.kill()
        shutil.rmtree(contending.folder, ignore_errors=True)


def _by_itself(world: World, run: Run, display: Display) -> list[Measured]:
    """Do a run that needs no process of a contender."""
    from benchmarks.parts import commits, recovery

    if run.part == "commit":
        return [commits.measure(world, run)]
    return recovery.measure(run, world.sizes.kills, display.say)
