"""``python -m benchmarks.soak.page RESULTS`` records a soak in docs/proof, and writes its figures into the page."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from benchmarks.soak.trend import WARM_SHARE, trend
from benchmarks.soak.values import Soak
from onceonly_proof.campaign import marks

RECORD, PAGE = Path("docs/proof/soak.json"), Path("docs/explanation/soak.md")
"""Relative to the project's folder."""
MARKS = "figures"


def figures(found: Soak | None) -> str:
    """Return the table. Pure."""
    if found is None:
        return marks.NONE
    told = [(series, trend(series)) for series in found.series]
    cells: dict[str, dict[str, str]] = {}
    for series, each in told:
        whose, _, what = series.name.partition(": ")
        kind = f"{what}, MiB" if series.unit == "MiB" else what
        grows = "" if each.verdict == "flat" else f", **{each.verdict}: {each.per_hour:+,.0f} an hour**"
        cells.setdefault(whose, {})[kind] = f"{each.first:,.0f} to {each.last:,.0f}{grows}"
    kinds = dict.fromkeys(kind for own in cells.values() for kind in own)
    lines = "".join(
        f"| {whose} |{''.join(f' {own.get(kind, str())} |' for kind in kinds)}\n"
        for whose, own in cells.items()
    )
    flat = sum(each.verdict == "flat" for _, each in told)
    rows = "every row came out once" if found.rows_in == found.rows_out else "**rows are missing or doubled**"
    where = marks.recorded_on(found.machine, [found.versions.get("commit", "")], record=RECORD)
    return (
        f"From the end of the warm-up (the first {WARM_SHARE:.0%}) to the end; {flat} of {len(told)} are flat:\n\n"
        f"| |{''.join(f' {kind} |' for kind in kinds)}\n|---|{'--:|' * len(kinds)}\n"
        f"{lines}\n{found.epochs:,} epochs in {found.seconds / 60:,.0f} minutes, one every"
        f" {1000 * found.seconds / max(found.epochs, 1):,.0f} ms; {found.rows_in:,} rows in, {found.rows_out:,} out:"
        f" {rows}.\n\nRecorded by `python -m benchmarks.soak` on {found.started[:10]}, with a load of"
        f" {found.load_before} before and {found.load_after} after, {where}"
    )


def read(path: Path) -> Soak | None:
    """Read a record, None where there is none."""
    return msgspec.json.decode(path.read_bytes(), type=Soak) if path.exists() else None


def main() -> None:
    """Record the results that are given, and write the page."""
    if len(sys.argv) > 1:
        RECORD.write_bytes(Path(sys.argv[1]).read_bytes())
    marks.write(PAGE, figures(read(RECORD)), name=MARKS)


if __name__ == "__main__":
    main()
