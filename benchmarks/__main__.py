"""``python -m benchmarks``: the benchmark from the command line. ``make bench`` and ``make bench-quick`` call it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click
from msgspec.structs import replace
from rich.console import Console

from benchmarks import bench, display
from benchmarks.plan import SIZES
from benchmarks.summary import broken
from benchmarks.values import CONTENDERS, PARTS
from onceonly.errors import OnceonlyError

_RESULTS = Path(__file__).parent / "results" / "latest.json"
_EXIT_BROKEN, _EXIT_CANNOT = 1, 2
_WIDTH = 140
"""Of a table in a file, which would be cut to 80."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--size", type=click.Choice(list(SIZES)), default="full", show_default=True)
@click.option("--only", "parts", type=click.Choice(PARTS), multiple=True, help="This part; may be repeated.")
@click.option(
    "--contender",
    "names",
    type=click.Choice(CONTENDERS),
    multiple=True,
    help="This one; may be repeated. Ratios with others are null.",
)
@click.option("--rounds", type=click.IntRange(1), help="So many, in place of the size's.")
@click.option("--rate", type=click.IntRange(1), help="Latency at this rate, in place of the size's.")
@click.option("--results", type=click.Path(path_type=Path, dir_okay=False), default=_RESULTS)
@click.option(
    "--fresh", is_flag=True, help="Begin anew, where an interrupted benchmark would be gone on with."
)
def main(
    *,
    size: str,
    parts: tuple[str, ...],
    names: tuple[str, ...],
    rounds: int | None,
    rate: int | None,
    results: Path,
    fresh: bool,
) -> None:
    """Measure onceonly beside Spark's own Kafka sink and PyFlink, on this machine.

    Exit status: 0 if every row came out once in every run, 1 if not, 2 if it could not run.
    """
    messages, data = Console(stderr=True), Console()
    if not data.is_terminal:
        data.width = _WIDTH
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended in order, as by Ctrl-C
    sizes = SIZES[size]
    sizes = replace(sizes, rounds=rounds or sizes.rounds, rates=sizes.rates if rate is None else (rate,))
    asked = [
        f"--size {size}",
        *(f"--only {each}" for each in parts),
        *(f"--contender {each}" for each in names),
    ]
    asked += [f"--rounds {rounds}"] if rounds else []
    asked += [f"--rate {rate}"] if rate else []
    command = " ".join(["python -m benchmarks", *asked])
    options = bench.Options(sizes=sizes, command=command, path=results, parts=parts, names=names, fresh=fresh)
    try:
        with display.Display(messages) as shown:
            found = bench.run(options, shown)
    except OnceonlyError as error:
        messages.print(f"error: {error.what}\nnext step: {error.next_step}", markup=False, soft_wrap=True)
        sys.exit(_EXIT_CANNOT)
    except KeyboardInterrupt:
        messages.print(f"interrupted; {results} has what was measured, and the same command goes on with it")
        sys.exit(_EXIT_CANNOT)
    data.print(display.table(found))
    data.print(display.ratio_table(found))
    data.print(f"written to {results}", soft_wrap=True)
    sys.exit(_EXIT_BROKEN if broken(found.runs) else 0)


if __name__ == "__main__":
    main()
