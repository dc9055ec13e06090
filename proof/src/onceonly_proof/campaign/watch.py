"""How the auditor's readers look at a round's sinks: all the time while it runs, and once when it is over."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from onceonly.model import letters_name
from onceonly.words import n
from onceonly_proof.auditor import (
    FilesReader,
    KafkaReader,
    KafkaWatcher,
    LettersReader,
    PollingWatcher,
    collect,
    query_id,
)
from onceonly_proof.auditor.files import visible_files
from onceonly_proof.auditor.globbing import GLOBBING
from onceonly_proof.auditor.letters import refused_by
from onceonly_proof.campaign import queries
from onceonly_proof.campaign.sources.journal import JOURNAL
from onceonly_proof.campaign.targets import STAGED, WithStaged, keyed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from onceonly_proof.auditor import Input, Reader, Seen, World
    from onceonly_proof.auditor.log import EndsOf
    from onceonly_proof.campaign.lives import Life
    from onceonly_proof.campaign.sources import Flow
    from onceonly_proof.campaign.targets import Target
    from onceonly_proof.campaign.task import Task

    AnyWatcher: TypeAlias = KafkaWatcher | PollingWatcher

# So that a look at a quiet sink does not keep a round from its other business.
_WAIT_S = 0.1
_LOOK_TIMEOUT_S = 120.0
EVENTS = "events"
"""The folder of all event logs of a query, beside its checkpoint."""


@dataclass(slots=True)
class Watch:
    """Watchers of every sink of a query, through crashes of what they read. Campaign's process; close it.

    Dead letters count as rows of the sink that refused them.
    """

    watchers: dict[str, AnyWatcher]
    letters: dict[str, PollingWatcher] = field(default_factory=dict)
    """By the sink that refused them."""
    globbing: dict[str, PollingWatcher] = field(default_factory=dict)
    """Others at the folder of the file sink, which find files as people's programs do, by their names."""
    shut_out: dict[str, PollingWatcher] = field(default_factory=dict)
    """Those who cannot look while a job writes, by their sinks."""
    replacing: frozenset[str] = frozenset()
    """Sinks where a row replaces what its key had: nobody can count there how many were written."""
    _close: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def begin(cls, task: Task, targets: Mapping[str, Target]) -> Watch:
        """Begin to watch; topics and folders may be made later."""
        watch = cls({}, replacing=replacing(task, targets))
        for sink in task.sinks:
            if sink == "kafka":
                watch.watchers[sink] = KafkaWatcher(sink, task.servers, task.target)
            elif sink in targets:
                watcher = watch.watchers[sink] = PollingWatcher(targets[sink].reader(sink, task.target))
                watch.shut_out |= {sink: watcher} if targets[sink].shuts_out else {}
            else:
                watch.watchers[sink] = PollingWatcher(FilesReader(sink, task.files, taken=taken(task)))
                watch.globbing = {
                    name: PollingWatcher(FilesReader(sink, task.files, find=find, taken=taken(task)))
                    for name, find in GLOBBING.items()
                }
            watch._close.callback(watch.watchers[sink].close)
        for name, reader in _letters(task).items():
            watcher = watch.letters[refused_by(name)] = PollingWatcher(reader)
            watch._close.callback(watcher.close)
        for watcher in watch.globbing.values():
            watch._close.callback(watcher.close)
        return watch

    def seen(self) -> list[Seen]:
        """Return what was seen until now, by each that watches."""
        watchers = (*self.watchers.values(), *self.letters.values(), *self.globbing.values())
        return [row for watcher in watchers for row in watcher.seen()]

    def globbed(self) -> dict[str, int]:
        """Count the rows that those who find files as people's programs do have got until now."""
        return {name: len(watcher.seen()) for name, watcher in self.globbing.items()}

    def looks(self) -> dict[str, int]:
        """Count how often those that look at a sink again and again were answered."""
        return {sink: each.looks for sink, each in self._polling()}

    def asked(self) -> dict[str, int]:
        """Count how often they asked."""
        return {sink: each.asked for sink, each in self._polling()}

    def look_now(self) -> list[str]:
        """While no job runs, have those look that a job shuts out; return the sinks where they could not."""
        return [sink for sink, each in self.shut_out.items() if not each.look_now(_LOOK_TIMEOUT_S)]

    def least(self) -> int | None:
        """Count the rows of the sink that shows least, of those that can be counted. Linear: not in a tight loop."""
        counts = [
            len(watcher.seen()) + self._refused(sink)
            for sink, watcher in self.watchers.items()
            if sink not in self.replacing
        ]
        return min(counts) if counts else None

    def newest(self) -> int:
        """Return the highest number that every sink shows as a key, -1 where one shows none. Linear, as ``least``."""
        numbers = (
            max((int(row.key or -1) for row in each.seen()), default=-1) for each in self.watchers.values()
        )
        return min(numbers)

    def holds(self, count: int) -> bool:
        """Say whether every sink has shown so many rows, or one where they cannot be counted; waits a moment."""
        return all(
            watcher.wait_for(
                min(count, 1) if sink in self.replacing else count - self._refused(sink), _WAIT_S
            )
            for sink, watcher in self.watchers.items()
        ) and all(watcher.wait_for(count, _WAIT_S) for watcher in self.globbing.values())

    def first_after(self, moment: float) -> float | None:
        """Say when every sink has shown a row that was not there at a moment; waits a moment for it."""
        found = [_first_after(watcher, moment) for watcher in self.watchers.values()]
        whole = [seen_s for seen_s in found if seen_s is not None]
        return max(whole) if len(whole) == len(found) else None

    def blind(self, at_end: Iterable[Seen]) -> list[str]:
        """Say which sinks were not seen whole, by what a fresh reader got in the end; one sentence each."""
        visible = Counter(row.sink for row in at_end)
        found = []
        for sink, watcher in self.watchers.items():
            seen = len(watcher.seen()) + self._refused(sink)
            if seen and seen >= visible[sink]:
                continue  # what went wrong meanwhile was made good: it is there, and so are its rows
            why = f": {watcher.trouble}" if watcher.trouble else ""
            found.append(
                f"the reader that watched {sink} saw {n(seen, 'row')}, {visible[sink]:,} were there in the end{why}"
            )
        for name, seen in self.globbed().items():
            if not seen or seen < visible["files"]:
                trouble = self.globbing[name].trouble
                found.append(
                    f"the reader that watched files by {name} saw {n(seen, 'row')}, {visible['files']:,} were there in "
                    f"the end{f': {trouble}' if trouble else ''}"
                )
        return found + [f"no row of {sink} was refused" for sink in self.letters if not self._refused(sink)]

    def _polling(self) -> list[tuple[str, PollingWatcher]]:
        return [(sink, each) for sink, each in self.watchers.items() if isinstance(each, PollingWatcher)]

    def _refused(self, sink: str) -> int:
        return len(self.letters[sink].seen()) if sink in self.letters else 0

    def close(self) -> None:
        """Stop watching; what was seen stays. Idempotent."""
        self._close.close()


def readers(task: Task, targets: Mapping[str, Target]) -> dict[str, Reader]:
    """Return a fresh reader of every sink, which knows what of it is this query's."""
    query = query_id(task.audited)
    every: dict[str, Reader] = {
        # A prefix of ours, then the query: see the sink's options.
        "kafka": KafkaReader("kafka", task.servers, task.target, transactions=f"onceonly.{query}."),
        "files": FilesReader("files", task.files, query=query, taken=taken(task)),
    }
    for sink, target in targets.items():
        staged = task.audited / STAGED / query / sink
        every[sink] = WithStaged(target.reader(sink, task.target), sink, staged)
    return {sink: every[sink] for sink in task.sinks} | _letters(task, query)


def world(
    task: Task,
    went_in: list[Input],
    reader: Watch,
    lives: Iterable[Life],
    targets: Mapping[str, Target],
    ends_of: EndsOf | None = None,
    *,
    drained: bool,
) -> World:
    """Read the outside world of a query; its lives are down after that, and their event logs beside its checkpoint.

    Where it was not ``drained``, what no epoch had come to is not due.
    """
    events = task.audited.parent / EVENTS
    events.mkdir()
    for life in lives:
        life.kill()
        for path in life.events.glob("*.jsonl"):
            path.replace(events / path.name)
    return collect(
        went_in,
        sinks=readers(task, targets),
        checkpoint=task.audited,
        events=events,
        during=reader.seen(),
        upserts=replacing(task, targets),
        whole={sink for sink in task.sinks if sink in targets and targets[sink].shows_whole_epochs},
        ends_of=ends_of,
        drained=drained,
    )


def replacing(task: Task, targets: Mapping[str, Target]) -> frozenset[str]:
    """Return the sinks of a query where a row replaces what its key had."""
    return frozenset(sink for sink in task.sinks if sink in targets and targets[sink].replaces)


def remove_waiting(task: Task, targets: Mapping[str, Target]) -> int:
    """Remove all rows that wait for their commit, as somebody who tidies up; say how many files of them there were."""
    found = [path for path in (task.audited / STAGED).rglob("*") if path.is_file()]
    found += [path for sink in task.sinks if sink in targets for path in targets[sink].waiting(task.target)]
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def _letters(task: Task, query: str = "") -> dict[str, Reader]:
    """Return a reader of dead letters, under the name of their sink, where rows may be refused."""
    if task.query != queries.LETTERS:
        return {}
    name = letters_name("kafka")
    return {name: LettersReader(FilesReader(name, task.letters, query=query))}


def taken(task: Task) -> Path:
    """Name the folder of the consumer that takes files away."""
    return Path(f"{task.files}-taken")


def take_files(task: Task, *, moves: bool) -> None:
    """Take all that anybody sees in the file sink's target: move it, or load it and delete it.

    A name that comes again is kept beside the one before, so that the audit sees its rows twice.
    """
    folder = taken(task)
    for path in list(visible_files(Path(task.files))):
        place = folder / path.relative_to(task.files)
        place.parent.mkdir(parents=True, exist_ok=True)
        while place.exists():
            place = place.with_name(f"again-{place.name}")
        if moves:
            path.rename(place)
        else:
            place.write_bytes(path.read_bytes())
            path.unlink()


def inputs(task: Task, flow: Flow) -> list[Input]:
    """Read the input back from its source; what a query drops is left out. Raises ``UnavailableError``."""
    found = flow.inputs()
    if task.key == keyed.NUMBERED:
        found = keyed.numbered(found)
    if task.query not in queries.DROPPING:
        return found
    first: dict[bytes, Input] = {}
    for each in found:
        first.setdefault(each.value, each)
    return list(first.values())


def arrived(world: World) -> tuple[World, int]:
    """Return the world of what is in the journal or was ever shown, and how many rows went in beside.

    For a source that sends nothing again: what never arrived was lost before the journal. What one sink has shown, none
    may lack, and none what is in the journal, whether an epoch has read it or not.
    """
    there = {row.value for row in (*world.at_end, *world.during)}
    inputs = [each for each in world.inputs if each.partition == JOURNAL or each.value in there]
    return replace(world, inputs=inputs), len(world.inputs) - len(inputs)


def told_apart(world: World, again: Mapping[bytes, Sequence[int]]) -> World:
    """Return the world with a name of its own for each time that a row came into the journal.

    ``again`` are its places there behind the first. From there on each is a row like any other, and is due once. Of
    those that are alike, the first that is seen is taken for the first that came; one that is seen too often has the
    name of the last.
    """
    if not again:
        return world
    known = {row.value: row for row in world.inputs if row.value in again}
    names = {
        value: [value, *(b"%b, time %d" % (value, 2 + n) for n in range(len(again[value])))]
        for value in known
    }
    free = count(1 + max((row.id for row in world.inputs), default=0))
    copies = [
        replace(known[value], id=next(free), partition=JOURNAL, position=position, value=name)
        for value, own in names.items()
        for name, position in zip(own[1:], again[value], strict=True)
    ]
    found: dict[tuple[str, bytes], list[tuple[object, ...]]] = {}
    for row, at in (*_one_by_one(world.during, names), *_one_by_one(world.at_end, names)):
        places = found.setdefault((row.sink, row.value or b""), [])
        if at not in places:
            places.append(at)

    def named(rows: Iterable[Seen]) -> list[Seen]:
        renamed = []
        for row, at in _one_by_one(rows, names):
            own = names[row.value or b""]
            place = found.get((row.sink, row.value or b""), [at]).index(at)
            renamed.append(replace(row, value=own[min(place, len(own) - 1)]))
        return [*(row for row in rows if row.value not in names), *renamed]

    return replace(
        world,
        inputs=[*world.inputs, *copies],
        at_end=named(world.at_end),
        during=named(world.during),
    )


def _one_by_one(
    rows: Iterable[Seen], names: Mapping[bytes, object]
) -> Iterator[tuple[Seen, tuple[object, ...]]]:
    """Yield the rows that have names, in the order in which they were seen, and what tells one from others like it.

    Several readers may have got the same one. Where a place has no order, the first of each look is taken for the same.
    """
    times: Counter[tuple[object, ...]] = Counter()
    mine = [row for row in rows if row.value in names]
    for row in sorted(mine, key=lambda row: row.seen_s or 0.0):
        at = (row.place, row.order, row.value)
        times[row.sink, *at] += row.order < 0
        yield row, (*at, times[row.sink, *at])


def judged(task: Task, world: World, *, is_ordered: bool = True) -> World:
    """Return what is to be judged: tasks that run side by side may write rows of one input partition.

    Behind a shuffle they do, and where a source is not ``is_ordered``.
    """
    if task.query not in queries.STATEFUL and is_ordered:
        return world

    def unordered(rows: Iterable[Seen]) -> list[Seen]:
        return [replace(row, order=-1) for row in rows]

    return replace(
        world,
        at_end=unordered(world.at_end),
        during=unordered(world.during),
        uncommitted=unordered(world.uncommitted),
    )


def _first_after(watcher: AnyWatcher, moment: float) -> float | None:
    seen = watcher.seen()
    if not seen or (seen[-1].seen_s or 0.0) <= moment:
        watcher.wait_for(len(seen) + 1, _WAIT_S)
        return None
    found: float | None = None
    for row in reversed(seen):
        if (row.seen_s or 0.0) <= moment:
            break
        found = row.seen_s
    return found
