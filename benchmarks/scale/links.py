"""How large a decision is, and how long it takes to put it and to read it back, by the number of its handles."""

from __future__ import annotations

import time
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.scale import samples
from benchmarks.scale.values import Point
from onceonly.log import files, open_log
from onceonly.model import Receipt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SIZES = (
    (1, 1),
    (1, 10),
    (1, 100),
    (1, 1_000),
    (1, 10_000),
    (3, 10),
    (3, 100),
    (10, 1),
    (10, 100),
    (10, 1_000),
)
"""Sinks, and slots of each."""


def measure(folder: Path, repeats: int) -> list[Point]:
    """Put and read links of all sizes in turns, synced as ever, in a log on the disk of ``folder``."""
    seconds: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    points: list[Point] = []
    log = open_log(str(folder / "links"), query=samples.QUERY, create=True)
    epoch = 0
    for _ in range(repeats):
        for sinks, slots in SIZES:
            link = samples.link(epoch, sinks=sinks, slots=slots)
            began = time.perf_counter()
            log.put_link(link)
            put = time.perf_counter()
            log.chain(epoch)
            read = time.perf_counter()
            log.put_receipt(Receipt(epoch=epoch, index=0, plan=link.plan))
            seconds["link_put_ms", sinks, slots].append(put - began)
            seconds["link_read_ms", sinks, slots].append(read - put)
            epoch += 1
    for sinks, slots in SIZES:
        size = float(len(files.encode("link", samples.link(1_000, sinks=sinks, slots=slots))))
        points.append(point("link_bytes", {"sinks": sinks, "handles": sinks * slots}, [size]))
    for (figure, sinks, slots), taken in seconds.items():
        at = {"sinks": sinks, "handles": sinks * slots}
        points.append(point(figure, at, [1_000 * each for each in taken]))
    return points


def point(figure: str, at: Mapping[str, int], values: list[float]) -> Point:
    """Return a point of its repeats."""
    middle, least, most = (round(each, 3) for each in (median(values), min(values), max(values)))
    return Point(figure=figure, at=at, median=middle, least=least, most=most, repeats=len(values))
