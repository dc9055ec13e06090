"""Reading what was decided: the decision log's files, Spark's checkpoint and the event log, as anybody could.

Goes by the documented format alone (docs/reference/log-format.md) and shares no code with the log's own
reader. A file that cannot be believed is no error here: it is a contradiction, and the judge names it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from onceonly.errors import ConfigurationError
from onceonly.model import LinkKind
from onceonly_proof.auditor.world import Decision, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Ends: TypeAlias = dict[str, int]
"""The position after the last one, by input partition."""
EndsOf: TypeAlias = "Callable[[Mapping[int, list[str]]], Mapping[int, Ends]]"
"""Says where epochs ended, by the barriers of all; those of which it cannot tell are left out."""

# Formats 2 and 3 have times and sizes more, which are for people.
_VERSIONS = (1, 2, 3, 4)
# Before the sources' lines of offsets/N stand a version and a line of metadata. Version 1 has the offsets alone,
# version 2 has "name:offsets"; links keep the offsets alone.
_NAMELESS = "v1"
_SOURCE_NAME = re.compile(r"^[A-Za-z0-9_.-]+:(?=.)")
_FOR_PEOPLE = "onceonly."
STREAM = "stream/0"
"""The input partition that a stream of RabbitMQ is."""
ALL_SLOTS = -1
"""The slot number of folded epochs, where the log keeps the sum of all slots."""


def read_decisions(
    checkpoint: Path | str, events: Path | str | None = None, ends_of: EndsOf | None = None
) -> list[Decision]:
    """Return what the log in ``checkpoint/onceonly`` and Spark's folders say of every epoch, in order.

    Anywhere that the checkpoint can be read, a local folder; reads only; the query must be down. ``events`` is the
    folder of ``ONCEONLY_EVENTS``, for the times of decisions; leave it out if the query's clock was moved. ``ends_of``
    says where epochs ended, by their barriers, where a source's offsets alone do not tell it.

    Raises:
        ConfigurationError: there is no decision log.
    """
    folder = Path(checkpoint)
    if not (folder / "onceonly").is_dir():
        raise ConfigurationError(
            f"{folder} holds no decision log: there is no folder `onceonly` in it",
            next_step="give the query's checkpointLocation, on a file system that this process can read",
        )
    log = _Log(folder)
    times = _decision_times(Path(events), query_id(folder)) if events is not None else {}
    return list(
        _with_ranges(
            [log.decision(epoch, times) for epoch in log.epochs()], (ends_of or _ends_of)(log.barriers())
        )
    )


def replayed(checkpoint: Path | str) -> int:
    """Count the epochs that were decided after an earlier attempt at them was given up: their input was read again.

    Anywhere, as ``read_decisions``; an attempt of a task alone is not counted.
    """
    return _Log(Path(checkpoint)).replayed()


def query_id(checkpoint: Path | str) -> str:
    """Return the query's id, by which its transactions and staging files can be told from those of others. Anywhere.

    Raises:
        ConfigurationError: no query has begun in this folder.
    """
    path = Path(checkpoint) / "metadata"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{checkpoint} tells no query's id: Spark writes it into the file `metadata` when a query begins ({error})",
            next_step="give the query's checkpointLocation, on a file system that this process can read",
        ) from error


@dataclass
class _Chain:
    """One epoch's files."""

    links: dict[int, dict[str, Any]] = field(default_factory=dict)
    receipt: dict[str, Any] | None = None
    folded: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def last(self) -> dict[str, Any] | None:
        return self.links[max(self.links)] if self.links else None


class _Log:
    """All files, read once."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._chains: dict[int, _Chain] = {}
        self._commits = _numbers(checkpoint / "commits")
        self._offsets = _numbers(checkpoint / "offsets") or set()
        folder = checkpoint / "onceonly"
        self._read_history(folder / "history")
        for path, epoch, index in _named(folder / "links", r"(\d{20})\.(\d+)\.json"):
            value = self._take(path, "link", epoch)
            if value is not None:
                self._chain(epoch).links[index] = value
                if (value.get("epoch"), value.get("index")) != (epoch, index):
                    self._chain(epoch).problems.append(f"{path.name} holds another link than its name says")
        for path, epoch, _ in _named(folder / "receipts", r"(\d{20})()\.json"):
            self._chain(epoch).receipt = self._take(path, "receipt", epoch)

    def epochs(self) -> list[int]:
        """Name the epochs that anything speaks of. Older ones in commits/ were another sink's."""
        first = min(self._chains, default=0)
        return sorted(self._chains.keys() | {epoch for epoch in self._commits or () if epoch >= first})

    def replayed(self) -> int:
        """Count the epochs whose last link is not their first one."""
        folded = (each.folded["links"] if each.folded else len(each.links) for each in self._chains.values())
        return sum(links > 1 for links in folded)

    def decision(self, epoch: int, times: Mapping[tuple[int, int], float]) -> Decision:
        """Put together what is known of an epoch, without its ranges."""
        chain = self._chains.get(epoch, _Chain())
        noted = (
            None if self._commits is None or epoch < min(self._commits, default=0) else epoch in self._commits
        )
        if chain.folded is not None:  # what is left of its details may be taken away at any time
            line = chain.folded
            return Decision(
                epoch=epoch,
                kind=LinkKind(line["kind"]),
                first=epoch,
                slots=tuple(Slot(sink, ALL_SLOTS, rows) for sink, (rows, _) in line["sinks"].items()),
                decided_s=times.get((epoch, 0)) if line["links"] == 1 else None,
                receipt=True,  # nothing is folded without one
                spark_commit=noted,
                contradictions=tuple(chain.problems),
            )
        last = chain.last
        output = [*last["carried"], *last["votes"]] if last else []
        slots = tuple(Slot(vote["sink"], vote["slot"], vote["rows"], _transaction(vote)) for vote in output)
        commits = [index for index, link in sorted(chain.links.items()) if link["kind"] == LinkKind.COMMIT]
        named = {_transaction(vote) for index in commits for vote in chain.links[index]["votes"]}
        return Decision(
            epoch=epoch,
            kind=LinkKind(last["kind"]) if last else None,
            slots=slots,
            void=frozenset(named - {slot.transaction for slot in slots} - {""}),
            decided_s=times.get((epoch, commits[0])) if commits else None,
            receipt=chain.receipt is not None,
            spark_commit=noted,
            contradictions=(*chain.problems, *self._problems(epoch, chain)),
        )

    def barriers(self) -> dict[int, list[str]]:
        """Return the barrier of each epoch that has one: the link's, else Spark's."""
        found = {epoch: self._spark_barrier(epoch) for epoch in self._offsets}
        for epoch, chain in self._chains.items():
            if chain.last is not None and chain.last["barrier"]:
                found[epoch] = chain.last["barrier"]
        return found

    def _problems(self, epoch: int, chain: _Chain) -> Iterator[str]:
        missing = sorted(set(range(max(chain.links, default=-1) + 1)) - chain.links.keys())
        if missing:
            yield f"link {epoch}.{missing[0]} is missing or unreadable, and link {epoch}.{max(chain.links)} is there"
        if chain.receipt is not None and chain.links and chain.receipt.get("index") != max(chain.links):
            yield f"the receipt is of link {epoch}.{chain.receipt.get('index')}, the last one is {max(chain.links)}"
        barrier = chain.last["barrier"] if chain.last else []
        # Spark does not sync its file, so a missing one says nothing.
        if barrier and epoch in self._offsets and _parsed(barrier) != _parsed(self._spark_barrier(epoch)):
            yield f"the barrier of the link is not that of offsets/{epoch}"

    def _read_history(self, folder: Path) -> None:
        for path, first, last in _named(folder, r"(\d{20})-(\d{20})\.json"):
            value = self._take(path, "history", first)
            for line in value["epochs"] if value else ():
                self._chain(line["epoch"]).folded = line
            if value and [line["epoch"] for line in value["epochs"]] != list(range(first, last + 1)):
                self._chain(first).problems.append(f"{path.name} does not hold the epochs that its name says")

    def _take(self, path: Path, kind: str, epoch: int) -> dict[str, Any] | None:
        value, problem = _unsealed(path.read_bytes(), kind)
        if problem:
            self._chain(epoch).problems.append(f"{path.parent.name}/{path.name} {problem}")
        return value

    def _chain(self, epoch: int) -> _Chain:
        return self._chains.setdefault(epoch, _Chain())

    def _spark_barrier(self, epoch: int) -> list[str]:
        text = (self._checkpoint / "offsets" / str(epoch)).read_text(encoding="utf-8")
        version, *lines = text.split("\n")
        ends = [line for line in lines[1:] if line]
        return ends if version == _NAMELESS else [_SOURCE_NAME.sub("", end, count=1) for end in ends]


def _with_ranges(decisions: list[Decision], ends: Mapping[int, Ends]) -> Iterator[Decision]:
    """Yield each decision what lies between its barrier and the one before it.

    Folded epochs whose barriers nobody keeps are joined with the next epoch that has one.
    """
    waiting: list[Decision] = []
    for decision in decisions:
        end = ends.get(decision.epoch)
        if end is None:
            if decision.first is not None and ends:
                waiting.append(decision)
            else:
                yield decision
            continue
        whole = [*waiting, decision]
        first, waiting = whole[0].epoch, []
        start = ends.get(first - 1, {})
        ranges = {name: (start.get(name, 0), position) for name, position in end.items()}
        yield replace(_joined(whole) if len(whole) > 1 else decision, ranges=ranges)
    yield from waiting


def _joined(decisions: list[Decision]) -> Decision:
    """Make one value of several epochs: rows are summed, and one bad epoch makes all bad."""
    last = decisions[-1]
    rows: dict[str, int] = {}
    for slot in (slot for each in decisions for slot in each.slots):
        rows[slot.sink] = rows.get(slot.sink, 0) + slot.rows
    gaps = [
        f"{a.name} and {b.name} do not follow on each other"
        for a, b in pairwise(decisions)
        if b.epoch != a.epoch + 1
    ]
    return replace(
        last,
        first=decisions[0].epoch,
        slots=tuple(Slot(sink, ALL_SLOTS, count) for sink, count in rows.items()),
        void=frozenset().union(*(each.void for each in decisions)),
        decided_s=None,
        contradictions=tuple(gaps) + tuple(text for each in decisions for text in each.contradictions),
    )


# --- files ------------------------------------------------------------------------------------------------


def _named(folder: Path, pattern: str) -> list[tuple[Path, int, int]]:
    """Return the files whose names fit, with their two numbers (0 where the second is empty), in order."""
    found: list[tuple[Path, int, int]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        match = re.fullmatch(pattern, path.name)
        if match:
            found.append((path, int(match[1]), int(match[2] or 0)))
    return sorted(found, key=lambda item: item[1:])


def _unsealed(data: bytes, kind: str) -> tuple[dict[str, Any] | None, str]:
    """Return the value of a file, or what is wrong with it."""
    head, newline, body = data.partition(b"\n")
    try:
        header = json.loads(head)
        told = (header["format"], header["kind"], header["version"], header["length"], header["checksum"])
    except (ValueError, KeyError, TypeError):
        return None, "has no header"
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if not newline or told[2] not in _VERSIONS or told != ("onceonly", kind, told[2], len(body), digest):
        return None, "is torn, damaged or not what its name says"
    value = json.loads(body)
    return (value, "") if isinstance(value, dict) else (None, "does not hold an object")


def _numbers(folder: Path) -> set[int] | None:
    return {int(path.name) for path in folder.iterdir() if path.name.isdecimal()} if folder.is_dir() else None


def _transaction(vote: Mapping[str, Any]) -> str:
    return str(vote["handle"]["transaction"]) if vote["handle"] else ""


def _parsed(barrier: list[str]) -> list[object]:
    found: list[object] = []
    for text in barrier:
        try:
            found.append(json.loads(text))
        except ValueError:
            found.append(text)
    return found


def _ends_of(barriers: Mapping[int, list[str]]) -> dict[int, Ends]:
    return {epoch: ends for epoch, barrier in barriers.items() if (ends := _ends(barrier))}


def _ends(barrier: list[str]) -> Ends:
    """Read offsets of Kafka, ``{"topic":{"0":17}}``, and of a stream of RabbitMQ, ``{"offset":17,"is_read":true}``.

    Other sources' tell no positions by themselves and are left out, as what is for people is (``onceonly.behind``).
    """
    ends: Ends = {}
    for source in _parsed(barrier):
        if not isinstance(source, dict):
            continue
        if isinstance(source.get("is_read"), bool) and isinstance(source.get("offset"), int):
            ends[STREAM] = source["offset"] + source["is_read"]
        for topic, partitions in source.items():
            if topic.startswith(_FOR_PEOPLE) or not isinstance(partitions, dict):
                continue
            for partition, position in partitions.items():
                if isinstance(position, int):
                    ends[f"{topic}/{partition}"] = position
    return ends


def _decision_times(folder: Path, query: str) -> dict[tuple[int, int], float]:
    """Return when each COMMIT link was durable, by epoch and index, where a process lived on to note it."""
    times: dict[tuple[int, int], float] = {}
    for path in folder.glob("*.jsonl"):
        for text in path.read_bytes().splitlines():
            if b'"link.persisted"' not in text:
                continue
            with contextlib.suppress(ValueError):  # a line that its process did not live to end
                line = json.loads(text)
                if line["query"] == query and line["link"] == LinkKind.COMMIT:
                    key = line["epoch"], line["index"]
                    times[key] = min(line["t"], times.get(key, line["t"]))
    return times
