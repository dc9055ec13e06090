"""A small world for the tests of disk, clock and checkpoint: a checkpoint, a target, and Spark as far as it goes.

The coordinator, the log and the file sink are the real ones. What judges the world reads its folders by itself and
shares no code with them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from onceonly import failpoints
from onceonly.coordinator import commits, sweep
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import OnceonlyError
from onceonly.executor.slot import run_slot
from onceonly.log import open_log
from onceonly.log.presence import Presence
from onceonly.log.progress import Progress, ProgressFiles
from onceonly.model import Guarantee
from onceonly.operations import look
from onceonly.operations.find import open_checkpoint
from onceonly.operations.states import EpochState
from onceonly.ports import WriteContext
from onceonly.sinks.files import FilesSink
from onceonly_proof.disk import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceonly.model import Plan, Vote
    from onceonly.ports import Clock, InputFiles, Sink
    from onceonly_proof.disk import Fault

QUERY = "11111111-2222-3333-4444-555555555555"
COLUMNS = (("id", "bigint"),)
SLOTS = 2
# The log folds blocks that end with epoch 19, 39, …: so this short history has a fold.
FIRST, LAST = 18, 21
TYPED, DEFECT = 4, 3


class FakeClock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class World:
    """What outlives all processes."""

    folder: Path
    first: int = FIRST
    last: int = LAST
    others: dict[str, Sink] = field(default_factory=dict)
    """Further sinks, which get the same rows."""
    shift: int = 0
    """Added to each row's id: a replay that gives other rows."""
    name: str = "files"
    """What the query calls the sink; empty where it has left it out."""
    clock: Callable[[], Clock] = FakeClock

    def __post_init__(self) -> None:
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}), encoding="utf-8")

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def log(self) -> Path:
        return self.checkpoint / "onceonly"

    @property
    def target(self) -> Path:
        return self.folder / "out"

    @property
    def watched(self) -> tuple[Path, Path]:
        """Where the disk fails: in what is ours, not in what is Spark's."""
        return self.log, self.target

    # --- Spark --------------------------------------------------------------------------------------------

    def finished(self) -> int:
        """The newest epoch that Spark has noted."""
        return max(
            (int(path.name) for path in (self.checkpoint / "commits").iterdir()), default=self.first - 1
        )

    def barrier(self, epoch: int) -> str:
        text = json.dumps({"events": {"0": epoch + 1}})
        (self.checkpoint / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{text}", encoding="utf-8")
        return text

    def ids(self, epoch: int, slot: int) -> list[int]:
        return [4 * (epoch - self.first) + 2 * slot + number + self.shift for number in (0, 1)]

    def sink(self) -> FilesSink:
        return FilesSink({"path": str(self.target), "format": "json"})

    def inputs(self) -> InputFiles | None:
        """Return Spark's own files, None where nobody looks at them."""
        return None

    def coordinator(self, sinks: dict[str, Sink]) -> Coordinator:
        opened = open_log(str(self.checkpoint), query=QUERY, keep=2, create=True)
        coordinator = Coordinator(
            log=opened, actor="driver", commit_timeout_s=1.0, clock=self.clock(), inputs=self.inputs()
        )
        for name, sink in sinks.items():
            coordinator.join(name, Participant(sink=sink, guarantee=Guarantee.EXACTLY_ONCE, columns=COLUMNS))
        return coordinator

    def live(self, upto: int, *, run: str = "run", graceful: bool = True) -> None:
        """Live once: run epochs until one fails, as a query does that Spark starts on this checkpoint."""
        sinks: dict[str, Sink] = {**({self.name: self.sink()} if self.name else {}), **self.others}
        coordinator, continues, finished = self.coordinator(sinks), None, self.finished()
        with contextlib.closing(Presence.hold(str(self.checkpoint))), pytest.MonkeyPatch.context() as patch:
            # What is killed at its n-th call is then always the same.
            patch.setattr(commits, "THREADS_MAX", 1)
            patch.setattr(sweep, "THREADS_MAX", 1)
            while finished < upto:
                epoch = finished + 1
                votes: list[Vote] = []
                plan = coordinator.plan(epoch, barrier=(self.barrier(epoch),), run=run, continues=continues)
                try:
                    for name, slot in itertools.product(sinks, range(SLOTS)):
                        votes.append(self.task(sinks[name], name, plan, slot, run))
                    coordinator.decide(plan, votes)
                except Exception:
                    if graceful:  # Spark calls abort, and goes on with the first error
                        with contextlib.suppress(OnceonlyError):
                            coordinator.abort(plan, votes, run=run)
                    raise
                continues, finished = plan.id, epoch
                with contextlib.suppress(OSError):  # as the listener does: it is for people
                    ProgressFiles(self.checkpoint).put(Progress(epoch=epoch, run=run))
                (self.checkpoint / "commits" / str(epoch)).write_text("v1\n{}", encoding="utf-8")

    def task(self, sink: Sink, name: str, plan: Plan, slot: int, run: str) -> Vote:
        context = WriteContext(
            query=QUERY, sink=name, run=run, epoch=plan.epoch, plan=plan.id, slot=slot, attempt="0",
            guarantee=plan.guarantee, mode=plan.mode, facts=plan.facts.get(name, {}),
        )  # fmt: skip
        return run_slot(sink, plan, context, [pa.record_batch({"id": self.ids(plan.epoch, slot)})]).vote

    def history(self) -> None:
        """Live three lives: the first ends before a decision, the second between two commits."""
        with armed("link.before_put=raise@2"):
            self.live(self.last, run="run-1", graceful=False)
        with armed("commit.before_handle=raise@4"):
            self.live(self.last, run="run-2")
        self.live(self.last, run="run-3")

    def settle(self) -> None:
        """Start again, and once more with one epoch on top, which takes away what was left."""
        self.live(self.last, run="run-4")
        for path in self.folder.rglob(
            ".*"
        ):  # what tries a file system may be somebody's at work while it is young
            os.utime(path, (0, 0))
        self.last += 1
        self.live(self.last, run="run-5")

    def half_commit(self) -> None:
        """Complete the first epoch; leave the second one decided, and one of its two files published."""
        self.live(self.first)
        with armed("commit.before_handle=raise@2"):
            self.live(self.first + 1)
        assert len(self.visible()) == SLOTS + 1

    # --- what is there, read by hand ----------------------------------------------------------------------

    def visible(self) -> list[Path]:
        """The files that any reader of a folder sees."""
        found = [path for path in sorted(self.target.rglob("*")) if path.is_file()]
        return [path for path in found if not re.search(r"/[._]", str(path.relative_to(self.folder)))]

    def rows(self) -> Counter[int]:
        lines = itertools.chain.from_iterable(path.read_bytes().splitlines() for path in self.visible())
        return Counter(json.loads(line)["id"] for line in lines)

    def wanted(self, *epochs: int) -> Counter[int]:
        return Counter(one for epoch in epochs for slot in range(SLOTS) for one in self.ids(epoch, slot))

    def chains(self) -> dict[int, list[dict[str, Any]]]:
        """The links by epoch, each read whole."""
        found: dict[int, list[dict[str, Any]]] = {}
        for path in sorted((self.log / "links").glob("[0-9]*.json")):
            epoch, index, _ = path.name.split(".")
            assert int(index) == len(found.setdefault(int(epoch), [])), path
            found[int(epoch)].append(unsealed(path))
        return found

    def folded(self) -> dict[int, dict[str, Any]]:
        """The lines of history by epoch."""
        segments = [unsealed(path) for path in sorted((self.log / "history").glob("[0-9]*.json"))]
        return {line["epoch"]: line for segment in segments for line in segment["epochs"]}

    def listed(self) -> dict[int, set[str]]:
        """The files of each epoch, by the manifests."""
        found: dict[int, set[str]] = {}
        for path in sorted((self.target / "_onceonly" / "epochs").rglob("[0-9]*.manifest")):
            for line in body_of(path).splitlines():
                manifest = json.loads(line)
                for name, size, count, _ in manifest["files"]:
                    data = (self.target / name).read_bytes()
                    assert (len(data), len(data.splitlines())) == (size, count), name
                found[manifest["epoch"]] = {name for name, *_ in manifest["files"]}
        return found

    def remains(self) -> list[str]:
        """What is nobody's: staged files, temporary names."""
        staged = [path for path in (self.target / "_onceonly" / "staging").rglob("*") if path.is_file()]
        # Of a claim that was killed, too, which a start takes away an hour later: another query may be at it.
        own = [path for path in self.folder.rglob(".*") if not path.name.startswith(".first-epoch.")]
        hidden = [path for path in own if path not in staged]
        return [str(path) for path in (*staged, *hidden)]

    # --- verdicts -----------------------------------------------------------------------------------------

    def judge_midway(self) -> None:
        """At any moment: no row twice, none visible before its decision, each file of the log whole."""
        decided = {epoch for epoch, chain in self.chains().items() if chain[-1]["kind"] == "GLOBAL_COMMIT"}
        decided |= self.folded().keys()
        rows = self.rows()
        assert rows <= self.wanted(*decided), "a row twice, or before its decision"
        settled = {epoch for epoch in decided if self.receipt(epoch) is not None} | self.folded().keys()
        assert rows >= self.wanted(*settled), "a row that is settled is not to be seen"
        assert settled <= self.listed().keys(), "a settled epoch without its manifest"

    def judge_settled(self) -> None:
        """At rest: each row once, every epoch decided and acknowledged once, nothing left over."""
        epochs = range(self.first, self.last + 1)
        assert self.rows() == self.wanted(*epochs)
        listed = self.listed()
        assert sorted(listed) == list(epochs)
        assert sorted(itertools.chain(*listed.values())) == [
            str(path.relative_to(self.target)) for path in self.visible()
        ]
        chains, lines = self.chains(), self.folded()
        assert sorted([*chains, *lines]) == list(epochs), "each epoch in detail or in history"
        for epoch, chain in chains.items():
            assert chain[-1]["kind"] == "GLOBAL_COMMIT"
            receipt = self.receipt(epoch)
            assert receipt is not None
            assert receipt["index"] == len(chain) - 1
        for line in lines.values():
            assert (line["kind"], line["sinks"]["files"]) == ("GLOBAL_COMMIT", [2 * SLOTS, SLOTS])
        assert self.remains() == []
        told = look.newest(open_checkpoint(self.checkpoint), limit=None, history=True).epochs
        assert {row.view.epoch: row.view.state for row in told} == dict.fromkeys(epochs, EpochState.COMPLETE)

    def receipt(self, epoch: int) -> dict[str, Any] | None:
        path = self.log / "receipts" / f"{epoch:020d}.json"
        return unsealed(path) if path.exists() else None


def body_of(path: Path) -> bytes:
    """Check a file by its header, by hand, and give what follows."""
    line, _, body = path.read_bytes().partition(b"\n")
    header = json.loads(line)
    assert header["length"] == len(body), path
    assert header["checksum"] == "sha256:" + hashlib.sha256(body).hexdigest(), path
    return body


def unsealed(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(body_of(path))
    return value


@contextlib.contextmanager
def armed(spec: str) -> Iterator[None]:
    """Arm a crash point that raises, and take what it raises; all else goes through."""
    failpoints._counts.clear()
    os.environ["ONCEONLY_FAILPOINTS"] = spec
    os.environ.pop("ONCEONLY_FAILPOINTS_DIR", None)
    try:
        with contextlib.suppress(failpoints.FailpointError):
            yield
            raise AssertionError(f"{spec} was not passed")
    finally:
        del os.environ["ONCEONLY_FAILPOINTS"]


@dataclass(frozen=True)
class End:
    """How a process ended (0, TYPED, DEFECT, ``durable.EXIT``, SIGKILL), what it said, its calls, and what failed."""

    status: int
    said: str
    total: int
    at: tuple[str, str] | None

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL


@dataclass(frozen=True)
class Child:
    """A process that was forked off."""

    pid: int
    reader: int

    def end(self) -> End:
        """Wait for its end; once."""
        with open(self.reader, "rb") as pipe:  # noqa: PTH123  a descriptor
            told = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        said, total, at = json.loads(told) if told else ("", 0, None)
        return End(status, said, total, tuple(at) if at else None)


def started(action: Callable[[], object], *folders: Path, fault: Fault | None = None, **more: Any) -> Child:  # noqa: ANN401  as FaultyDisk
    """Start an action in a process of its own, on a faulty disk."""
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child returns no more
        child = os.fork()
    if child == 0:
        status, said = 0, ""
        disk, end = FaultyDisk(*folders, fault=fault, **more), os._exit

        def last_words(status: int) -> None:
            os.write(writer, json.dumps([words.getvalue(), disk.total, disk.at]).encode())
            end(status)

        os._exit = last_words  # type: ignore[assignment]
        sys.stderr = words = io.StringIO()
        with disk:
            try:
                action()
            except OnceonlyError as error:
                status, said = TYPED, f"{type(error).__name__}: {error}"
            except BaseException:  # noqa: BLE001  told
                status, said = DEFECT, traceback.format_exc()
        os.write(writer, json.dumps([said, disk.total, disk.at]).encode())
        end(status)
    os.close(writer)
    return Child(child, reader)


def in_child(action: Callable[[], object], *folders: Path, fault: Fault | None = None, **more: Any) -> End:  # noqa: ANN401  as FaultyDisk
    """Run an action in a process of its own, on a faulty disk."""
    return started(action, *folders, fault=fault, **more).end()


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """Return a folder in memory, where there is one; and import once what every child needs."""
    place = Path("/dev/shm")  # noqa: S108  made by mkdtemp below it
    with tempfile.TemporaryDirectory(dir=place if place.is_dir() else None) as folder:
        World(Path(folder) / "warm").history()
        yield Path(folder)


@pytest.fixture
def world(memory: Path) -> Iterator[World]:
    """Return a world of its own to a test."""
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield World(Path(folder) / "world")


def put_back(folder: Path, kept: Path) -> None:
    """Make a folder what it was when it was copied, at its own address."""
    shutil.rmtree(folder)
    shutil.copytree(kept, folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Read all that is in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
