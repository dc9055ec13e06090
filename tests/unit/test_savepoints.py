"""Savepoints by the command line: a checkpoint whose Spark files are by hand, and its log by the log's own code."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from tests.unit.operator_bench import QueryCoordinator, run

from onceonly import savepoints
from onceonly.jars.installed import Spark
from onceonly.log.place import log_store
from onceonly.log.runs import Run, RunFiles
from onceonly.model import Receipt, Stamp
from onceonly.savepoints import cutting, making, place, report
from onceonly.savepoints.copying import Copier
from onceonly.stores.folder import LocalStore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def query(tmp_path: Path) -> QueryCoordinator:
    made = QueryCoordinator(tmp_path / "query")
    made.complete(0, 1, 2, 3)
    return made


def put(query: QueryCoordinator, name: str, data: bytes = b"state") -> None:
    path = query.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_savepoint_is_of_the_newest_complete_epoch_and_holds_nothing_above_it(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    query.decide(4)
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    assert (made.epoch, made.query, made.barrier) == (3, query.query, (query.barrier(3),))
    assert made.sinks[0].transactions == ("t3-0", "t3-1")
    assert dict(made.sinks[0].outcomes) == {"committed": 2}
    there = names(tmp_path / "place" / made.name / "files")
    assert there == {each.name for each in made.files}
    assert {"offsets/3", "commits/3", "metadata", "onceonly/identity.json"} <= there
    assert not {name for name in there if "4" in name.rpartition("/")[2]}


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        ({"committed": 3}, {"box": {"committed": 2}, "other": {"committed": 2}}),
        (
            {"already_committed": 3},
            {"box": {"already_committed": 2}, "other": {"already_committed": 1, "committed": 1}},
        ),
        # Which of them was committed before is not in the receipt.
        (
            {"committed": 2, "already_committed": 1},
            {"box": {"settled": 2}, "other": {"settled": 1, "committed": 1}},
        ),
    ],
)
def test_the_outcomes_of_several_sinks_are_told_by_sink(
    query: QueryCoordinator, tmp_path: Path, outcomes: dict[str, int], told: dict[str, dict[str, int]]
) -> None:
    query.set_barrier(4)
    link = query.link(4, votes=[query.vote(4), query.vote(4, 1), replace(query.vote(4, 2), sink="other")])
    before = replace(query.vote(4, 3), sink="other")
    query.log.put_link(replace(link, carried=(before,), settings={"box": {}, "other": {}, "idle": {}}))
    query.log.put_receipt(Receipt(epoch=4, index=0, plan="p", outcomes=outcomes))
    query.note(4)
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    assert {each.sink: dict(each.outcomes) for each in made.sinks} == {**told, "idle": {}}


def test_the_version_of_spark_is_that_of_the_job_and_not_of_who_makes_it(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "installed", lambda: Spark(version="9.9.9", scala="2.13"))
    made = run("savepoint", "create", query.path, tmp_path / "unknown", "--json")
    assert json.loads(made.stdout)["spark"] is None
    shown = run("savepoint", "show", tmp_path / "unknown").stdout
    assert [line.split() for line in shown.splitlines() if "Spark" in line] == [["Spark", "unknown"]]
    runs = RunFiles(log_store(str(query.path)))
    runs.put(Run(run="r", began=Stamp(at="2026-01-02T03:04:05.678Z"), spark="4.1.1"))
    runs.put(Run(run="later-r", began=Stamp(at="2026-01-03T03:04:05.678Z"), spark="4.2.0"))
    made = run("savepoint", "create", query.path, tmp_path / "known", "--json")
    assert json.loads(made.stdout)["spark"] == "4.1.1"
    # The process that makes one by itself is of the job.
    runs.put(Run(run="r", began=Stamp(at="2026-01-02T03:04:05.678Z")))
    assert savepoints.create(str(query.path), str(tmp_path / "own"), by_itself=True).spark == "9.9.9"


def test_an_epoch_that_is_asked_for_and_out_of_reach_is_told_with_the_range(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    (query.path / "offsets" / "0").unlink()
    (query.path / "commits" / "0").unlink()
    assert run("savepoint", "create", query.path, tmp_path / "place", "--epoch", "chk-2").returncode == 0
    for epoch in (0, 1, 4):
        refused = run("savepoint", "create", query.path, tmp_path / "place", "--epoch", f"{epoch}")
        assert refused.returncode == 64
        assert "from 2 to 3" in refused.stderr
    assert len(place.standing(str(tmp_path / "place"))) == 1


def test_what_a_savepoint_says_of_itself_is_shown(query: QueryCoordinator, tmp_path: Path) -> None:
    made = run("savepoint", "create", query.path, tmp_path / "place", "--json")
    told = json.loads(made.stdout)
    assert (told["epoch"], told["query"], told["files"] > 0) == (3, query.query, True)
    (row,) = json.loads(run("savepoint", "list", tmp_path / "place", "--json").stdout)["savepoints"]
    assert row == {key: told[key] for key in row}
    assert json.loads(run("savepoint", "show", tmp_path / "place", "--json").stdout) == told
    shown = run("savepoint", "show", told["path"]).stdout
    assert all(word in shown for word in ("chk-3", query.query, "2 committed", "events"))
    assert told["name"] in run("savepoint", "list", tmp_path / "place").stdout


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_one_flipped_byte_is_found(query: QueryCoordinator, tmp_path: Path, damage: str) -> None:
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    assert run("savepoint", "verify", tmp_path / "place").returncode == 0
    path = tmp_path / "place" / made.name / "files" / "onceonly" / "identity.json"
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(data[:-1] + (bytes([data[-1] ^ 1]) if damage == "flip" else b""))
    found = run("savepoint", "verify", tmp_path / "place")
    assert found.returncode == 1
    assert "identity.json" in found.stdout


def test_a_damaged_manifest_is_refused(query: QueryCoordinator, tmp_path: Path) -> None:
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    path = tmp_path / "place" / made.name / "savepoint.json"
    path.write_bytes(path.read_bytes().replace(b'"epoch":3', b'"epoch":2'))
    assert run("savepoint", "verify", tmp_path / "place").returncode == 2
    shown = run("savepoint", "show", path.parent)
    assert (shown.returncode, "is damaged" in shown.stderr, "Traceback" in shown.stderr) == (2, True, False)


def test_one_that_is_damaged_is_named_hides_no_other_and_can_be_dropped(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    made, other = (savepoints.create(str(query.path), str(tmp_path / "place")) for _ in range(2))
    path = tmp_path / "place" / made.name / "savepoint.json"
    path.write_bytes(path.read_bytes()[:-9])
    listed = run("savepoint", "list", tmp_path / "place", "--json")
    assert listed.returncode == 1
    assert [each["name"] for each in json.loads(listed.stdout)["savepoints"]] == [other.name]
    assert f"{path.parent} is not whole: {path}" in listed.stderr
    verified = run("savepoint", "verify", tmp_path / "place")
    assert (verified.returncode, f"{other.name}: whole" in verified.stdout) == (2, True)
    assert run("savepoint", "drop", path.parent, "--yes").returncode == 0
    assert run("savepoint", "verify", tmp_path / "place").returncode == 0


def test_what_no_calendar_has_and_names_like_styles_are_shown_as_they_are(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    (query.path / "commits" / "3").write_text(
        'v1\n{"nextBatchWatermarkMs":1704067200000000}', encoding="utf-8"
    )
    at = tmp_path / "[bold] a [/x] place"
    savepoints.create(str(query.path), str(at))
    shown = run("savepoint", "show", at)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert str(at) in shown.stdout
    assert "1704067200000000 ms since 1970" in shown.stdout


def test_what_is_dropped_are_its_own_files(query: QueryCoordinator, tmp_path: Path) -> None:
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    other = savepoints.create(str(query.path), str(tmp_path / "place"))
    folder = tmp_path / "place" / made.name
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    assert run("savepoint", "drop", tmp_path / "place", "--yes").returncode == 64
    dropped = run("savepoint", "drop", folder, "--yes")
    assert dropped.returncode == 0
    assert "notes.txt" in dropped.stderr
    assert names(folder) == {"notes.txt"}
    assert [each.name for each in place.standing(str(tmp_path / "place"))] == [other.name]
    assert run("savepoint", "verify", tmp_path / "place").returncode == 0


def test_the_original_is_untouched_and_its_state_is_linked(query: QueryCoordinator, tmp_path: Path) -> None:
    put(query, "state/0/0/4.snapshot")
    before = {name: (query.path / name).read_bytes() for name in names(query.path)}
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    assert {name: (query.path / name).read_bytes() for name in names(query.path)} == before
    copy = tmp_path / "place" / made.name / "files" / "state" / "0" / "0" / "4.snapshot"
    assert copy.samefile(query.path / "state" / "0" / "0" / "4.snapshot")


def test_a_file_that_is_taken_away_meanwhile_is_no_failure(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(1, 5):
        put(query, f"state/0/0/{version}.delta")
    find = cutting.find_cut
    tries: list[int] = []

    def busy(checkpoint: str, epoch: int | None) -> cutting.Cut:
        cut = find(checkpoint, epoch)
        if not tries:
            # The query goes on, and takes away what it no longer needs.
            query.complete(4)
            put(query, "state/0/0/5.snapshot")
            for version in range(1, 4):
                (query.path / f"state/0/0/{version}.delta").unlink()
        tries.append(cut.epoch)
        return cut

    monkeypatch.setattr("onceonly.savepoints.making.find_cut", busy)
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    assert (tries, made.epoch) == ([3, 4], 4)
    (standing,) = place.standing(str(tmp_path / "place"))
    assert standing.name == made.name
    assert set(LocalStore(tmp_path / "place" / made.name / "files").tree("")) == {
        each.name for each in made.files
    }


def test_a_name_is_whole_however_narrow_the_terminal_is(query: QueryCoordinator, tmp_path: Path) -> None:
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    console = Console(width=60, file=io.StringIO(), record=True)
    console.print(*report.table(place.standing(str(tmp_path / "place"))))
    firsts = [line.partition(" ")[0] for line in console.export_text().splitlines()]
    assert made.name in "".join(firsts)


TORN = (b"", b"\0" * 40, b"\xff\xfe")
INSIDE = (b'v1\n{"nextBatch', b"v1\n[1]")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *((name, data) for name in ("offsets/3", "commits/3") for data in (*TORN, *INSIDE)),
        *(("offsets/2", data) for data in TORN),
    ],
)
def test_what_a_loss_of_power_has_torn_is_in_no_savepoint(
    query: QueryCoordinator, tmp_path: Path, name: str, data: bytes
) -> None:
    (query.path / name).write_bytes(data)
    made = run("savepoint", "create", query.path, tmp_path / "place", "--json")
    assert (made.returncode, json.loads(made.stdout)["epoch"]) == (0, 1 if name == "offsets/2" else 2)
    refused = run("savepoint", "create", query.path, tmp_path / "place", "--epoch", "chk-3")
    assert (refused.returncode, "no savepoint can be made of chk-3" in refused.stderr) == (64, True)
    assert "name one from 0 to " in refused.stderr


def test_who_interrupts_it_is_not_told_that_nothing_is_left(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object, **_more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Copier, "copy_all", interrupted)
        done = run("savepoint", "create", query.path, tmp_path / "place")
    assert (done.returncode, "cleaned up" in done.stderr, "command again" in done.stderr) == (
        130,
        False,
        True,
    )
    (left,) = place.standing(str(tmp_path / "place"))
    assert left.savepoint is None
    assert run("savepoint", "create", query.path, tmp_path / "place").returncode == 0


def test_a_place_without_savepoints_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for verb in ("list", "show", "verify"):
        for name, told in (("nowhere", "there is no folder"), ("empty", "there is no savepoint in")):
            done = run("savepoint", verb, tmp_path / name)
            assert (done.returncode, done.stdout) == (64, "")
            assert f"{told} {tmp_path / name}" in done.stderr


def test_without_its_manifest_a_savepoint_is_not_there(query: QueryCoordinator, tmp_path: Path) -> None:
    made = savepoints.create(str(query.path), str(tmp_path / "place"))
    folder = tmp_path / "place" / made.name
    (folder / "savepoint.json").unlink()
    listed = run("savepoint", "list", tmp_path / "place")
    assert (listed.returncode, listed.stdout) == (1, "")
    assert "not whole" in listed.stderr
    assert run("savepoint", "show", tmp_path / "place").returncode == 64
    assert run("savepoint", "drop", folder, "--yes").returncode == 0
    assert not folder.exists()


def test_a_folder_without_a_decision_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    assert run("savepoint", "create", tmp_path, tmp_path / "place").returncode == 64
