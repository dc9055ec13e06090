"""What the demo shows: progress while it runs, a table at its end, the same as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from onceonly.model import Guarantee
from onceonly_proof.demo.data import WATERMARK, WINDOW

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.progress import TaskID

    from onceonly_proof.demo.audit import Audit
    from onceonly_proof.demo.follow import Transactions

_PROMISES = {
    Guarantee.EXACTLY_ONCE: "nothing missing, nothing twice",
    Guarantee.AT_LEAST_ONCE: "nothing missing; duplicates are allowed",
    Guarantee.AT_MOST_ONCE: "nothing twice; missing records are allowed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of one demo."""

    guarantee: Guarantee
    seed: int
    audit: Audit
    kills: Mapping[str, int]
    """Done kills by step; only steps that the job really stood at."""
    epochs: Mapping[str, int]
    """Completed epochs by query."""
    transactions: Transactions
    late: timedelta
    seconds: float
    failures: int = 0
    """How often the job died by itself, not by a kill, and was started again."""
    picture: Path | None = None
    kept: Path | None = None

    @property
    def is_clean(self) -> bool:
        """Whether the audit found what the guarantee promises."""
        return self.audit.is_clean(self.guarantee)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of ``--json``."""
        audit = self.audit
        return {
            "clean": self.is_clean,
            "guarantee": self.guarantee.value,
            "events": audit.events,
            "windows": audit.windows,
            "missing": audit.missing,
            "duplicated": audit.duplicated,
            "duplicated_events": audit.duplicated_events,
            "doubled_results": audit.doubled_results,
            "foreign": audit.foreign,
            "unequal": audit.unequal,
            "wrong_windows": audit.wrong_windows,
            "open_transactions": list(audit.open_transactions),
            "examples": list(audit.examples),
            "kills": dict(self.kills),
            "epochs": sum(self.epochs.values()),
            "epochs_by_query": dict(self.epochs),
            "transactions": {
                "committed": self.transactions.committed,
                "recovered": self.transactions.recovered,
                "aborted": self.transactions.aborted,
            },
            "latest_event_hours": self.late.total_seconds() / 3600,
            "watermark_hours": WATERMARK.total_seconds() / 3600,
            "failures": self.failures,
            "seconds": round(self.seconds, 1),
            "seed": self.seed,
        }

    def render(self) -> RenderableType:
        """Return the table for people."""
        audit, done = self.audit, self.transactions
        kills = Table("kill at step", "times", title="Kills, SIGKILL to the whole process tree", min_width=64)
        kills.columns[1].justify = "right"
        for step, times in sorted(self.kills.items()):
            kills.add_row(step, str(times))
        kills.add_section()
        kills.add_row("all", str(sum(self.kills.values())))
        table = Table(title=f"Audit · {self.guarantee}", show_header=False, min_width=64)
        table.add_column()
        table.add_column(justify="right")
        table.add_row("events streamed", f"{audit.events:,}")
        table.add_row(
            "latest event · watermark · window",
            f"{_hours(self.late)} · {_hours(WATERMARK)} · {_hours(WINDOW)}",
        )
        table.add_row("epochs (" + ", ".join(self.epochs) + ")", " + ".join(map(str, self.epochs.values())))
        table.add_row("transactions committed", f"{done.committed:,}")
        table.add_row("transactions recovered", f"{done.recovered:,}")
        table.add_row("transactions aborted", f"{done.aborted:,}")
        table.add_section()
        table.add_row("events missing", _verdict(audit.missing))
        table.add_row("events duplicated", _verdict(audit.duplicated_events))
        table.add_row("results doubled (epoch, key)", _verdict(audit.doubled_results))
        table.add_row("results in Kafka but not in files, or reverse", _verdict(audit.unequal))
        table.add_row(f"wrong windows, of {audit.windows:,}", _verdict(audit.wrong_windows))
        table.add_row("foreign records", _verdict(audit.foreign))
        table.add_row("transactions left open", _verdict(len(audit.open_transactions)))
        table.add_section()
        table.add_row("failures of the job by itself", str(self.failures))
        table.add_row("time", f"{self.seconds:.0f} s")
        word, style = ("CLEAN", "bold green") if self.is_clean else ("NOT CLEAN", "bold red")
        verdict = Text.assemble((word, style), f" for {self.guarantee}: {_PROMISES[self.guarantee]}")
        examples = [Text(f"  {example}", style="red") for example in audit.examples]
        return Group(kills, table, verdict, *(examples if not self.is_clean else []))


class Display:
    """The progress bars, on stderr. Use as a context; not shared between threads."""

    def __init__(self, console: Console, *, events: int, epochs: int, kills: int) -> None:
        self._bars = Progress(
            TextColumn("{task.description}", table_column=None),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=console,
        )
        self._epochs_expected = epochs
        self._fed = self._add("events fed", events)
        self._visible = self._add("events visible", events)
        self._epochs = self._add("epochs done", epochs)
        self._kills = self._add("kills done", kills)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def fed(self, count: int) -> None:
        self._bars.update(self._fed, completed=count)

    def visible(self, count: int) -> None:
        self._bars.update(self._visible, completed=count)

    def epochs(self, count: int) -> None:
        # How many there will be is known only roughly: the last one of a query may be an extra, empty one.
        self._bars.update(self._epochs, completed=count, total=max(count, self._epochs_expected))

    def kills(self, count: int, note: str) -> None:
        self._bars.update(self._kills, completed=count, note=note)

    def say(self, message: str) -> None:
        """Print one line above the bars."""
        self._bars.console.print(message, highlight=False)

    def _add(self, name: str, total: int) -> TaskID:
        return self._bars.add_task(name, total=total, note="")


def _hours(span: timedelta) -> str:
    return f"{span.total_seconds() / 3600:g} h"


def _verdict(count: int) -> Text:
    return Text(f"{count:,}", style="green" if count == 0 else "bold red")
