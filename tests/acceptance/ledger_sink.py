"""A sink that is easy to look into: rows as JSON lines, staged in a file, renamed on commit.

Executors import this module, so the folder of this file must be on their PYTHONPATH (see conftest).
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar

from onceonly.errors import ConfigurationError
from onceonly.model import Capabilities, Guarantee, Handle
from onceonly.options import Option
from onceonly.ports import (
    AlreadyCommitted,
    Committed,
    Leftover,
    Lost,
    Outcome,
    QueryContext,
    TwoPhaseCommitSink,
    Unknown,
    WriteContext,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa


class LedgerSink(TwoPhaseCommitSink[IO[str]]):
    """Options: ``folder``, ``only`` (refuse rows that have other columns), and a ``password``."""

    name = "ledger"
    declared: ClassVar[tuple[Option, ...]] = (
        Option(name="folder", doc="where the rows go", required=True),
        Option(name="only", doc="the columns that are taken, separated by commas"),
        Option(name="onceonly.ledger.note", doc="a name below onceonly. that is the sink's own"),
        Option(name="password", doc="nothing asks for it; it must be shown nowhere", secret=True),
    )
    capabilities = Capabilities(guarantees=frozenset({Guarantee.EXACTLY_ONCE}), recovers=True)

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.folder = Path(self.options["folder"])

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        names = [name for name, _ in context.columns]
        if self.options["only"] not in {None, ",".join(names)}:
            raise ConfigurationError(
                f"the ledger takes the columns {self.options['only']}, not {','.join(names)}",
                next_step="select those",
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        return {"checked": 1}

    def identity(self) -> Mapping[str, str | int]:
        return {"folder": str(self.folder)}

    def begin_transaction(self, context: WriteContext) -> IO[str]:
        assert context.facts == {"checked": 1}
        name = f"{context.query}.{context.epoch}.{context.slot}.{uuid.uuid4().hex}"
        return (self.folder / f".{name}").open("x", encoding="utf-8")

    def write(self, transaction: IO[str], batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            transaction.write(json.dumps(row, default=str) + "\n")

    def pre_commit(self, transaction: IO[str]) -> Handle:
        transaction.flush()
        os.fsync(transaction.fileno())
        transaction.close()
        return Handle(transaction=Path(transaction.name).name.removeprefix("."))

    def discard(self, transaction: IO[str]) -> None:
        transaction.close()
        Path(transaction.name).unlink(missing_ok=True)

    def commit(self, handle: Handle) -> Outcome:
        staged, final = self.folder / f".{handle.transaction}", self.folder / handle.transaction
        if final.exists():
            return AlreadyCommitted()
        if (dropped(self.folder) / handle.transaction).exists():
            return Lost("it was dropped, and what was dropped is never taken up again")
        if not staged.exists():
            return Unknown(f"neither {staged} nor {final} exists")
        staged.rename(final)
        return Committed()

    def abort(self, handle: Handle) -> None:
        (self.folder / f".{handle.transaction}").unlink(missing_ok=True)

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        found = self.folder.glob(f".{context.query}.*")
        return [Leftover(transaction=path.name.removeprefix(".")) for path in found]


def by_epoch(folder: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the visible rows, each with its epoch."""
    for path in folder.glob("[!.]*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield int(path.name.split(".")[1]), json.loads(line)


def committed(folder: Path) -> Iterator[dict[str, object]]:
    """Yield the visible rows."""
    yield from (row for _, row in by_epoch(folder))


def staged(folder: Path) -> list[str]:
    """Name what is open."""
    return [path.name for path in folder.glob(".*")]


def drop(folder: Path) -> list[str]:
    """Lose all that is open, as a target does after its time-out; give the names."""
    dropped(folder).mkdir(exist_ok=True)
    lost = [path.rename(dropped(folder) / path.name.removeprefix(".")).name for path in folder.glob(".*")]
    return sorted(lost)


def dropped(folder: Path) -> Path:
    """Return the place of what was dropped."""
    return folder.with_name(folder.name + "-dropped")
