"""A small sink that keeps every promise, and sinks that each break one: what the conformance suite must tell apart.

Rows are JSON lines in a file of a hidden folder; a commit gives the file its name in the target.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from onceonly.errors import ConfigurationError, UnavailableError, WriteFailedError
from onceonly.model import (
    AlreadyCommitted,
    Capabilities,
    Committed,
    Guarantee,
    Handle,
    Lost,
    Outcome,
    Unknown,
)
from onceonly.ports import Leftover, Option, QueryContext, Refused, TwoPhaseCommitSink, WriteContext
from onceonly.ports.standing import Standing, Stands
from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

REFUSED = "what the folder refuses"
SECRET = "5ecret-of-the-folder"  # noqa: S105  no password: a text to look for


class FolderSink(TwoPhaseCommitSink[Path]):
    """Keeps every promise."""

    name: ClassVar[str] = "folder"
    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantees=frozenset(Guarantee), recovers=True, gives_back=True
    )
    declared: ClassVar[tuple[Option, ...]] = (
        Option(name="folder", doc="where the rows go", required=True),
        Option(name="password", doc="nothing asks for it", secret=True),
        Option(name="rowFormat", doc="nothing asks for it"),
    )

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.folder = Path(self.options["folder"])

    @property
    def open(self) -> Path:
        return self.folder / ".open"

    def staged(self, name: str) -> Path:
        return self.open / name

    def final(self, name: str) -> Path:
        return self.folder / name

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        self.open.mkdir(exist_ok=True)
        return {"folder": str(self.folder)}

    def identity(self) -> Mapping[str, str | int]:
        return {"folder": str(self.folder)}

    def begin_transaction(self, context: WriteContext) -> Path:
        name = f"{context.query}.{context.sink}.{uuid.uuid4().hex}"
        at_least = context.guarantee is Guarantee.AT_LEAST_ONCE
        path = self.final(name) if at_least else self.staged(name)
        path.touch(exist_ok=False)
        return path

    def write(self, transaction: Path, batch: pa.RecordBatch) -> Sequence[Refused] | None:
        if not transaction.exists():
            raise WriteFailedError(f"{transaction.name} is gone", next_step="run the epoch again")
        rows = [list(row.values()) for row in batch.to_pylist()]
        refused = [place for place, row in enumerate(rows) if REFUSED in row]
        with transaction.open("r+", encoding="utf-8") as file:
            file.seek(0, os.SEEK_END)
            file.writelines(
                json.dumps(row) + "\n"
                for place, row in enumerate(rows)
                if place not in self.left_out(refused)
            )
        return [Refused(row=place, code="UNWANTED", why="nobody wants it") for place in refused]

    def left_out(self, refused: list[int]) -> list[int]:
        return refused

    def pre_commit(self, transaction: Path) -> Handle | None:
        if transaction.parent != self.open:
            return None
        if not transaction.exists():
            raise WriteFailedError(f"{transaction.name} is gone", next_step="run the epoch again")
        return Handle(transaction=transaction.name)

    def discard(self, transaction: Path) -> None:
        transaction.unlink(missing_ok=True)

    def commit(self, handle: Handle) -> Outcome:
        if not self.open.is_dir():
            raise UnavailableError(f"{self.folder} is away", next_step="mount it")
        try:
            self.staged(handle.transaction).rename(self.final(handle.transaction))
        except FileNotFoundError:
            known = self.final(handle.transaction).exists()
            return AlreadyCommitted() if known else Unknown("neither staged nor committed")
        return Committed()

    def look_up(self, handle: Handle) -> Standing:
        for stands, path in (
            (Stands.OPEN, self.staged(handle.transaction)),
            (Stands.COMMITTED, self.final(handle.transaction)),
        ):
            if path.exists():
                return Standing(stands=stands, told=f"{path} is there")
        return Standing(stands=Stands.GONE, told="no file has its name")

    def abort(self, handle: Handle) -> None:
        self.staged(handle.transaction).unlink(missing_ok=True)

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        found = sorted(path.name for path in self.open.iterdir())
        mine = f"{context.query}.{context.sink}."
        return [Leftover(transaction=name) for name in found if name.startswith(mine)]


class FolderSuite(SinkConformance):
    sink: ClassVar[type[TwoPhaseCommitSink[Any]]] = FolderSink

    def options(self, folder: Path) -> dict[str, str]:
        (folder / "rows").mkdir()
        return {"folder": str(folder / "rows"), "password": SECRET, "rowFormat": "json"}

    def visible(self, options: Mapping[str, str]) -> Iterator[list[Any]]:
        for path in Path(options["folder"]).glob("[!.]*"):
            with contextlib.suppress(FileNotFoundError):
                yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [path.name for path in (Path(options["folder"]) / ".open").glob("*")]

    def refusable(self) -> pa.RecordBatch:
        import pyarrow as pa

        return pa.RecordBatch.from_pydict({"key": ["k", "k"], "value": [REFUSED, REFUSED]})

    @contextlib.contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        folder = Path(options["folder"])
        aside = folder.rename(folder.with_name("aside"))
        yield
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)


BROKEN: list[tuple[type[FolderSuite], str, str]] = []
"""A suite with a broken sink, the test that must fail (with its parameter), and a part of what it must say."""


def breaks(test: str, saying: str) -> Callable[[type[FolderSink]], type[FolderSink]]:
    def register(sink: type[FolderSink]) -> type[FolderSink]:
        name = f"{sink.__name__}Suite"
        suite = globals().get(name)
        if suite is None:
            suite = type(name, (FolderSuite,), {"sink": sink, "__module__": __name__, "__qualname__": name})
            globals()[name] = suite
        BROKEN.append((suite, test, saying))
        return sink

    return register


# --- what is visible when -----------------------------------------------------------------------------------


@breaks("test_nothing_is_visible_before_its_commit", "after pre_commit, rows are invisible")
@breaks("test_at_most_once_a_crash_doubles_nothing[slot.after_prepare]", "no row is there twice")
class ShowsWhenPrepared(FolderSink):
    def pre_commit(self, transaction: Path) -> Handle | None:
        handle = super().pre_commit(transaction)
        if handle is not None:
            transaction.rename(self.final(transaction.name))
        return handle


@breaks("test_a_run_that_was_paused_and_overtaken_writes_nothing_late[link.before_put]", "is not decided")
@breaks("test_a_crash_at_any_point_loses_and_doubles_nothing[link.during_put-1]", "is not decided")
class ShowsAndHides(FolderSink):
    """In the end, all is well: only who looks meanwhile sees it."""

    def pre_commit(self, transaction: Path) -> Handle | None:
        handle = super().pre_commit(transaction)
        os.link(transaction, self.final(transaction.name))
        return handle

    def commit(self, handle: Handle) -> Outcome:
        self.staged(handle.transaction).unlink(missing_ok=True)
        known = self.final(handle.transaction).exists()
        return AlreadyCommitted() if known else Unknown("neither staged nor committed")

    def abort(self, handle: Handle) -> None:
        if self.staged(handle.transaction).exists():
            self.final(handle.transaction).unlink(missing_ok=True)
        super().abort(handle)


class CopiesAtEachCommit(FolderSink):
    def commit(self, handle: Handle) -> Outcome:
        if super().commit(handle) == AlreadyCommitted():
            shutil.copy(self.final(handle.transaction), self.final(uuid.uuid4().hex))
        return Committed()


for _test in (
    "test_a_second_commit_doubles_nothing",
    "test_a_crash_at_any_point_loses_and_doubles_nothing[commit.after_handle-1]",
    "test_a_crash_in_the_recovery_loses_and_doubles_nothing[link.after_put]",
    "test_a_run_that_was_paused_and_overtaken_writes_nothing_late[link.after_put]",
    "test_a_crash_between_two_sinks_under_one_decision_loses_and_doubles_nothing[commit.after_handle-first]",
):
    breaks(_test, "too often")(CopiesAtEachCommit)


@breaks("test_a_commit_from_many_threads_at_a_time_doubles_nothing", "too often")
class LooksThenActs(FolderSink):
    def commit(self, handle: Handle) -> Outcome:
        staged = self.staged(handle.transaction)
        if not staged.exists():
            return AlreadyCommitted() if self.final(handle.transaction).exists() else Unknown("gone")
        rows = staged.read_text(encoding="utf-8")
        time.sleep(0.05)
        name = handle.transaction if not self.final(handle.transaction).exists() else uuid.uuid4().hex
        self.final(name).write_text(rows, encoding="utf-8")
        staged.unlink(missing_ok=True)
        return Committed()


@breaks("test_different_handles_are_committed_from_many_threads_at_a_time", "missing")
class SharesAVariable(FolderSink):
    def commit(self, handle: Handle) -> Outcome:
        self.current = handle
        time.sleep(0.05)
        super().commit(self.current)
        return Committed()


@breaks("test_many_commits_at_once_have_each_its_own_outcome", "in the order of the handles")
class AnswersInAnotherOrder(FolderSink):
    def commit_many(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        return [self.commit(handle) for handle in handles][::-1]


@breaks("test_refused_rows_are_given_back_and_no_others", "given back are not visible")
class WritesWhatItGivesBack(FolderSink):
    def left_out(self, refused: list[int]) -> list[int]:
        return []


@breaks("test_an_abort_removes_all_and_may_be_repeated", "leaves nothing open")
@breaks("test_a_sweep_removes_what_is_open_and_spares_what_is_committed_or_kept", "never committed")
@breaks("test_an_attempt_that_was_paused_between_pre_commit_and_vote_writes_nothing_late", "fenced")
@breaks("test_an_epoch_in_doubt_is_ended_by_hand_or_by_a_start[abort]", "aborted by hand")
class AbortsNothing(FolderSink):
    def abort(self, handle: Handle) -> None:
        pass


@breaks("test_a_commit_after_an_abort_is_lost_or_unknown_and_shows_nothing", "answered Committed")
@breaks("test_an_unknown_handle_is_not_committed_and_its_abort_does_no_harm", "answered Committed")
class CommitsWhateverItIsAsked(FolderSink):
    def commit(self, handle: Handle) -> Outcome:
        super().commit(handle)
        return Committed()


@breaks("test_an_abort_after_a_commit_takes_nothing_away", "missing")
class AbortsWhatIsCommitted(FolderSink):
    def abort(self, handle: Handle) -> None:
        super().abort(handle)
        self.final(handle.transaction).unlink(missing_ok=True)


@breaks("test_of_two_attempts_at_one_slot_only_the_one_that_is_voted_shows", "names of their own")
class NamesTheSlot(FolderSink):
    def begin_transaction(self, context: WriteContext) -> Path:
        path = self.staged(f"{context.query}.{context.sink}.{context.epoch}.{context.slot}")
        path.touch()
        return path


@breaks("test_a_handle_outlives_its_process", "any process can commit")
class KeepsRowsInMemory(FolderSink):
    rows: ClassVar[dict[str, str]] = {}

    def pre_commit(self, transaction: Path) -> Handle | None:
        handle = super().pre_commit(transaction)
        self.rows[transaction.name] = transaction.read_text(encoding="utf-8")
        transaction.unlink()
        return handle

    def commit(self, handle: Handle) -> Outcome:
        if handle.transaction in self.rows:
            self.staged(handle.transaction).write_text(self.rows.pop(handle.transaction), encoding="utf-8")
        return super().commit(handle)


@breaks("test_complete_may_be_called_again", "complete, repeated")
class CompletesByAppending(FolderSink):
    def complete(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        self.final(uuid.uuid4().hex).write_text('["complete", "epoch"]\n', encoding="utf-8")


@breaks("test_what_is_discarded_shows_nothing_and_leaves_nothing", "discarded is invisible")
@breaks("test_an_attempt_that_fails_is_run_again_and_leaves_nothing[slot.during_write]", "too often")
class ShowsWhatIsDiscarded(FolderSink):
    def discard(self, transaction: Path) -> None:
        transaction.rename(self.final(transaction.name))


@breaks("test_an_epoch_with_empty_slots_and_one_without_rows_are_decided", "missing")
@breaks("test_a_query_without_a_crash_is_as_good", "missing")
class ForgetsTheLastSlot(FolderSink):
    def begin_transaction(self, context: WriteContext) -> Path:
        return super().begin_transaction(context) if context.slot != 1 else Path(os.devnull)

    def write(self, transaction: Path, batch: pa.RecordBatch) -> None:
        if transaction != Path(os.devnull):
            super().write(transaction, batch)

    def pre_commit(self, transaction: Path) -> Handle | None:
        if transaction != Path(os.devnull):
            return super().pre_commit(transaction)
        return Handle(transaction="nothing")

    def commit(self, handle: Handle) -> Outcome:
        return Committed() if handle.transaction == "nothing" else super().commit(handle)


@breaks("test_a_transaction_takes_a_large_batch_and_many_batches", "missing")
@breaks("test_values_come_out_as_they_went_in[texts]", "missing")
class CutsAndStrips(FolderSink):
    def write(self, transaction: Path, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        rows = [{name: value.strip() for name, value in row.items()} for row in batch.to_pylist()]
        super().write(transaction, pa.RecordBatch.from_pylist(rows[:4096]))


# --- what is left -------------------------------------------------------------------------------------------


@breaks("test_recover_lists_what_is_open_and_not_what_has_ended", "missing")
class ListsOnlyOne(FolderSink):
    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        return list(super().recover(context))[:1]


@breaks("test_recover_lists_nothing_of_another_query_or_sink", "wrongly listed")
class ListsForeign(FolderSink):
    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        return [Leftover(transaction=path.name) for path in self.open.iterdir() if context.query in path.name]


@breaks("test_what_recover_lists_is_aborted_by_another_process_by_its_data_alone", "are left")
class AbortsItsOwnOnly(FolderSink):
    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        self.listed = list(super().recover(context))
        return self.listed

    def abort(self, handle: Handle) -> None:
        if handle.transaction in [each.transaction for each in getattr(self, "listed", ())]:
            super().abort(handle)


@breaks(
    "test_recover_raises_rather_than_give_a_part_while_the_target_is_out_of_reach", "raises where it cannot"
)
class GivesAPart(FolderSink):
    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        return super().recover(context) if self.open.is_dir() else ()


@breaks("test_recover_raises_rather_than_give_a_part_while_the_target_is_out_of_reach", "in doubt")
class TakesAwayForLost(FolderSink):
    def commit(self, handle: Handle) -> Outcome:
        return super().commit(handle) if self.open.is_dir() else Lost("it is not there")


@breaks(
    "test_an_attempt_that_was_paused_while_its_epoch_was_swept_writes_nothing_late[while it writes]", "fenced"
)
@breaks("test_a_run_that_was_paused_and_overtaken_writes_nothing_late[slot.before_prepare]", "too often")
class WritesLate(FolderSink):
    def write(self, transaction: Path, batch: pa.RecordBatch) -> None:
        if not transaction.exists():
            transaction = self.final(transaction.name)
            transaction.touch()
        super().write(transaction, batch)

    def pre_commit(self, transaction: Path) -> Handle | None:
        if not transaction.exists():
            self.final(transaction.name).write_text('["k0", "row 0"]\n', encoding="utf-8")
        return Handle(transaction=transaction.name)


@breaks("test_a_writer_that_dies_alone_is_replaced[slot.before_prepare]", "left open")
class ListsWhatIsPreparedOnly(FolderSink):
    def pre_commit(self, transaction: Path) -> Handle | None:
        transaction = transaction.rename(transaction.with_name(transaction.name + "p"))
        return super().pre_commit(transaction)

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        return [each for each in super().recover(context) if each.transaction.endswith("p")]


# --- what it says -------------------------------------------------------------------------------------------


@breaks("test_a_wrong_option_is_a_configuration_error_that_names_it", "unknown option")
class TakesAnyOption(FolderSink):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(
            {name: options[name] for name in ("folder", "password", "rowformat") if name in options}
        )


@breaks("test_options_are_taken_in_lower_case_too", "lower case")
class TakesItsOwnCaseOnly(FolderSink):
    def __init__(self, options: Mapping[str, str]) -> None:
        if "rowformat" in options:
            raise ConfigurationError("knows no rowformat", next_step="write rowFormat")
        super().__init__(options)


@breaks("test_making_and_closing_a_sink_changes_nothing", "writes no row")
class WritesWhenMade(FolderSink):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.final(uuid.uuid4().hex).write_text('["made", "a sink"]\n', encoding="utf-8")


@breaks("test_check_and_identity_give_plain_facts_that_stay", "texts and whole numbers")
class ChecksAPath(FolderSink):
    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        super().check(context)
        return {"folder": self.folder}  # type: ignore[dict-item]  # that is what is wrong


@breaks("test_what_travels_between_processes_holds_no_sink", "hold values only")
class PutsItselfIntoTheHandle(FolderSink):
    def pre_commit(self, transaction: Path) -> Handle | None:
        return Handle(transaction=transaction.name, data={"sink": self})  # type: ignore[dict-item]  # as above


@breaks("test_a_secret_is_shown_nowhere", "the handle")
class SecretInTheHandle(FolderSink):
    def pre_commit(self, transaction: Path) -> Handle | None:
        return Handle(transaction=transaction.name, data={"url": f"user:{self.options['password']!s}"})


@breaks("test_a_secret_is_shown_nowhere", "identity")
class SecretInTheIdentity(FolderSink):
    def identity(self) -> Mapping[str, str | int]:
        return {"url": f"user:{self.options['password']!s}"}


@breaks("test_a_secret_is_shown_nowhere", "a log message")
class SecretInTheLog(FolderSink):
    def commit(self, handle: Handle) -> Outcome:
        logging.getLogger("folder").warning("as %s", str(self.options["password"]))
        return super().commit(handle)


@breaks("test_a_secret_is_shown_nowhere", "repr of the sink")
class SecretInTheRepr(FolderSink):
    def __repr__(self) -> str:
        return f"FolderSink({str(self.options['password'])})"  # noqa: RUF010  a Secret shows itself by str only


@breaks("test_a_look_up_tells_where_a_transaction_stands_and_changes_nothing", "what is prepared is open")
class TakesOpenForCommitted(FolderSink):
    def look_up(self, handle: Handle) -> Standing:
        return Standing(stands=Stands.COMMITTED, told="it must be there")


@breaks("test_a_look_up_tells_where_a_transaction_stands_and_changes_nothing", "what is prepared is open")
class LooksByCommitting(FolderSink):
    def look_up(self, handle: Handle) -> Standing:
        found = super().look_up(handle)
        self.commit(handle)
        return found


@breaks("test_a_look_up_tells_where_a_transaction_stands_and_changes_nothing", "what is aborted is gone")
class TakesAbortedForOpen(FolderSink):
    def look_up(self, handle: Handle) -> Standing:
        found = super().look_up(handle)
        return Standing(stands=Stands.OPEN, told="it waits") if found.stands is Stands.GONE else found


@breaks("test_an_epoch_in_doubt_is_ended_by_hand_or_by_a_start[commit]", "missing")
@breaks("test_an_epoch_in_doubt_is_ended_by_hand_or_by_a_start[start]", "missing")
class CommitsByWord(FolderSink):
    def commit(self, handle: Handle) -> Outcome:
        return Committed()


# --- less than exactly once ---------------------------------------------------------------------------------


@breaks("test_at_least_once_every_row_is_visible_when_its_epoch_is_decided", "missing")
@breaks("test_at_least_once_a_crash_loses_nothing[slot.during_write]", "missing")
class BuffersAndForgets(FolderSink):
    def write(self, transaction: Path, batch: pa.RecordBatch) -> None:
        if transaction.parent != self.folder or not transaction.stat().st_size:
            super().write(transaction, batch)
