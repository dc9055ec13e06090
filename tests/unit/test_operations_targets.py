"""A query's targets, as the operator reaches them: never another one than the log names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest
from tests.unit.files_bench import Files, rows
from tests.unit.operator_bench import QUERY, BoxSink, QueryCoordinator, run

from onceonly.cli import shared
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import UnavailableError
from onceonly.model import Guarantee, Mode, SinkUse, Unknown, Vote
from onceonly.operations import sinks
from onceonly.operations.find import open_checkpoint
from onceonly.operations.given import Given
from onceonly.options import Option
from onceonly.sinks.files.prepared import Prepared

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.model import Handle


class UnreachableSink(BoxSink):
    """A sink that must connect to name its target, and cannot."""

    def identity(self) -> dict[str, str | int]:
        message = "nobody answers"
        raise ConnectionError(message)


class PathSink(BoxSink):
    """Another sink that knows an option ``path``."""

    declared: ClassVar[tuple[Option, ...]] = (Option(name="path", doc="anything"),)


@pytest.fixture
def coordinator(tmp_path: Path) -> QueryCoordinator:
    """Leave what a killed job leaves: an epoch of the file sink, decided."""
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.set_barrier(0)
    coordinator.log.put_link(
        replace(
            coordinator.link(0),
            settings={"files": {"path": str(tmp_path / "out"), "format": "parquet"}},
            uses={"files": SinkUse(sink="files", options={"path": str(tmp_path / "out")})},
        )
    )
    return coordinator


def files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.name != "alive"}


@pytest.mark.parametrize(
    "command", [["list", "--ask"], ["commit", "chk-0", "--yes", "--force"]], ids=" ".join
)
def test_another_target_than_the_logs_is_refused_and_nothing_is_changed(
    coordinator: QueryCoordinator, tmp_path: Path, command: list[str]
) -> None:
    before = files(tmp_path)
    told = run("transactions", *command, coordinator.path, "--option", f"files:path={tmp_path}/wrong")
    assert told.returncode == 64
    assert f"path is '{tmp_path}/wrong'" in told.stderr
    assert f"and was '{tmp_path}/out'" in told.stderr
    assert "format" not in told.stderr
    assert "correct the option path" in told.stderr
    assert "nothing was open" not in told.stdout
    assert files(tmp_path) == before


def test_a_target_that_changed_without_an_option_is_refused(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    told = run("transactions", "commit", "chk-0", coordinator.path, "--yes")
    assert told.returncode == 64
    assert f"path is '{tmp_path}/elsewhere'" in told.stderr
    assert "no option given here changes it" in told.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


def settle(coordinator: QueryCoordinator) -> None:
    (link,) = coordinator.log.chain(0)
    coordinator.settle(link)


def test_a_target_that_changed_while_nothing_was_pending_is_gone_on_with_as_by_the_query(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    settle(coordinator)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    coordinator.set_barrier(1)
    told = run("transactions", "abort", "chk-1", coordinator.path, "--yes")
    assert (told.returncode, told.stderr.count("error:")) == (0, 0)
    assert f"path was '{tmp_path}/out' and is '{tmp_path}/elsewhere'" in told.stderr


def test_an_option_that_leads_elsewhere_is_refused_where_nothing_is_pending_too(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    settle(coordinator)
    told = run("transactions", "list", "--ask", coordinator.path, "--option", f"files:path={tmp_path}/wrong")
    assert told.returncode == 64
    assert f"path is '{tmp_path}/wrong'" in told.stderr


def test_another_class_than_the_logs_is_refused(coordinator: QueryCoordinator) -> None:
    told = run(
        "transactions",
        "commit",
        "chk-0",
        coordinator.path,
        "--yes",
        "--sink",
        "files=test_operations_targets:PathSink",
    )
    assert told.returncode == 64
    assert "path is not known, and was" in told.stderr
    assert "correct --sink files=test_operations_targets:PathSink" in told.stderr
    assert coordinator.log.receipt(0) is None


def test_the_target_that_the_log_names_is_served(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    told = run(
        "transactions", "commit", "chk-0", coordinator.path, "--yes", "--option", f"path={tmp_path}/./out"
    )
    assert (told.returncode, told.stderr.count("error:")) == (0, 0)
    assert coordinator.log.receipt(0) is not None


def test_a_target_that_cannot_be_named_is_not_served(coordinator: QueryCoordinator) -> None:
    checkpoint = open_checkpoint(coordinator.path)
    given = Given(classes={"files": f"{__name__}:UnreachableSink"}, by_sink={"files": {"folder": "x"}})
    made = {"files": Participant(sink=UnreachableSink({"folder": "x"}), guarantee=Guarantee.EXACTLY_ONCE)}
    with pytest.raises(
        UnavailableError, match=r"the sink files of query .* could not be asked: .*nobody answers"
    ):
        sinks.refuse_other_target(checkpoint, given, made)


def test_no_code_is_run_because_a_checkpoint_names_it(tmp_path: Path) -> None:
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.decide(0)
    for command in (["list", "--ask"], ["commit", "chk-0", "--yes"]):
        told = run("transactions", *command, coordinator.path, SILENT="1")
        assert told.returncode == shared.EXIT_USAGE
        assert "no code is run because a file names it" in told.stderr
        assert "--sink box=" in told.stderr, "the next step can be copied"
    assert coordinator.seen() == ["t0-0.open", "t0-1.open"]


def test_a_secret_goes_nowhere_that_only_the_checkpoint_names_unless_the_operator_agrees(
    tmp_path: Path,
) -> None:
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.complete(0)
    secret = ("--option", "password=sesame")
    told = run("transactions", "list", "--ask", coordinator.path, *secret)
    assert told.returncode == shared.EXIT_USAGE
    assert f"password will be used with what the checkpoint says: folder={coordinator.box}" in told.stderr
    assert "sesame" not in told.stderr + told.stdout
    assert run("transactions", "list", "--ask", coordinator.path, *secret, "--yes").returncode == 0
    mine = ("--option", f"folder={coordinator.box}")
    assert run("transactions", "list", "--ask", coordinator.path, *secret, *mine).returncode == 0, (
        "who names it knows it"
    )


def test_files_that_were_given_up_by_hand_are_written_again_and_none_twice(tmp_path: Path) -> None:
    """A temporary file of a decided epoch is removed, another part of the epoch is committed."""

    def vote(slot: int, handle: Handle, plan: str = "p") -> Vote:
        return Vote(
            sink="files", epoch=0, slot=slot, plan=plan, run="r", attempt="1", rows=1, checksum=f"{slot:016}",
            handle=handle,
        )  # fmt: skip

    bench = Files(tmp_path / "out", query=QUERY)
    whole, hurt = (bench.prepared(rows(slot + 1), slot=slot) for slot in (0, 1))
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.set_barrier(0)
    coordinator.log.put_link(
        replace(
            coordinator.link(0, votes=(vote(0, whole), vote(1, hurt))),
            settings={"files": bench.sink().identity()},
            uses={
                "files": SinkUse(
                    sink="files",
                    options={"path": str(bench.target), "partitionby": "day"},
                    columns=bench.columns,
                )
            },
        )
    )
    (removed,) = Prepared.of(hurt).staging.iterdir()
    removed.unlink()
    told = run("transactions", "commit", "chk-0", coordinator.path, "--yes")
    assert (told.returncode, "nor its temporary file" in told.stderr) == (1, True)
    shown = run("transactions", "explain", hurt.transaction, coordinator.path, "--json").stdout
    assert f"but neither {bench.finals(hurt)[0]}" in shown
    done = run(
        "transactions", "abort", "chk-0", coordinator.path, "--yes", "--against-decision", "--because", "x"
    )
    assert done.returncode == 0, done.stderr

    for _ in range(2):  # a start that is killed at once, and the next one
        start = Coordinator(log=coordinator.log, actor="driver")
        start.join("files", Participant(sink=bench.sink(), guarantee=Guarantee.EXACTLY_ONCE))
        plan = start.plan(0, barrier=(coordinator.barrier(0),), run="next")
        assert (plan.mode, [lost.handle for lost in plan.lost]) == (Mode.TENTATIVE, [hurt])
    assert isinstance(bench.sink().commit(hurt), Unknown), "an older driver publishes nothing of it"
    again = [bench.prepared(rows(slot + 1), slot=slot) for slot in (0, 1)]
    start.decide(plan, [vote(slot, handle, plan.id) for slot, handle in enumerate(again)])
    assert bench.ids() == [1, 2]
    assert coordinator.log.receipt(0) is not None
