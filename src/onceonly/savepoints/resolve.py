"""Which files of Spark's checkpoint a start after an epoch needs, by their names. Pure.

After epoch N Spark starts from ``metadata``, ``offsets/N`` and ``commits/N`` with those of the epoch before, what its
sources have noted, and, for every operator, partition and store, state of version N+1: the newest whole state up to it,
and every change since. As Spark 3.5 to 4.3 name them:

========================  ===================================================================================
``7.delta``               changes of the HDFS-backed provider; ``7.snapshot`` is whole
``7.changelog``           changes of RocksDB; ``7.zip`` is whole, and lists files in ``SSTs`` and ``logs`` beside it
``7_{uuid}.changelog``    the same in format 2, where ``commits/6`` says which of several counts
``_metadata`` and others  schemas, by the epoch of their start where their name begins with a number
========================  ===================================================================================
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from onceonly import offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KEPT: Final = 3
"""How many epochs' ``offsets`` and ``commits`` are copied, if they are there: Spark asks for two, a mend for more."""

_STATE = "state/"
_SOURCES = "sources/"
_VERSION = re.compile(r"(?P<version>\d+)(?:_(?P<id>[0-9a-f-]{36}))?\.(?P<kind>delta|snapshot|zip|changelog)")
_WHOLE = frozenset({"snapshot", "zip"})
_LIST = re.compile(r"(\d+)(\.compact)?")
_NUMBERED = re.compile(r"(\d+)(?:_.*)?")
_CHECKSUM = ".crc"  # of Spark 4.1's own; Hadoop's are hidden


class MissingError(Exception):
    """Spark has taken away, or never had, what a start after an epoch needs. Its text says what."""


class CompactedError(MissingError):
    """A source's list of files has been taken into that of a later epoch, which is not complete yet."""


class _StateFile(NamedTuple):
    name: str
    version: int
    id: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """What is needed, by name. Each of ``archives``, which are among ``names``, lists more: ``of_archive``."""

    names: tuple[str, ...]
    archives: tuple[str, ...] = ()


def needed(names: Iterable[str], epoch: int, *, barrier: str, commit: str) -> Needed:
    """Return which of a checkpoint's files a start after an epoch needs.

    ``barrier`` and ``commit`` are the texts of ``offsets/N`` and ``commits/N``. Raises ``MissingError`` that names what
    is not there.
    """
    here = frozenset(names)
    found = [*_of_log(here, epoch), *_of_sources(here, barrier)]
    archives: list[str] = []
    ids = _ids(commit)
    folders: defaultdict[str, list[_StateFile]] = defaultdict(list)
    for name in sorted(here):
        if not name.startswith(_STATE):
            continue
        folder, _, last = name.rpartition("/")
        match = _VERSION.fullmatch(last)
        if match is not None:
            folders[folder].append(_StateFile(name, int(match["version"]), match["id"] or "", match["kind"]))
        elif _is_schema(name) and _number(last) <= epoch:
            found.append(name)
    dealt = offsets.partitions(barrier)
    for folder, files in folders.items():
        number = _partition(folder)[1]
        if dealt is not None and number.isdigit() and int(number) >= dealt:
            continue  # of before or after it was dealt to other partitions
        chosen = _of_store(folder, files, epoch + 1, ids.get(_partition(folder), frozenset()))
        found += (each.name for each in chosen)
        archives += (each.name for each in chosen if each.kind == "zip")
    beside = [name + _CHECKSUM for name in found if name + _CHECKSUM in here]
    return Needed(names=tuple(dict.fromkeys([*found, *beside])), archives=tuple(archives))


def of_archive(name: str, listed: str) -> tuple[str, ...]:
    """Return the files that an archive of RocksDB stands on. ``listed`` is the text of its ``metadata``."""
    folder = name.rpartition("/")[0]
    told = json.loads(listed[listed.index("{") :])
    return (
        *(f"{folder}/SSTs/{each['dfsSstFileName']}" for each in told.get("sstFiles") or ()),
        *(f"{folder}/logs/{each['dfsLogFileName']}" for each in told.get("logFiles") or ()),
    )


def candidates(names: Iterable[str]) -> list[int]:
    """Return the epochs that Spark has noted and has the offsets of, and of those before them; in order."""
    here = frozenset(names)
    noted = (int(name.rpartition("/")[2]) for name in here if re.fullmatch(r"commits/\d+", name))
    return sorted(
        epoch
        for epoch in noted
        if f"offsets/{epoch}" in here and (epoch == 0 or f"offsets/{epoch - 1}" in here)
    )


def provider(names: Iterable[str]) -> str:
    """Say in words which provider wrote the state among these files, and in which format; empty where there is none."""
    found = [
        match
        for name in names
        if name.startswith(_STATE) and (match := _VERSION.fullmatch(name.rpartition("/")[2])) is not None
    ]
    kinds = {match["kind"] for match in found}
    if not kinds:
        return ""
    word = (
        "RocksDB with changelog" if "changelog" in kinds else "RocksDB" if "zip" in kinds else "HDFS-backed"
    )
    return word + (", format 2" if any(match["id"] for match in found) else "")


def _of_log(here: frozenset[str], epoch: int) -> list[str]:
    must = ["metadata", f"offsets/{epoch}", f"commits/{epoch}"]
    must += [f"offsets/{epoch - 1}"] if epoch > 0 else []
    for name in must:
        if name not in here:
            raise MissingError(name)
    may = [f"{log}/{at}" for log in ("offsets", "commits") for at in range(max(epoch - KEPT + 1, 0), epoch)]
    return list(dict.fromkeys([*must, *(name for name in may if name in here)]))


def _of_sources(here: frozenset[str], barrier: str) -> list[str]:
    """Return what the sources have noted: of lists of files those up to the barrier, the newest that repeats others."""
    ends = {source: offsets.list_number(end) for source, end in offsets.lines(barrier)}
    listed = [end for end in ends.values() if end is not None]
    folders: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(here):
        if name.startswith(_SOURCES):
            folders[name.split("/")[1]].append(name)
    found: list[str] = []
    for source, names in folders.items():
        end = ends.get(source)
        if source not in ends:
            # In version 1 a barrier numbers its sources, also those that have a name.
            end = max(listed, default=None)
        found += names if end is None else _lists(names, end)
    return found


def _lists(names: Sequence[str], end: int) -> list[str]:
    parsed = [(name, _LIST.fullmatch(name.split("/", 2)[2])) for name in names]
    others = [name for name, match in parsed if match is None]
    compact = {int(match[1]): name for name, match in parsed if match is not None and match[2]}
    single = {int(match[1]): name for name, match in parsed if match is not None and not match[2]}
    base = max((number for number in compact if number <= end), default=-1)
    missing = next((number for number in range(base + 1, end + 1) if number not in single), None)
    if missing is not None:
        folder = names[0].rsplit("/", 1)[0]
        message = f"{folder}/{missing}, which Spark has taken into a later list of files"
        raise CompactedError(message)
    return [
        *others,
        *([compact[base]] if base >= 0 else []),
        *(single[at] for at in range(base + 1, end + 1)),
    ]


def _of_store(
    folder: str, files: Sequence[_StateFile], version: int, ids: frozenset[str]
) -> list[_StateFile]:
    """Return the newest whole state of one store up to a version, and the changes since."""
    files = [
        each
        for each in files
        if each.version < version or (each.version == version and (not ids or not each.id or each.id in ids))
    ]
    if all(each.version != version for each in files):
        message = f"version {version} of the state {folder}"
        raise MissingError(message)
    base = max((each.version for each in files if each.kind in _WHOLE), default=0)
    lineages: defaultdict[int, set[str]] = defaultdict(set)
    for each in files:
        lineages[each.version].add(each.id)
    if any(len(several) > 1 for several in lineages.values()):
        # A task that came late has left files of its own; only the changes say, inside, which whole state is theirs.
        return list(files)
    chosen = [
        each
        for each in files
        # The changes of the whole state's own version, too: in format 2 they tell where they come from.
        if each.version >= base and (each.kind not in _WHOLE or each.version == base)
    ]
    gap = next(iter(set(range(base + 1, version + 1)) - {each.version for each in chosen}), None)
    if gap is not None:
        message = f"the changes of version {gap} of the state {folder}"
        raise MissingError(message)
    return chosen


def _ids(commit: str) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return, by operator and partition, the ids of the state that counts; none before format 2."""
    told = json.loads(commit.partition("\n")[2] or "{}").get("stateUniqueIds") or {}
    return {
        (operator, str(number)): frozenset(ids)
        for operator, partitions in told.items()
        for number, ids in enumerate(partitions)
    }


def _partition(folder: str) -> tuple[str, str]:
    operator, partition, *_ = folder.removeprefix(_STATE).split("/")
    return operator, partition


def _is_schema(name: str) -> bool:
    return any(part.startswith("_") for part in name.split("/"))


def _number(name: str) -> int:
    """Return the epoch of the start that wrote a schema, -1 where its name tells none."""
    match = _NUMBERED.fullmatch(name)
    return int(match[1]) if match else -1
