"""``onceonly verify --unaligned``: what barrier alignment is for, shown by a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from onceonly.cli import shared

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.testing.campaign.unaligned_audit import Shown


def show(*, seed: int, json: Path | None, picture: Path | None) -> int:
    """Run it, print a table, and give the exit status: 0 if both statements hold, else 2."""
    try:
        from onceonly.testing.campaign.unaligned_run import ShownOptions, run_shown
    except ModuleNotFoundError as error:
        raise shared.missing(error) from None
    options = ShownOptions(seed=seed, json=json, picture=picture)
    shared.tell(f"seed {seed}: {options.epochs} epochs, {options.kills} kills; this takes a minute or more")
    found = run_shown(options, shared.tell)
    shared.show(table(found))
    aligned, unaligned = found.aligned.windows, found.unaligned.windows
    shared.tell(f"{found.rows:,} rows, {found.crashes} kills of the whole job, {found.seconds:.0f} s")
    shared.tell(f"aligned: {aligned.over:,} rows counted again, {aligned.missing:,} missing")
    shared.tell(f"unaligned: {unaligned.over:,} rows counted again, {unaligned.missing:,} missing")
    for text in found.why:
        shared.tell(f"{found.verdict}: {text}")
    return 0 if found.verdict == "shown" else shared.EXIT_CANNOT_TELL


def table(found: Shown) -> Table:
    """Draw both operators' counts, window by window."""
    drawn = Table(title="rows counted by window", title_justify="left", box=box.SIMPLE)
    drawn.add_column("window")
    for name in ("went in", "aligned", "unaligned", "counted again"):
        drawn.add_column(name, justify="right")
    drawn.add_column("")
    for aligned, unaligned in zip(
        found.aligned.windows.windows, found.unaligned.windows.windows, strict=True
    ):
        off = unaligned.counted - unaligned.expected
        drawn.add_row(
            aligned.name,
            *(f"{count:,}" for count in (aligned.expected, aligned.counted, unaligned.counted)),
            f"{off:+,}" if off else "",
            "killed" if aligned.killed else "",
        )
    return drawn
