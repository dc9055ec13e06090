"""Savepoints for people and machines: sentences, tables, JSON. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.words import n, time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from onceonly.savepoints.manifest import Savepoint
    from onceonly.savepoints.place import Standing


def row(path: str, savepoint: Savepoint) -> dict[str, Any]:
    """Return what a list says of a savepoint."""
    return {
        "path": path,
        "name": savepoint.name,
        "query": savepoint.query,
        "epoch": savepoint.epoch,
        "made_at": savepoint.made.at,
        "host": savepoint.made.host,
        "files": len(savepoint.files),
        "bytes": savepoint.bytes,
        "provider": savepoint.provider,
        "spark": savepoint.spark or None,
        "home": savepoint.home,
    }


def savepoint(path: str, found: Savepoint) -> dict[str, Any]:
    """Return all that a savepoint says of itself, but for its files one by one."""
    return {
        **row(path, found),
        "barrier": list(found.barrier),
        "watermark": _watermark(found) or None,
        "sinks": [
            {
                "sink": each.sink,
                "target": dict(each.target),
                "rows": each.rows,
                "transactions": list(each.transactions),
                "outcomes": dict(each.outcomes),
            }
            for each in found.sinks
        ],
    }


def sentence(path: str, found: Savepoint) -> str:
    """Say in a line what was made."""
    return f"savepoint of chk-{found.epoch}, {n(len(found.files), 'file')}, {_size(found.bytes)}: {path}"


def table(found: Sequence[Standing]) -> list[RenderableType]:
    """Return the savepoints that are whole as a table; nothing where there is none."""
    from rich.text import Text

    shown = _table("savepoint", "epoch", "made", "files", "size", "state", "query")
    for each in found:
        if each.savepoint is not None:
            one = each.savepoint
            size = _size(one.bytes)
            shown.add_row(
                Text(one.name),
                f"chk-{one.epoch}",
                one.made.at,
                str(len(one.files)),
                size,
                one.provider or "-",
                one.query,
            )
    return [shown] if shown.row_count else []


def detail(path: str, found: Savepoint) -> list[RenderableType]:
    """Return one savepoint in full."""
    from rich.table import Table
    from rich.text import Text

    facts = Table(show_header=False, box=None)
    for name, value in (
        ("savepoint", path),
        ("query", found.query),
        ("after", f"chk-{found.epoch}"),
        ("made", f"{found.made.at} on {found.made.host}"),
        ("of", found.home),
        ("state", found.provider or "none"),
        ("Spark", found.spark or "unknown"),
        ("watermark", _watermark(found) or "none"),
        ("files", f"{len(found.files)}, {_size(found.bytes)}"),
        *((f"source {number}", end) for number, end in enumerate(found.barrier)),
    ):
        facts.add_row(name, Text(value))
    sinks = _table("sink", "target", "rows", "transactions", "outcomes")
    for each in found.sinks:
        sinks.add_row(
            Text(each.sink),
            Text(", ".join(f"{key}={value}" for key, value in each.target.items())),
            str(each.rows),
            str(len(each.transactions)),
            ", ".join(f"{count} {name}" for name, count in each.outcomes.items()),
        )
    return [facts, sinks] if sinks.row_count else [facts]


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in columns:
        # What does not fit goes on in the next line: who types a name needs all of it.
        table.add_column(name, overflow="fold")
    return table


def _watermark(found: Savepoint) -> str:
    return time_of(found.watermark_ms, "milliseconds") if found.watermark_ms else ""


def _size(count: int) -> str:
    from rich import filesize

    return filesize.decimal(count)
