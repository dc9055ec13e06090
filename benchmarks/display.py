"""What a person sees of a benchmark while it runs, and the table at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.figures import PERCENTILES
from benchmarks.summary import lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.progress import TaskID

    from benchmarks.values import Measured, Results, Run

_TOLD = ("records_per_s", *PERCENTILES, "epoch_triggerExecution_ms", "decide_ms", "recovery_median_s")


@dataclass(slots=True)
class Display:
    """A bar on a terminal, and a line for each run that is done. Harness."""

    console: Console
    _bar: Progress = field(init=False)
    _task: TaskID = field(init=False)
    _run: str = ""

    def __post_init__(self) -> None:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._bar = Progress(*columns, console=self.console, transient=True)
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, total: int) -> None:
        """Say how many runs there will be."""
        self._bar.update(self._task, total=total)

    def run(self, run: Run) -> None:
        """Show that a run begins."""
        self._run = run.id
        self.say("")

    def say(self, step: str) -> None:
        """Show what is being done."""
        self._bar.update(self._task, description=f"{self._run} {step}")

    def keep(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def done(self, measured: Sequence[Measured]) -> None:
        """Print a line for a run that is done."""
        self._bar.advance(self._task)
        for each in measured:
            told = [f"{name} {each.figures[name]:,.1f}" for name in _TOLD if name in each.figures]
            if each.outcome != "whole":
                told.insert(0, f"{each.outcome.upper()}: {each.lost} lost, {each.doubled} doubled {each.why}")
            self.keep(f"{each.run.id}: {', '.join(told)}")


def table(results: Results) -> Table:
    """Draw the medians of all runs. Pure."""
    shown = Table(title=f"benchmark, {results.size}", title_justify="left", box=box.SIMPLE)
    for name in ("part", "work", "contender", "runs", "figure", "median", "least", "most"):
        shown.add_column(name, justify="left" if name in {"part", "work", "contender", "figure"} else "right")
    for line in lines(results.runs):
        shown.add_row(
            line.part,
            line.work,
            line.contender,
            str(line.runs),
            line.figure,
            *(f"{each:,.1f}" for each in (line.median, line.least, line.most)),
        )
    return shown


def ratio_table(results: Results) -> Table:
    """Draw the ratios, or why there is none. Pure."""
    shown = Table(title="ratios", title_justify="left", box=box.SIMPLE)
    for name in ("ratio", "value", "good is", "what, or why not"):
        shown.add_column(name, justify="right" if name == "value" else "left", overflow="fold")
    for name, value in results.ratios.items():
        note = results.ratio_notes[name]
        shown.add_row(name, "none" if value is None else f"{value:,.2f}", note.better, note.why or note.is_)
    return shown
