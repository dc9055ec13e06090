"""The shown run: one query, two operators, killed as a whole again and again; then audited. Blocks for a minute or two.

Needs Java and PySpark, and no broker.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onceonly import events, failpoints
from onceonly.errors import SetupError
from onceonly.jars.locked import connector_jars
from onceonly_proof import charts
from onceonly_proof.auditor.files import FilesReader
from onceonly_proof.campaign import machine as host
from onceonly_proof.campaign.result import encode, save
from onceonly_proof.campaign.unaligned import draw
from onceonly_proof.campaign.unaligned_audit import Shown, audit, conclude
from onceonly_proof.campaign.unaligned_operator import Mode
from onceonly_proof.campaign.unaligned_plan import draw_plan, write_input
from onceonly_proof.handover import until
from onceonly_proof.process import JobProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly_proof.auditor.world import Seen
    from onceonly_proof.campaign.unaligned_plan import Kill

_LIFE_TIMEOUT_S = 300.0
EPOCHS, KILLS = 36, 6
"""The size of the run that the docs show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOptions:
    """What is asked for, and the files that are written: the result, and its picture as SVG."""

    seed: int = 1
    epochs: int = EPOCHS
    kills: int = KILLS
    json: Path | None = None
    picture: Path | None = None


def run_shown(options: ShownOptions, say: Callable[[str], None]) -> Shown:
    """Run the query to its end, through all its kills, and judge what both operators have counted.

    Campaign's process, its main thread; every process that it starts has ended when it returns. ``say`` gets one line
    for each life.

    Raises:
        SetupError: Java or PySpark is missing, or the job ended by itself before its time.
    """
    plan = draw_plan(options.seed, epochs=options.epochs, kills=options.kills)
    connector_jars()
    world = Path(tempfile.mkdtemp(prefix="onceonly-unaligned-"))
    try:
        began = time.monotonic()
        write_input(plan, world / "input")
        (world / "output").mkdir()  # the file sink makes the target, not what is above it
        for life, kill in enumerate((*plan.kills, None), start=1):
            _live(world, life, kill)
            say(
                f"life {life}: "
                + (f"killed in chk-{kill.epoch} at {kill.point}" if kill else "read the rest")
            )
        counted = {
            mode: audit(plan, mode, _output(world, mode), differing=_differing(world, mode)) for mode in Mode
        }
        seconds = round(time.monotonic() - began, 1)
    finally:
        shutil.rmtree(world, ignore_errors=True)
    found = conclude(plan, counted[Mode.ALIGNED], counted[Mode.UNALIGNED], seconds=seconds)
    found = msgspec.structs.replace(found, machine=host.machine(), versions=host.versions())
    if options.json is not None:
        save(options.json, encode(found))
    if options.picture is not None:
        save(options.picture, picture(found).encode())
    return found


def picture(found: Shown) -> str:
    """Draw both operators' counts, as SVG. Pure."""
    return charts.svg(draw(found.aligned.windows, found.unaligned.windows))


def _output(world: Path, mode: Mode) -> list[Seen]:
    return list(FilesReader(mode, world / "output" / mode).rows())


def _differing(world: Path, mode: Mode) -> int:
    told = (each for each in events.read(world / "events") if each["kind"] == "replay.differs")
    return sum(f"sink {mode}:" in each["message"] for each in told)


def _live(world: Path, life: int, kill: Kill | None) -> None:
    """Run one life to its end: SIGKILL to its tree when it stands at its point, or the end of the input."""
    folder = world / f"life-{life}"
    fired = folder / "fired"
    fired.mkdir(parents=True)
    command = [sys.executable, "-W", "ignore", "-m", "onceonly_proof.campaign.unaligned_job"]
    command += [str(world), str(life)]
    if kill is not None:
        command += ["--epoch", str(kill.epoch), "--point", kill.point, "--arm", str(folder / "points")]
    env = {
        "ONCEONLY_FAILPOINTS": f"@{folder / 'points'}",
        "ONCEONLY_FAILPOINTS_DIR": str(fired),
        "ONCEONLY_EVENTS": str(world / "events"),
    }
    process = JobProcess.start(command, log=folder / "job.log", env=env, cwd=folder)
    try:
        if not until(lambda: process.exit_code is not None or failpoints.fired(fired), _LIFE_TIMEOUT_S):
            raise _wrong(process, f"was not done within {_LIFE_TIMEOUT_S:.0f} s")
        if (process.exit_code is not None) if kill else (process.exit_code != 0):
            raise _wrong(process, f"ended by itself with status {process.exit_code}")
    finally:
        process.kill()


def _wrong(process: JobProcess, what: str) -> SetupError:
    return SetupError(
        f"the job {what}; the last lines of its log:\n{process.last_lines()}",
        next_step="see whether Java and PySpark work here, and whether memory is short",
    )
