"""A journal on a disk whose power is cut at each of its operations: what was acknowledged is there, and read once.

What a cut keeps of what was not synced is chosen in the eight styles of ``onceonly_proof.power``. The query's own
checkpoint is on another disk here, which forgets nothing.
"""

from __future__ import annotations

import contextlib
import stat
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.journal_bench import held, opened, rows
from tests.unit.power_recorder import Recorder, write_tree

from onceonly.durable import disk
from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError
from onceonly.operations.journals import drop, drop_reader
from onceonly.sources.journal import Journal, Position, Reader
from onceonly.sources.journal import writer as writing
from onceonly.sources.journal.segments import FOLDS, SEGMENTS
from onceonly_proof.power import Keep, cut, plan
from onceonly_proof.power.plan import Cut, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onceonly.sources.journal import Writer

SENT = "abcdefghij"


@dataclass(frozen=True)
class Epoch:
    """An epoch that was decided when so many operations were done."""

    at: int
    start: Position
    end: int
    ids: list[str | None]


@dataclass
class World:
    """A disk with a journal on it, and what a server and a query outside of it know."""

    disk: Path
    window_s: float = 3600.0
    told: dict[str, int] = field(default_factory=dict)
    """After how many operations each id was acknowledged."""
    epochs: list[Epoch] = field(default_factory=list)
    recorder: Recorder = field(init=False)

    @property
    def place(self) -> Path:
        return self.disk / "feeds" / "journal"

    def recorded(self, work: Callable[[], None], before: Recorder | None = None, upto: int = 0) -> None:
        """Do something and record it, where an earlier process was killed after ``upto`` operations."""
        done = None if before is None else (before.base, before.ops[:upto])
        with Recorder(self.disk, done) as self.recorder:
            work()

    @contextlib.contextmanager
    def receiver(self) -> Iterator[Writer]:
        with opened(self.place, window_s=self.window_s) as writer:
            yield writer

    def take(self, writer: Writer, *ids: str) -> None:
        """Take messages, and acknowledge them when they are durable."""
        writer.append(rows(*ids), ids[-1])
        self.told.update({each: len(self.recorder.ops) for each in ids if each not in self.told})

    @contextlib.contextmanager
    def query(self, writer: Writer | None = None) -> Iterator[Query]:
        """Start the query; beside a receiver of its own process, or of another one."""
        durable = None if writer is None else (lambda: writer.newest)
        reader = Reader(Journal.at(str(self.place)), durable=durable, wait_s=0)
        try:
            yield Query(self, reader)
        finally:
            reader.close()


class Query:
    """What Spark does with a source: it plans, says what it will not ask for again, reads, and decides."""

    def __init__(self, world: World, reader: Reader) -> None:
        self.world = world
        self.reader = reader
        if world.epochs:
            last = world.epochs[-1]
            reader.require(last.start)
            assert held(world.place, range(last.start.segment + 1, last.end + 1)) == last.ids, (
                "another replay"
            )
            self.start = Position(last.start.journal, last.start.reader, last.end)
        else:
            self.start = reader.initial()
            reader.require(self.start)

    def unread(self) -> list[str | None]:
        end = self.reader.newest(after=self.start.segment)
        return held(self.world.place, range(self.start.segment + 1, end + 1))

    def epoch(self) -> None:
        end = self.reader.newest(after=self.start.segment)
        if self.world.epochs:
            self.reader.commit(self.start.segment)
        ids = held(self.world.place, range(self.start.segment + 1, end + 1))
        self.world.epochs.append(Epoch(len(self.world.recorder.ops), self.start, end, ids))
        self.start = Position(self.start.journal, self.start.reader, end)


@pytest.fixture(autouse=True)
def tidied_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine does not fold in between, where ids are forgotten at once."""
    monkeypatch.setattr(writing, "_TIDY_S", 3600.0)


@pytest.fixture
def memory() -> Iterator[Path]:
    """Return a folder in memory, where there is some: it is written very often."""
    shm = Path("/dev/shm")  # noqa: S108  made by mkdtemp below it
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as folder:
        yield Path(folder)


def life(world: World) -> None:
    """Receive and read, fold and delete, in three lives; the receiver of the last is another process's."""
    with world.receiver() as writer, world.query(writer) as query:
        world.take(writer, "a", "b")
        query.epoch()
        for each in "cde":
            world.take(writer, each)
            query.epoch()
            writer.tidy(now=True)
    with world.receiver() as writer:
        world.take(writer, "f", *(("c", "e") if world.window_s else ()))
        with world.query(writer) as query:
            query.epoch()
            writer.tidy(now=True)
            world.take(writer, "g")
            query.epoch()
    with world.query() as query, world.receiver() as writer:
        for each in "hi":
            world.take(writer, each)
            query.epoch()
            writer.tidy(now=True)


def worlds(memory: Path, window_s: float = 3600.0, work: Callable[[World], None] = life) -> World:
    world = World(memory / "disk", window_s)
    world.disk.mkdir()
    world.recorded(lambda: work(world))
    return world


def left_by(world: World, at: int, keep: Keep) -> World:
    """Put in what a cut leaves, and what was known outside by then."""
    write_tree(cut(world.recorder.base, world.recorder.ops[:at], keep), world.disk)
    left = World(world.disk, world.window_s)
    if left.place.is_dir():
        left.place.chmod(0o700)  # a tree is written without modes
    left.told = {each: done for each, done in world.told.items() if done <= at}
    left.epochs = [epoch for epoch in world.epochs if epoch.at <= at]
    return left


def judge(left: World) -> None:
    """Start again: what was acknowledged is there, in the order of its epochs, and each id is read once in all."""
    output = [each for epoch in left.epochs for each in epoch.ids]
    with left.receiver() as writer, left.query(writer) as query:
        found = output + query.unread()
        lost = set(left.told) - set(found)
        assert not lost, f"acknowledged and lost: {lost}"
        assert len(found) == len(set(found)), f"twice: {found}"
        for each in SENT:
            # What is not acknowledged is sent again; so is what the server only thinks is not.
            if left.window_s or each not in left.told:
                writer.append(rows(each), each)
        found = output + query.unread()
        assert sorted(map(str, found)) == list(SENT), f"{found}"
        writer.tidy(now=True)
        assert output + query.unread() == found
    with left.receiver():  # takes away what was not published
        pass
    names = [path.name for path in left.place.rglob(".*")]
    assert not names, names


def ends(state: State) -> list[Cut]:
    """Return the first and the last of the cuts that leave the same files: by the last, most is known outside."""
    return [state.cuts[0], *(state.cuts[-1:] if state.cuts[-1].at > state.cuts[0].at else [])]


def wrong_after(
    world: World, cuts: Iterable[Cut], law: Callable[[World, Cut], None] | None = None
) -> list[str]:
    wrong = []
    for each in cuts:
        try:
            left = left_by(world, each.at, each.keep)
            judge(left) if law is None else law(left, each)
        except (AssertionError, OnceonlyError, OSError) as error:
            wrong.append(f"{each}: {type(error).__name__}: {error}")
    return wrong


def all_cuts(world: World, most: int, begin: int = 0) -> list[Cut]:
    """Return the cuts that leave different files, those that hit every operation first."""
    states = plan.states(world.recorder.base, world.recorder.ops, seed=1, seeds=1, begin=begin)
    assert {one.at for state in states for one in state.cuts} == set(
        range(begin, len(world.recorder.ops) + 1)
    )
    return [each for state in states[:most] for each in ends(state)]


EVERY = pytest.param(10_000, marks=pytest.mark.long)


@pytest.mark.parametrize("window_s", [3600.0, 0.0], ids=["ids-kept", "ids-forgotten"])
@pytest.mark.parametrize("most", [60, EVERY])
def test_after_a_power_cut_at_any_operation_what_was_acknowledged_is_read_once(
    memory: Path, most: int, window_s: float
) -> None:
    world = worlds(memory, window_s)
    wrong = wrong_after(world, all_cuts(world, most))
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:5])


def short_life(world: World) -> None:
    with world.receiver() as writer, world.query(writer) as query:
        for each in "abc":
            world.take(writer, each)
            query.epoch()
            writer.tidy(now=True)


def next_life(world: World, begins: str) -> None:
    """Live on with the query or with the receiver: either may stand on what a receiver has put that was killed."""
    if begins == "query":
        with contextlib.suppress(UnavailableError), world.query() as query:
            query.epoch()
    with world.receiver() as writer:
        for each in "abcd":
            if each not in world.told:
                world.take(writer, each)


@pytest.mark.parametrize("begins", ["query", "receiver"])
@pytest.mark.parametrize("where", ["names", pytest.param("everywhere", marks=pytest.mark.long)])
def test_what_a_killed_process_left_is_durable_before_the_next_one_stands_on_it(
    memory: Path, begins: str, where: str
) -> None:
    """Kill the first life, behind each new name or each operation, and cut the power where the next has got further."""
    first = worlds(memory, work=short_life)
    wrong: list[str] = []
    for upto, op in enumerate(first.recorder.ops, 1):
        is_name = op.kind in {"link", "rename"} or (op.kind == "create" and stat.S_ISDIR(op.mode))
        if where == "names" and not is_name:
            continue
        world = left_by(first, upto, Keep("all"))
        world.recorded(partial(next_life, world, begins), first.recorder, upto)
        ats = {*world.told.values(), *(epoch.at for epoch in world.epochs), len(world.recorder.ops)}
        cuts = [Cut(at, Keep("nothing")) for at in sorted(ats) if at >= upto]
        wrong += [f"killed at {upto}, {each}" for each in wrong_after(world, cuts)]
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:5])


def dropped_world(memory: Path) -> tuple[World, int, int]:
    """Let a journal be dropped, and a new one be made at its place; return when the drop began and ended."""
    world = World(memory / "disk")
    world.disk.mkdir()
    moments: list[int] = []

    def work() -> None:
        short_life(world)
        world.told.clear()
        world.epochs.clear()
        for folder in (world.place, world.place / SEGMENTS):
            (folder / "notes.txt").touch()  # by what is not the journal's, its folders stay
        moments.append(len(world.recorder.ops))
        drop(str(world.place))
        moments.append(len(world.recorder.ops))
        with world.receiver() as writer:
            world.take(writer, "a", "x")

    world.recorded(work)
    return world, moments[0], moments[1]


@pytest.mark.parametrize("most", [60, EVERY])
def test_a_journal_that_was_dropped_stays_so_and_one_that_was_half_dropped_can_be_dropped(
    memory: Path, most: int
) -> None:
    world, begin, end = dropped_world(memory)

    def law(left: World, cut: Cut) -> None:
        if cut.at < end:
            with contextlib.suppress(ConfigurationError):  # there is none
                drop(str(left.place))
        with left.receiver() as writer, left.query(writer) as query:
            found = query.unread()
            assert set(left.told) <= set(found) <= {"a", "x"}, f"{found}"
            writer.append(rows("a", "b"))
            assert {"a", "b"} <= set(query.unread()), "an id of the journal that was dropped is known"

    wrong = wrong_after(world, all_cuts(world, most, begin), law)
    assert not wrong, f"{len(wrong)}, dropped in {begin}-{end}:\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("style", ["nothing", "all"])
def test_a_reader_that_was_forgotten_stays_so(memory: Path, style: str) -> None:
    world = World(memory / "disk")
    world.disk.mkdir()

    def work() -> None:
        short_life(world)
        drop_reader(str(world.place))

    world.recorded(work)
    left = left_by(world, len(world.recorder.ops), Keep(style))
    left.epochs.clear()
    with left.receiver() as writer, left.query(writer) as query:
        assert query.unread() == held(left.place)
        assert "c" in query.unread()


def _is_content_of(name: str) -> Callable[[Path, Path], bool]:
    return lambda path, _: path.parent.name == name and not path.is_dir()


UNSYNCED: dict[str, Callable[[Path, Path], bool]] = {
    "none": lambda *_: False,
    "segment": _is_content_of("segments"),
    "fold": _is_content_of("folds"),
    "note": _is_content_of("journal"),
    "names of segments": lambda path, place: path == place / SEGMENTS,
    "names of folds": lambda path, place: path == place / FOLDS,
    "names in the journal": lambda path, place: path == place,
    "name of the journal": lambda path, place: path == place.parent,
}


def forget(monkeypatch: pytest.MonkeyPatch, world_place: Path, kind: str) -> None:
    """Leave out one kind of sync."""
    real = disk.fsync

    def fsync(descriptor: int, path: Path, *, fresh: bool = False) -> None:
        if not UNSYNCED[kind](path, world_place):
            real(descriptor, path, fresh=fresh)

    monkeypatch.setattr(disk, "fsync", fsync)


@pytest.mark.parametrize("kind", UNSYNCED)
def test_without_any_kind_of_sync_a_power_cut_is_seen_to_do_harm(
    memory: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the tests above would find one that is missing."""
    place = memory / "disk" / "feeds" / "journal"
    with monkeypatch.context() as patch:
        forget(patch, place, kind)
        world = worlds(memory, work=short_life)
    ats = sorted({*world.told.values(), *range(0, len(world.recorder.ops) + 1, 4)})
    harsh = [Cut(at, Keep(style, 1)) for at in ats for style in ("nothing", "names", "all-but-one")]
    assert bool(wrong_after(world, harsh)) == (kind != "none")
