"""Puts known defects of exactly-once into a copy of the code, one at a time, and sees that the named tests turn red.

::

    make mutants                                     all of them
    .venv/bin/python -m tests.mutation.mutate NAME   one or some of them
    … --quick                                        without those that need a broker

Ends with 0 only if every defect is caught *and* the tests are green on the unchanged copy.
"""

from __future__ import annotations

import compileall
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table
from tests.mutation.defects import DEFECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.mutation.defects import Defect

ROOT = Path(__file__).parents[2]
PACKAGE = "onceonly"
PROCESS_SECONDS_MAX = 500


class DoesNotApplyError(Exception):
    """The text that a defect replaces is not there exactly once: the code has changed, the defect must follow."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a run of named tests gave: failures by test, with their words."""

    failed: dict[str, str]
    passed: tuple[str, ...]
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one defect; ``why`` is empty where it was caught."""

    name: str
    seconds: float
    why: str = ""


def put_in(defect: Defect, source: Path) -> None:
    """Put a defect into the copy of the code in ``source``. Raises ``DoesNotApplyError``."""
    path = source / PACKAGE / defect.file
    text = path.read_text(encoding="utf-8")
    found = text.count(defect.before)
    if found != 1:
        raise DoesNotApplyError(
            f"{defect.name}: its text is {found} times in src/{PACKAGE}/{defect.file}, not once"
        )
    mutated = text.replace(defect.before, defect.after)
    compile(mutated, str(path), "exec")
    path.write_text(mutated, encoding="utf-8")
    # Python tells by second and size whether it is old; a defect may keep both.
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def run(tests: Sequence[str], source: Path, folder: Path) -> Told:
    """Run tests in a process of their own, against the package in ``source``."""
    answer = folder / "answer.json"
    inherited = (
        "ONCEONLY_",
        "PYTEST_",
    )  # what is armed here, and what a pytest that calls this tells its own
    environment = {name: value for name, value in os.environ.items() if not name.startswith(inherited)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation.run_named", str(source), str(answer), *tests],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PROCESS_SECONDS_MAX,
    )
    if not answer.exists():
        return Told({}, (), f"the tests could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    told = json.loads(answer.read_text(encoding="utf-8"))
    broken = [*told["broken"], *(f"{file} was imported, not its copy" for file in told["elsewhere"])]
    return Told(told["failed"], tuple(told["passed"]), "\n".join(broken)[-4000:])


def try_out(defect: Defect) -> Verdict:
    """Put one defect into a fresh copy, and see whether each of its tests turns red for its reason."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onceonly-mutant-") as folder:
        source = _copied(Path(folder))
        try:
            put_in(defect, source)
            told = run(defect.tests, source, Path(folder))
        except (DoesNotApplyError, SyntaxError, subprocess.TimeoutExpired) as error:
            why = str(error)
        else:
            why = told.broken or _missed(defect, told)
    return Verdict(defect.name, time.monotonic() - started, why)


def try_unchanged(defects: Iterable[Defect]) -> Verdict:
    """See that the tests which the defects name are green on an unchanged copy."""
    started = time.monotonic()
    tests = sorted({test for defect in defects for test in defect.tests})
    with tempfile.TemporaryDirectory(prefix="onceonly-mutant-") as folder:
        told = run(tests, _copied(Path(folder)), Path(folder))
    red = [f"{test} is red on the unchanged code:\n{words}" for test, words in told.failed.items()]
    unseen = [f"{test} did not run" for test in tests if not any(_is_of(each, test) for each in told.passed)]
    return Verdict(
        "(unchanged)", time.monotonic() - started, told.broken or "\n".join([*red, *unseen])[-4000:]
    )


def _missed(defect: Defect, told: Told) -> str:
    green = [test for test in defect.tests if not any(_is_of(each, test) for each in told.failed)]
    if green:
        return f"not caught: {', '.join(green)} stays green"
    if not any(defect.says in words for words in told.failed.values()):
        return f"caught for another reason: no failure says {defect.says!r}\n{next(iter(told.failed.values()))[-1500:]}"
    return ""


def _is_of(node: str, test: str) -> bool:
    """Tell whether a test that ran is the named one, or one of its parameters."""
    return node == test or node.startswith(test + "[")


@functools.cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    """Copy the code once and compile it, so that a process of a mutant compiles one module, not all."""
    folder = tempfile.TemporaryDirectory(prefix="onceonly-mutants-")
    copy = Path(folder.name) / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    compileall.compile_dir(copy, quiet=1)
    return folder


def _copied(folder: Path) -> Path:
    shutil.copytree(Path(_compiled().name) / "src", folder / "src")
    return folder / "src"


# -------------------------------------------------------------------------------------- the command line
@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="Only those that need no broker.")
@click.option("--jobs", default=min(2, os.cpu_count() or 1), show_default=True, help="How many at a time.")
def main(names: tuple[str, ...], *, quick: bool, jobs: int) -> None:
    """Put the known defects into a copy of the code and see that tests catch them."""
    console = Console()
    unknown = set(names) - {defect.name for defect in DEFECTS}
    if unknown:
        raise click.BadParameter(f"no defect is named {', '.join(sorted(unknown))}", param_hint="NAMES")
    chosen = [
        each for each in DEFECTS if (not names or each.name in names) and not (quick and each.needs_broker)
    ]
    verdicts = _try_all(chosen, jobs, console)
    console.print(_table(verdicts))
    for verdict in verdicts:
        if verdict.why:
            console.print(f"[red]{escape(verdict.name)}[/]: {escape(verdict.why)}\n")
    sys.exit(any(verdict.why for verdict in verdicts))


def _try_all(chosen: Sequence[Defect], jobs: int, console: Console) -> list[Verdict]:
    _compiled()  # before there are threads
    tasks: list[Callable[[], Verdict]] = [lambda: try_unchanged(chosen)]
    tasks += [lambda defect=defect: try_out(defect) for defect in chosen]  # type: ignore[misc]  # bound now
    with Progress(console=console, transient=True) as progress, ThreadPoolExecutor(jobs) as pool:
        bar = progress.add_task("mutants", total=len(tasks))

        def carried_out(task: Callable[[], Verdict]) -> Verdict:
            verdict = task()
            progress.update(bar, advance=1, description=verdict.name)
            return verdict

        return list(pool.map(carried_out, tasks))


def _table(verdicts: Sequence[Verdict]) -> Table:
    table = Table("defect", "verdict", "s")
    for verdict in verdicts:
        said = "[red]NO[/]" if verdict.why else "green" if verdict.name.startswith("(") else "caught"
        table.add_row(escape(verdict.name), said, f"{verdict.seconds:.1f}")
    caught = sum(not verdict.why for verdict in verdicts if not verdict.name.startswith("("))
    table.caption = f"{caught} caught"
    return table


if __name__ == "__main__":
    main()
