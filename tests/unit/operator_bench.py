"""Checkpoints for the tests of the operator's view: Spark's files by hand, the log by the log's own code.

Its sink keeps transactions as files; the command line imports it by name, from this folder.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

import onceonly.cli
from onceonly.log import open_log
from onceonly.model import Capabilities, Guarantee, Handle, Link, LinkKind, Receipt, SinkUse, Vote
from onceonly.operations import former, restoring
from onceonly.operations.given import Given
from onceonly.options import Option
from onceonly.ports import (
    AlreadyCommitted,
    Committed,
    Leftover,
    Lost,
    Outcome,
    QueryContext,
    RetryLater,
    Standing,
    Stands,
    TwoPhaseCommitSink,
    Unknown,
    WriteContext,
)
from onceonly.ports.standing import TakenBack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

QUERY = "11111111-2222-3333-4444-555555555555"


BOX = "operator_bench:BoxSink"
PATH = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
"""Where a process of its own finds the sink."""


class BoxSink(TwoPhaseCommitSink[str]):
    """Transactions are files ``<id>.open`` in a folder, ``<id>.done`` when committed.

    A file ``<id>.lost`` or ``<id>.doubt`` says what its commit answers; the password must be right.
    """

    name = "box"
    capabilities = Capabilities(guarantees=frozenset(Guarantee), recovers=True)
    declared: ClassVar[tuple[Option, ...]] = (
        Option(name="folder", doc="where the transactions are", required=True),
        Option(name="password", doc="anything", secret=True),
    )

    @property
    def folder(self) -> Path:
        return Path(self.options["folder"])

    def check(self, context: QueryContext) -> dict[str, str | int]:
        if not self.folder.is_dir():
            message = "the box is not there"
            raise ConnectionError(message)
        return {}

    def begin_transaction(self, context: WriteContext) -> str:
        raise NotImplementedError

    def write(self, transaction: str, batch: pa.RecordBatch) -> None:
        raise NotImplementedError

    def pre_commit(self, transaction: str) -> Handle:
        raise NotImplementedError

    def commit(self, handle: Handle) -> Outcome:
        opened, done = (self.folder / f"{handle.transaction}.{end}" for end in ("open", "done"))
        if (self.folder / f"{handle.transaction}.lost").exists():
            return Lost("it is written on it")
        if (self.folder / f"{handle.transaction}.later").exists():
            return RetryLater("the box is busy")
        if done.exists():
            return AlreadyCommitted()
        if not opened.exists():
            return Unknown("it is not in the box")
        opened.rename(done)
        return Committed()

    def look_up(self, handle: Handle) -> Standing:
        if not self.folder.is_dir():
            message = "the box is not there"
            raise ConnectionError(message)
        if (self.folder / f".{handle.transaction}.aborted").exists():
            return Standing(stands=Stands.GONE, told="it was aborted", blocks="nobody")
        for stands, end in ((Stands.COMMITTED, "done"), (Stands.OPEN, "open"), (Stands.GONE, "lost")):
            if (self.folder / f"{handle.transaction}.{end}").exists():
                return Standing(
                    stands=stands, told=f"{handle.transaction}.{end} is in the box", blocks="nobody"
                )
        return Standing(stands=Stands.UNKNOWN, told="it is not in the box")

    def newest_epoch(self, context: QueryContext) -> int | None:
        found = [int(path.stem[1:].partition("-")[0]) for path in self.folder.glob("t*-*.done")]
        return max(found, default=None)

    def abort(self, handle: Handle) -> None:
        opened = self.folder / f"{handle.transaction}.open"
        if opened.exists():
            (self.folder / f".{handle.transaction}.aborted").touch()
            opened.unlink()

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        return [Leftover(transaction=path.stem) for path in self.folder.glob("*.open")]


class GivingBoxSink(BoxSink):
    """A box that what was committed can be taken back from."""

    def withdraw(
        self, _context: QueryContext, _epoch: int, handles: Sequence[Handle], *, only_look: bool = False
    ) -> TakenBack:
        for handle in () if only_look else handles:
            (self.folder / f"{handle.transaction}.done").unlink(missing_ok=True)
        return TakenBack(files=tuple(handle.transaction for handle in handles))


@dataclass
class QueryCoordinator:
    """One checkpoint and one box."""

    path: Path
    query: str = QUERY
    keep: int = 100

    def __post_init__(self) -> None:
        self.box.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "metadata").write_text(json.dumps({"id": self.query}), encoding="utf-8")
        self.log = open_log(str(self.path), query=self.query, keep=self.keep, create=True)

    @property
    def box(self) -> Path:
        return self.path.parent / f"{self.path.name}-box"

    # --- what Spark writes --------------------------------------------------------------------------------

    def barrier(self, epoch: int) -> str:
        return json.dumps({"events": {"0": 10 * (epoch + 1), "1": 5 * (epoch + 1), "10": 0}})

    def set_barrier(self, epoch: int) -> None:
        folder = self.path / "offsets"
        folder.mkdir(exist_ok=True)
        (folder / str(epoch)).write_text(f"v1\n{{}}\n{self.barrier(epoch)}", encoding="utf-8")

    def note(self, epoch: int) -> None:
        folder = self.path / "commits"
        folder.mkdir(exist_ok=True)
        (folder / str(epoch)).write_text("v1\n{}", encoding="utf-8")

    # --- what a run writes --------------------------------------------------------------------------------

    def vote(self, epoch: int, slot: int = 0, *, name: str = "") -> Vote:
        handle = Handle(transaction=name or f"t{epoch}-{slot}", data={"box": 1})
        return Vote(
            sink="box", epoch=epoch, slot=slot, plan="p", run="r", attempt="1", rows=3, checksum="0" * 16,
            handle=handle,
        )  # fmt: skip

    def link(self, epoch: int, index: int = 0, *, votes: Iterable[Vote] = (), abort: str = "") -> Link:
        return Link(
            epoch=epoch, index=index, kind=LinkKind.ABORT if abort else LinkKind.COMMIT, plan="p", run="r",
            votes=tuple(votes), barrier=(self.barrier(epoch),), settings={"box": {}}, reason=abort,
            uses={"box": SinkUse(sink="operator_bench:BoxSink", options={"folder": str(self.box)})},
        )  # fmt: skip

    def decide(self, epoch: int, *, index: int = 0, slots: int = 2) -> Link:
        """Decide an epoch whose transactions are open."""
        self.set_barrier(epoch)
        link = self.link(epoch, index, votes=[self.vote(epoch, slot) for slot in range(slots)])
        self.log.put_link(link)
        for vote in link.pending:
            self.open(vote.handle.transaction if vote.handle else "")
        return link

    def lose_one(self, epoch: int) -> None:
        """Decide an epoch, one of whose transactions is committed, and the other proven lost."""
        kept, lost = self.decide(epoch).votes
        (self.box / f"t{epoch}-{kept.slot}.open").rename(self.box / f"t{epoch}-{kept.slot}.done")
        (self.box / f"t{epoch}-{lost.slot}.open").unlink()
        repeated = self.link(epoch, 1, votes=[lost])
        # In the name of the plan that claims it.
        self.log.put_link(replace(repeated, plan="p2", carried=(kept,), reason="1 of 2 was proven lost"))

    def settle(self, link: Link) -> None:
        for vote in link.pending:
            name = vote.handle.transaction if vote.handle else ""
            (self.box / f"{name}.open").rename(self.box / f"{name}.done")
        outcomes = {"committed": len(link.pending)}
        self.log.put_receipt(
            Receipt(epoch=link.epoch, index=link.index, plan="p", outcomes=outcomes, seconds=0.25)
        )

    def complete(self, *epochs: int) -> None:
        for epoch in epochs:
            self.settle(self.decide(epoch))
            self.note(epoch)

    def claim(self, epoch: int, index: int = 0, reason: str = "claimed by a new run") -> None:
        self.log.put_link(replace(self.link(epoch, index, abort=reason)))

    # --- the outside world --------------------------------------------------------------------------------

    def open(self, name: str) -> None:
        (self.box / f"{name}.open").touch()

    def seen(self) -> list[str]:
        return sorted(path.name for path in self.box.iterdir() if not path.name.startswith("."))


@dataclass(frozen=True)
class Ran:
    """What the command line gave."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str | Path, **env: str) -> Ran:
    """Run the command line without a terminal; in a process of its own where ``env`` is given.

    The operator says what the sink ``box`` is, as no code is run because the log names it; ``SILENT`` for one who does
    not.
    """
    acts = arguments[:1] == ("transactions",) and bool(
        {"abort", "commit", "explain", "--ask"} & set(arguments)
    )
    if env.pop("SILENT", "") == "" and acts and "--sink" not in arguments and _names_box(arguments):
        arguments = (*arguments, "--sink", f"box={BOX}")
    if not env:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.syspath_prepend(str(Path(__file__).parent))
            patch.setattr(sys, "stdin", io.StringIO())
            status = here(*arguments)
        return Ran(status, out.getvalue(), err.getvalue())
    done = subprocess.run(
        [sys.executable, "-m", "onceonly", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": PATH, "NO_COLOR": "1", **env},
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


def broken_off_before_its_claim(place: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to restore a savepoint, and die before the claim: the query can go on where it is."""

    def killed(*_arguments: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(former, "claim", killed)
        patched.setattr(former, "stay", lambda *_arguments: None)
        with pytest.raises(SystemExit):
            restoring.restore(str(place), str(to), Given())


def _names_box(arguments: Sequence[str | Path]) -> bool:
    folders = [Path(each) for each in arguments[1:] if Path(each).is_dir()]
    return any(BOX.encode() in link.read_bytes() for each in folders for link in each.rglob("links/*.json"))


def here(*arguments: str | Path) -> int:
    """Run the command line in this process."""
    return onceonly.cli.run([str(each) for each in arguments])
