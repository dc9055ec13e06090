"""The page on growth, made of one file of results, so that nobody types a figure.

``python -m benchmarks.scale.page RESULTS`` records the results under ``docs/proof`` and writes the page; a test sees
that the page is what the record gives.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import plots
from benchmarks.contenders.base import ROOT
from benchmarks.scale.fit import CONSTANT, Model, fit
from benchmarks.scale.values import decode
from benchmarks.values import encode
from onceonly_proof import charts
from onceonly_proof.campaign import marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.scale.values import Point, Scale

RECORD, PAGE = Path("docs/proof/scale.json"), Path("docs/explanation/scale.md")
PICTURE = Path("docs/proof/scale-commit.svg")
"""Relative to the project's folder."""
TERMS = {
    "link_bytes": ("sinks", "handles"),
    "link_put_ms": ("handles",),
    "link_read_ms": ("handles",),
    "history_bytes": ("epochs", "epochs x sinks"),
    "commits_ms": ("transactions",),
    "decide_ms": ("transactions",),
    "heap_ids_bytes": ("ids",),
    "heap_groups_bytes": ("groups",),
}
DETAILED = 120
"""Epochs whose links stay, at most: ``onceonly.history`` is 100, and history is made 20 at a time."""
IDS_A_SLOT = 2
"""A worker has a second id ready while the first one's epoch is being resolved."""
_LINK = (
    "A link on disk: its bytes, its put with both syncs, its reading with the checksum. A handle is one slot's "
    "transaction in one sink."
)
_FOLDER = (
    "A driver is killed every 500 epochs. `start_ms`: the log is opened, an epoch claimed and planned. History is what "
    "is left of epochs that are no longer kept in detail."
)
_COMMITS = (
    "One warm broker, no rows. From the last vote, `commits_ms` is the time until all are committed, `decide_ms` until "
    "they are noted and swept, too. [More on the commit phase](performance.md#the-commit-phase).\n\n"
    f"![Commits](../proof/{PICTURE.name})"
)
_HEAP = (
    "What is reachable after a full collection. A coordinator keeps each transactional id, and each slot's group of "
    "markers. What a partition's leader keeps of producers is not counted."
)
_SECTIONS = (
    ("A decision by its handles", _LINK, ("link_bytes", "link_put_ms", "link_read_ms")),
    ("The log's folder by epochs", _FOLDER, ("log_files", "log_bytes", "start_ms", "history_bytes")),
    ("Commits by transactions", _COMMITS, ("commits_ms", "decide_ms")),
    ("The broker's heap", _HEAP, ("heap_ids_bytes", "heap_groups_bytes")),
)


def page(results: Scale) -> str:
    """Return the page, in Markdown. Pure."""
    models = fitted(results.points)
    parts = [_head(results)]
    for title, text, figures in _SECTIONS:
        parts += [
            f"## {title}\n\n{text}",
            _formulas(figures, results.points, models),
            _points([each for each in figures if each not in models], results.points),
        ]
    parts.append(_large(models))
    return "\n\n".join(part for part in parts if part) + "\n"


def fitted(points: Sequence[Point]) -> dict[str, Model]:
    """Fit every model. Pure."""
    return {figure: fit(figure, terms, points) for figure, terms in TERMS.items()}


def picture(results: Scale) -> str:
    """Draw the commit phase by its transactions. Pure."""
    points = {each.at["transactions"]: each.median for each in results.points if each.figure == "decide_ms"}
    title = "From the last vote to all visible, noted and swept"
    return charts.svg(plots.curve(title, "ms", "transactions of the epoch", points))


def write(root: Path, results: Scale) -> None:
    """Write record, page and picture into the project in ``root``. Any number of times."""
    for place, content in (
        (RECORD, encode(results)),
        (PAGE, page(results).encode()),
        (PICTURE, picture(results).encode()),
    ):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_bytes(content)


def _head(results: Scale) -> str:
    machine = results.machine
    where = f"{machine.get('cores')} cores and {machine.get('memory_gib')} GiB, {machine.get('system')}"
    return (
        "# How it grows\n\n"
        "What slots, sinks and epochs cost at sizes that one machine can have, as straight lines through medians, and "
        f"what a large cluster would need. `{RECORD}` has each point with its least and its most.\n\n"
        f"Recorded by `make scale` on {results.started[:10]} in {results.seconds / 60:.0f} minutes on {where}; load of "
        f"the machine {results.load_before:.1f} before and {results.load_after:.1f} after, in interleaved "
        f"repeats. Other work makes times longer, and changes no size. {marks.LATER}"
    )


def _points(figures: Sequence[str], points: Sequence[Point]) -> str:
    """Return one table of medians: a row for each size, a column for each figure. Of no figure there is none."""
    if not figures:
        return ""
    cells = {(each.figure, *each.at.values()): _number(each.median) for each in points}
    own = [each for each in points if each.figure in figures]
    rows = [
        [*(f"{value:,}" for value in size), *(cells.get((figure, *size), "") for figure in figures)]
        for size in dict.fromkeys(tuple(each.at.values()) for each in own)
    ]
    return _table([*own[0].at, *(f"`{figure}`" for figure in figures)], rows)


def _formulas(figures: Sequence[str], points: Sequence[Point], models: dict[str, Model]) -> str:
    """Return a line for each model, with its largest point and how far it is off at those that were measured."""
    return "\n".join(
        f"- `{figure}`: {_formula(models[figure])} ({_measured(figure, points, models[figure])})"
        for figure in figures
        if figure in models
    )


def _measured(figure: str, points: Sequence[Point], model: Model) -> str:
    own = [each for each in points if each.figure == figure]
    largest = max(own, key=lambda each: tuple(each.at.values())[::-1])
    shares = [_off(model(**each.at), each.median) for each in own]
    least, most = (chosen(shares, key=lambda share: int(share[:-1])) for chosen in (min, max))
    size = ", ".join(f"{value:,} {name}" for name, value in largest.at.items())
    return f"{_number(largest.median)} at {size}; off by {least} to {most}"


def _formula(model: Model) -> str:
    parts = [
        _number(value) if name == CONSTANT else f"{_number(value)} · {name.replace(' x ', ' · ')}"
        for name, value in model.coefficients.items()
    ]
    return " + ".join(parts).replace("+ -", "- ")


def _large(models: dict[str, Model]) -> str:
    slots, sinks, executors, tasks = 10_000, 10, 1_000, 8
    rows = [
        _needs("10,000 slots, 1 sink", models, slots=slots, sinks=1),
        _needs("10,000 slots, 10 sinks", models, slots=slots, sinks=sinks),
        _needs(f"1,000 executors of {tasks} tasks, 1 sink", models, slots=executors * tasks, sinks=1),
    ]
    head = ["", "transactions an epoch", "a decision", "put", "read", "log, 100 epochs kept", "log, 2 kept", "decide",
            "ids on the brokers", "their heap"]  # fmt: skip
    one, ten = (_size(models["history_bytes"](epochs=100_000, sinks=count)) for count in (1, sinks))
    return (
        "## What large ones would need\n\n"
        "**Extrapolated, not measured**: the models, far beyond their points, with one broker of this kind for all "
        "commits. Real clusters share the coordinators out, and what is small here may become what counts.\n\n"
        f"{_table(head, rows)}\n\n"
        f"- **The log** keeps details, which grow with the handles, for the newest {DETAILED} epochs. With thousands "
        "of slots, set `onceonly.history` low: 2 keeps 22 at most. History grows with epochs and sinks only: 100,000 "
        f"epochs take {one} with one sink, {ten} with ten.\n"
        "- **Transactional ids.** A worker has one for the epoch in progress, and one for the next. Each restart adds "
        "as many, [for a week](../how-to/scheduled-queries.md). The heap, over all brokers, is for these and a group "
        "for each slot. Connections were not measured: each task has some to each broker it writes to.\n"
        "- **Fewer slots help everywhere.** `coalesce` before the sink: transactions count, not rows."
    )


def _needs(name: str, models: dict[str, Model], *, slots: int, sinks: int) -> list[str]:
    handles = slots * sinks
    link = models["link_bytes"](sinks=sinks, handles=handles)
    history = models["history_bytes"](epochs=100_000, sinks=sinks)
    ids = IDS_A_SLOT * handles
    heap = models["heap_ids_bytes"].coefficients["ids"] * ids
    heap += models["heap_groups_bytes"].coefficients["groups"] * handles
    return [
        name,
        f"{handles:,}",
        _size(link),
        _seconds(models["link_put_ms"](handles=handles)),
        _seconds(models["link_read_ms"](handles=handles)),
        _size(DETAILED * link + history),
        _size(22 * link + history),
        _seconds(models["decide_ms"](transactions=handles)),
        f"{ids:,}",
        _size(heap),
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)])


def _off(said: float, measured: float) -> str:
    share = round(100 * (said - measured) / measured)
    return f"{share:+}%" if share else "0%"


def _number(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 1 else f"{value:.4g}"  # noqa: PLR2004  three digits


def _size(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"  # noqa: PLR2004  decimal units


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:,.1f} s" if milliseconds >= 1000 else f"{milliseconds:,.0f} ms"  # noqa: PLR2004


def main() -> None:
    """Publish the results that the argument names."""
    write(ROOT, decode(Path(sys.argv[1]).read_bytes()))


if __name__ == "__main__":
    main()
