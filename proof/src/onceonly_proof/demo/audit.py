"""The auditor: compares what any reader sees in Kafka and in the files with the data file. Knows nothing of the sinks.

``judge`` is pure: visible records in, findings out. ``audit`` reads topics and files to their end and calls it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from onceonly.model import Guarantee
from onceonly_proof.auditor.kafka import open_transactions, read_committed
from onceonly_proof.demo.data import WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from onceonly_proof.auditor.kafka import Record

WindowKey: TypeAlias = tuple[str, int]
"""app_id and the window's beginning, seconds since 1970."""
Totals: TypeAlias = tuple[int, int]
"""PV and UV."""

_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found. All zero is what exactly-once promises."""

    events: int
    windows: int
    missing: int
    """Events that are not in ``clean``."""
    duplicated_events: int
    """Surplus records of events that are in ``clean`` more than once."""
    doubled_results: int
    """Surplus records of an (epoch, key) that is in ``results`` more than once."""
    foreign: int
    """Records that no event or window accounts for, or that cannot be read."""
    unequal: int
    """Results that are in Kafka and not in the files that were written under the same decision, or the reverse."""
    wrong_windows: int
    """Windows whose last PV or UV differs from the recomputation, or that are not there."""
    open_transactions: tuple[str, ...] = ()
    examples: tuple[str, ...] = field(default=())

    @property
    def duplicated(self) -> int:
        return self.duplicated_events + self.doubled_results

    def is_clean(self, guarantee: Guarantee) -> bool:
        """Say whether this is what the guarantee promises.

        At least once: nothing missing, and every window ends up right. At most once: nothing twice; what is
        missing may make windows wrong. Foreign records and transactions left open are never clean.
        """
        clean = not self.foreign and not self.open_transactions
        if guarantee is not Guarantee.AT_MOST_ONCE:
            clean = clean and not self.missing and not self.wrong_windows
        if guarantee is not Guarantee.AT_LEAST_ONCE:
            clean = clean and not self.duplicated
        # Below exactly-once, each of two sinks doubles or loses for itself.
        return clean and not (guarantee is Guarantee.EXACTLY_ONCE and self.unequal)


def recompute(rows: pd.DataFrame) -> dict[WindowKey, Totals]:
    """Count PV and exact UV per app_id and window straight from the data file's rows. Pure."""
    seconds = int(WINDOW.total_seconds())
    windows = rows.assign(window=rows["hour"] // seconds * seconds).groupby(["app_id", "window"])
    totals = windows.agg(pv=("id", "size"), uv=("user", "nunique"))
    keys = totals.index.tolist()
    return dict(zip(keys, zip(totals["pv"].tolist(), totals["uv"].tolist(), strict=True), strict=True))


def audit(
    servers: str, rows: pd.DataFrame, *, clean: str, results: str, files: Path, prefix: str = ""
) -> Audit:
    """Read both topics and the files wholly and compare. Parent process; the job must have ended. Reads only.

    ``prefix``: of which transactional ids none may be left open; on the demo's own broker, of all.
    """
    staged = (str(path) for path in (files / "_onceonly" / "staging").rglob("*") if path.is_file())
    return judge(
        rows,
        read_committed(servers, clean),
        list(read_committed(servers, results)),
        list(read_lines(files)),
        [*open_transactions(servers, prefix), *staged],
    )


def read_lines(folder: Path) -> Iterator[bytes]:
    """Yield the lines of all files that any reader of a folder sees: no name begins with a dot or ``_``."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part[0] in "._" for part in path.relative_to(folder).parts):
            yield from path.read_bytes().splitlines()


def judge(
    rows: pd.DataFrame,
    clean: Iterable[Record],
    results: Sequence[Record],
    files: Iterable[bytes],
    left_open: Iterable[str] = (),
) -> Audit:
    """Compare visible records and lines with the events they must come from, and with each other. Pure."""
    expected_ids = set(rows["id"].tolist())
    expected = recompute(rows)
    findings = _Findings()
    seen = Counter(findings.number(record) for record in clean)
    seen.pop(None, None)
    foreign = findings.unreadable + findings.note(
        "foreign event", {str(key): count for key, count in seen.items() if key not in expected_ids}
    )
    missing = findings.note("missing event", {str(key): 1 for key in expected_ids - set(seen)})
    twice = findings.note("duplicated event", {str(k): n - 1 for k, n in seen.items() if n > 1})
    last, epochs, split, unreadable = _last_values(results, findings)
    doubled = findings.note("doubled (epoch, key)", {str(k): n - 1 for k, n in epochs.items() if n > 1})
    foreign += unreadable + findings.note(
        "foreign window", {str(key): 1 for key in last if key not in expected}
    )
    in_kafka = Counter(_canonical(record.value or b"") for record in results)
    in_files = Counter(map(_canonical, files))
    unequal = findings.note("only in Kafka", dict(in_kafka - in_files)) + findings.note(
        "only in the files", dict(in_files - in_kafka)
    )
    wrong = {
        f"{key}: (PV, UV) is {last.get(key)}, must be {totals}": 1
        for key, totals in expected.items()
        if last.get(key) != totals or key in split
    }
    return Audit(
        events=len(expected_ids),
        windows=len(expected),
        missing=missing,
        duplicated_events=twice,
        doubled_results=doubled,
        foreign=foreign,
        unequal=unequal,
        wrong_windows=findings.note("wrong window", wrong),
        open_transactions=tuple(left_open),
        examples=tuple(findings.examples),
    )


class _Findings:
    """Counts findings and keeps the first of each kind, for people."""

    def __init__(self) -> None:
        self.examples: list[str] = []
        self.unreadable = 0

    def note(self, what: str, found: dict[str, int]) -> int:
        self.examples += [f"{what} {name}" for name in sorted(found)[:_EXAMPLES]]
        return sum(found.values())

    def number(self, record: Record) -> int | None:
        """Return the event's id; the key must say the same."""
        number = _fields(record).get("id")
        if isinstance(number, int) and record.key == str(number).encode():
            return number
        self.unreadable += 1
        self.examples += [f"unreadable event at {record.partition}/{record.offset}"][: self.unreadable == 1]
        return None


def _last_values(
    results: Iterable[Record], findings: _Findings
) -> tuple[dict[WindowKey, Totals], Counter[tuple[int, WindowKey]], set[WindowKey], int]:
    """Return each window's last value, how often each (epoch, key) is there, windows in two partitions, junk.

    Records come in the order of offsets in each partition, and a key keeps to one partition.
    """
    last: dict[WindowKey, Totals] = {}
    epochs: Counter[tuple[int, WindowKey]] = Counter()
    home: dict[WindowKey, int] = {}
    split: set[WindowKey] = set()
    unreadable = 0
    for record in results:
        row = _fields(record)
        key = (str(row.get("app_id")), row.get("window_start"))
        numbers = (key[1], row.get("pv"), row.get("uv"), row.get("epoch"))
        if record.key != f"{key[0]}|{key[1]}".encode() or not all(isinstance(n, int) for n in numbers):
            unreadable += 1
            continue
        start, pv, uv, epoch = (int(str(number)) for number in numbers)
        window = (key[0], start)
        last[window] = (pv, uv)
        epochs[epoch, window] += 1
        if home.setdefault(window, record.partition) != record.partition:
            split.add(window)
    findings.note("window in two partitions", {str(key): 1 for key in split})
    return last, epochs, split, unreadable


def _canonical(text: bytes) -> str:
    """Return a JSON text as everybody would write it, or as it is."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return repr(text)


def _fields(record: Record) -> dict[str, object]:
    try:
        fields = json.loads(record.value or b"")
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
