"""What a person sees of a campaign while it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PER_SECOND = 4


@dataclass(slots=True)
class Display:
    """One line that changes, on a terminal; elsewhere a line for each round. Campaign's process."""

    console: Console
    crashes_wanted: int
    crashes: int = 0
    crashes_now: int = 0
    """Of the round that runs."""
    anomalies: int = 0
    round: str = ""
    step: str = ""
    fired: int = 0
    armed: int = 0
    rows: int = 0
    _started: float = field(default_factory=time.monotonic)
    _live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                get_renderable=self._render,
                console=self.console,
                refresh_per_second=_PER_SECOND,
                transient=True,
            )
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.__exit__(None, None, None)

    def begin(self, name: str) -> None:
        """Show that a round begins."""
        self.round, self.step, self.fired, self.armed, self.rows = name, "", 0, 0, 0
        self.crashes_now = 0
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def _render(self) -> RenderableType:
        seconds = time.monotonic() - self._started
        anomalies = Text(f"{self.anomalies} anomalies", style="bold red" if self.anomalies else "green")
        table = Table.grid(padding=(0, 2))
        table.add_row(
            Text(self.round, style="bold"),
            f"{seconds:.0f} s",
            f"faults {self.fired}/{self.armed}",
            f"crashes {self.crashes + self.crashes_now}"
            + (f"/{self.crashes_wanted}" if self.crashes_wanted else ""),
            f"{self.rows / max(seconds, 0.1):.0f} rows/s",
            anomalies,
            Text(self.step, style="dim"),
        )
        return table
