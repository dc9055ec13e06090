"""Incremental snapshots: what an epoch leaves of a state. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceonly.view import shapes
from onceonly_proof.textbook.pictures.frames import Frame, Picture, thousands

if TYPE_CHECKING:
    from onceonly.view.markup import Child
    from onceonly_proof.textbook.values import Growth

_LEFT: Final = 70.0
_BASE: Final = 250.0
_HIGH: Final = 190.0
_HEIGHT: Final = 320.0
_MB: Final = 1_000_000


def draw(found: Growth) -> Picture:
    """Return the picture."""
    versions = found.versions
    whole = [number for number, each in enumerate(versions, 1) if each.snapshot is not None]
    first, second = whole[0], whole[1]
    last = versions[whole[-1] - 1]
    written = sum(each.changelog + sum(each.added) + (each.snapshot or 0) for each in versions)
    state = sum(last.added) + sum(last.kept)
    grown, little = versions[first - 1], versions[second - 1]
    frames = (
        _frame(
            found,
            "changes",
            first - 1,
            "Each epoch writes what it has changed into a file of its own: "
            f"{thousands(versions[0].changed)} keys of {thousands(versions[0].keys)}, {_kb(versions[0].changelog)}.",
        ),
        _frame(
            found,
            "first snapshot",
            first,
            f"After version {first} the store writes its files as a whole, beside the epochs: "
            f"{_kb(sum(grown.added))} for {thousands(grown.keys)} keys.",
        ),
        _frame(
            found,
            "small changes",
            second - 1,
            f"Then an epoch changes {thousands(little.changed)} keys of {thousands(little.keys)}, and writes "
            f"{_kb(little.changelog)}: what it has changed, not what the state is.",
        ),
        _frame(
            found,
            "next snapshot",
            second,
            f"The snapshot of version {second} adds a file of {_kb(sum(little.added))} and "
            f"names the one of {_kb(sum(little.kept))} that is there: it is not written again.",
        ),
        _frame(
            found,
            "restore",
            len(versions),
            f"A start at version {second + 2} takes snapshot {second} and the changes of {second + 1} and "
            f"{second + 2}. All {len(versions)} epochs have written {_kb(written)}; the state as a whole, each time, "
            f"would have been about {_kb(state * len(versions))}.",
        ),
    )
    return Picture(
        name="increments",
        title="Incremental snapshots",
        told=f"A count by key in RocksDB, {thousands(found.rows)} rows an epoch: Spark's state store with changelog "
        "checkpointing, whose files are counted here.",
        made=found.made,
        frames=frames,
        still=len(frames) - 1,
    )


def _frame(found: Growth, name: str, upto: int, told: str) -> Frame:
    return Frame(name=name, told=told, height=_HEIGHT, parts=tuple(_parts(found, upto)))


def _parts(found: Growth, upto: int) -> list[Child]:
    versions = found.versions
    most = max(sum(each.added) + sum(each.kept) + each.changelog for each in versions)
    pitch, unit = (780 - _LEFT) / len(versions), _HIGH / most
    parts: list[Child] = [shapes.line(_LEFT, _BASE, 790, _BASE)]
    for number, each in enumerate(versions[:upto], 1):
        x, y = _LEFT + (number - 1) * pitch + 8, _BASE
        pieces = [("writing", each.changelog, f"{number}.changelog")]
        pieces += [("folded", size, f"named by {number}.zip, there already") for size in each.kept]
        pieces += [("committing", size, f"added by {number}.zip") for size in each.added]
        for kind, size, told in pieces:
            high = max(size * unit, 2)
            parts.append(shapes.bar(kind, x, y - high, pitch - 16, high, f"{told}: {_kb(size)}"))
            y -= high + 1
        parts.append(shapes.label(_kb(each.changelog), x + pitch / 2 - 8, _BASE + 32, "mid small"))
        if each.snapshot is not None:
            parts.append(
                shapes.label(f"+{_kb(sum(each.added))}", x + pitch / 2 - 8, _BASE + 48, "mid small strong")
            )
    for number in range(1, len(versions) + 1):
        x = _LEFT + (number - 0.5) * pitch
        parts.append(shapes.label(f"v{number}", x, _BASE + 16, "mid" if number <= upto else "mid dim"))
    names = (
        ("writing", "changes of the epoch"),
        ("committing", "added by a snapshot"),
        ("folded", "kept by a snapshot"),
    )
    for place, (kind, name) in enumerate(names):
        parts += [shapes.bar(kind, _LEFT + place * 190, 12, 14, 14, name),
                  shapes.label(name, _LEFT + 20 + place * 190, 23)]  # fmt: skip
    return [
        *parts,
        shapes.label("changes", 6, _BASE + 32, "dim small"),
        shapes.label("snapshot", 6, _BASE + 48, "dim small"),
    ]


def _kb(size: int) -> str:
    return f"{size / _MB:.1f} MB" if size >= _MB else f"{size / 1_000:.0f} KB"
