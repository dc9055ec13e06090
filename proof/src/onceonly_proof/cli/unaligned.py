"""``onceonly verify unaligned``: what barrier alignment is for, shown by a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich import box
from rich.table import Table

from onceonly.cli import shared
from onceonly.words import n
from onceonly_proof.cli.missing import missing

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.campaign.unaligned_audit import Shown


@click.command("unaligned")
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses the rows and the kills.")
@click.option("--json", "json_file", type=shared.NEW_FILE, help="The result.")
@click.option("--picture", type=shared.NEW_FILE, help="Both operators' counts as SVG.")
def unaligned(*, seed: int, json_file: Path | None, picture: Path | None) -> int:
    """Show what barrier alignment is for: counts with and without it, under the same kills.

    Exit status: 0 if both statements hold, else 2.
    """
    try:
        from onceonly_proof.campaign.unaligned_run import ShownOptions, run_shown
    except ModuleNotFoundError as error:
        raise missing(error) from None
    options = ShownOptions(seed=seed, json=json_file, picture=picture)
    shared.tell(
        f"seed {seed}: {n(options.epochs, 'epoch')}, {n(options.kills, 'kill')}; this takes a minute or more"
    )
    found = run_shown(options, shared.tell)
    shared.show(table(found))
    ours, other = found.aligned.windows, found.unaligned.windows
    shared.tell(f"{n(found.rows, 'row')}, {n(found.crashes, 'kill')} of the whole job, {found.seconds:.0f} s")
    shared.tell(f"aligned: {n(ours.over, 'row')} counted again, {ours.missing:,} missing")
    shared.tell(f"unaligned: {n(other.over, 'row')} counted again, {other.missing:,} missing")
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
    for ours, other in zip(found.aligned.windows.windows, found.unaligned.windows.windows, strict=True):
        off = other.counted - other.expected
        drawn.add_row(
            ours.name,
            *(f"{count:,}" for count in (ours.expected, ours.counted, other.counted)),
            f"{off:+,}" if off else "",
            "killed" if ours.killed else "",
        )
    return drawn
