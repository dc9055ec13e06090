"""Savepoints where others act meanwhile, or the command was broken off before: nothing is lost, and words are true."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit import s3_double
from tests.unit.killed_bench import SINK as FILES
from tests.unit.killed_bench import SLOTS, Stage
from tests.unit.operator_bench import QUERY, QueryCoordinator, broken_off_before_its_claim, run
from tests.unit.store_bench import at_home, serving
from tests.unit.test_savepoints_withdraw import Job

from onceonly import savepoints
from onceonly.coordinator.query import QueryCoordinator as Planner
from onceonly.errors import CheckpointMovedError, ConfigurationError, TargetBehindError, UnavailableError
from onceonly.log import open_log
from onceonly.log.actions import ActionFiles
from onceonly.log.place import log_store
from onceonly.operations import withdrawing
from onceonly.ports import BATCH
from onceonly.savepoints import making
from onceonly.savepoints import place as places
from onceonly.savepoints.copying import Copier
from onceonly.settings.query import QuerySettings
from onceonly.settings.savepoints import Keeping
from onceonly.stores.opened import address_of, open_store
from onceonly.stores.port import put_once
from onceonly_proof.conformance.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.unit.operator_bench import Ran

    from onceonly.log.actions import Withdrawn
    from onceonly.model import Link
    from onceonly.operations.former import After
    from onceonly.operations.given import Given
    from onceonly.savepoints.manifest import File, Savepoint
    from onceonly.stores.address import Address
    from onceonly.stores.port import Store

GIVES = "box=operator_bench:GivingBoxSink"
OTHER = "99999999-2222-3333-4444-555555555555"


@pytest.fixture
def query(tmp_path: Path) -> QueryCoordinator:
    """A query of three epochs, with a savepoint of the first and one of the last."""
    made = QueryCoordinator(tmp_path / "query")
    made.complete(0)
    savepoints.create(str(made.path), str(tmp_path / "early"))
    made.complete(1, 2)
    savepoints.create(str(made.path), str(tmp_path / "late"))
    return made


def restore(place: Path, to: Path, *more: str, **env: str) -> Ran:
    return run("savepoint", "restore", place, "--to", to, "--yes", "--sink", GIVES, *more, **env)


def broken_off(tmp_path: Path) -> None:
    """Take back what was decided after the early savepoint, and be killed before there is a checkpoint."""
    done = restore(
        tmp_path / "early", tmp_path / "to", "--output", "withdraw",
        ONCEONLY_FAILPOINTS="savepoint.before_id=kill",
    )  # fmt: skip
    assert done.returncode == -9


# --- what was taken back by a command that was broken off -------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--output", "again"), ("--output", "withdraw")])
@pytest.mark.parametrize("is_left", [True, False])
def test_where_taking_back_was_broken_off_no_later_savepoint_is_gone_on_from(
    query: QueryCoordinator, tmp_path: Path, more: tuple[str, ...], *, is_left: bool
) -> None:
    broken_off(tmp_path)
    assert query.seen() == ["t0-0.done", "t0-1.done"]
    if not is_left:
        shutil.rmtree(tmp_path / "to")
    done = restore(tmp_path / "late", tmp_path / "other", *more)
    assert (done.returncode, (tmp_path / "other").exists()) == (64, False)
    assert "rows up to chk-2 of the savepoint chk-2-" in done.stderr
    assert "withdrawn from sink box: 4 files with 12 rows of chk-1 to chk-2" in done.stderr
    if is_left:
        assert restore(tmp_path / "early", tmp_path / "to", "--output", "withdraw").returncode == 0
        assert open_log(str(tmp_path / "to"), query=QUERY, create=True).newest() == 0


def test_where_taking_back_was_broken_off_nobody_goes_on_where_the_query_was_without_being_told(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    broken_off(tmp_path)
    with pytest.raises(CheckpointMovedError, match="first type it again as it was typed"):
        open_log(str(query.path), query=QUERY, create=True)
    for is_gone in (False, True):
        if is_gone:
            shutil.rmtree(tmp_path / "to")
        refused = run("checkpoints", "accept-move", query.path, "--yes")
        assert refused.returncode == 1
        assert "a start here would go on without these rows" in refused.stderr
        assert f"savepoint create {query.path} PLACE --epoch chk-0" in refused.stderr
    # What it says to type brings all rows.
    assert run("savepoint", "create", query.path, tmp_path / "again", "--epoch", "chk-0").returncode == 0
    done = restore(tmp_path / "again", tmp_path / "third", "--output", "again")
    assert done.returncode == 0, done.stderr
    # And who goes on all the same is told what is lacking, then and at the start.
    done = run("checkpoints", "accept-move", query.path, "--yes", "--force")
    assert done.returncode == 0, done.stderr
    [action, *_] = ActionFiles(log_store(str(query.path))).newest()
    for said in (done.stderr, action.before):
        assert "without what was taken back from sink box: 4 files with 12 rows of chk-1 to chk-2" in said


def test_a_savepoint_that_is_dropped_when_its_output_is_taken_back_is_whole_where_it_was_restored(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    withdraw = withdrawing.withdraw

    def beside_another(after: After, savepoint: Savepoint, given: Given) -> tuple[Withdrawn, ...]:
        shutil.rmtree(tmp_path / "early")
        return withdraw(after, savepoint, given)

    monkeypatch.setattr(withdrawing, "withdraw", beside_another)
    done = restore(tmp_path / "early", tmp_path / "to", "--output", "withdraw")
    assert done.returncode == 0, done.stderr
    assert query.seen() == ["t0-0.done", "t0-1.done"]
    assert json.loads((tmp_path / "to" / "metadata").read_text(encoding="utf-8"))["id"] == QUERY


def test_files_that_a_consumer_has_taken_are_not_taken_back(tmp_path: Path) -> None:
    """The job would give it their rows once more; what was taken back by this very command is no consumer's."""
    job = Job(tmp_path)
    [*_, last] = job.manifests()
    taken = job.target / last.files[0].path
    data = taken.read_bytes()
    taken.unlink()
    status, said = job.restore("--output", "withdraw")
    assert (status, job.epochs()) == (64, [0, 1, 2])
    assert (
        f"1 file is not in the target any more that epochs after chk-0 have put there, such as {taken}"
        in said
    )
    assert not job.to.exists()
    taken.write_bytes(data)
    assert job.restore("--output", "withdraw", ONCEONLY_FAILPOINTS="savepoint.before_id=kill")[0] == -9
    assert job.restore("--output", "withdraw")[0] == 0
    assert job.epochs() == [0]


# --- a place that was only begun --------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["savepoint.before_copy=kill", "savepoint.before_id=kill"])
@pytest.mark.parametrize("command", ["restore", "fork"])
def test_a_job_that_is_started_where_a_command_was_broken_off_is_told_what_to_type(
    query: QueryCoordinator, tmp_path: Path, command: str, point: str
) -> None:
    """Spark before 4.2 gives a checkpoint without an id another one, and the query would begin anew."""
    to, words = tmp_path / "to", ("savepoint", command, tmp_path / "late", "--to", tmp_path / "to", "--json")
    assert run(*words, ONCEONLY_FAILPOINTS=point).returncode == -9
    (to / "metadata").write_text(json.dumps({"id": OTHER}), encoding="utf-8")
    epoch = 3 if (to / "offsets").exists() else 0
    (to / "offsets").mkdir(exist_ok=True)
    (to / f"offsets/{epoch}").write_text(f"v1\n{{}}\n{query.barrier(epoch)}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="is not whole") as refused:
        Planner(QuerySettings(checkpoint=str(to)), actor="planner", application="a")
    assert "type that command again as it was typed" in refused.value.next_step
    done = run(*words)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)["query"]
    assert json.loads((to / "metadata").read_text(encoding="utf-8"))["id"] == made
    Planner(QuerySettings(checkpoint=str(to)), actor="planner", application="a").close()


@pytest.mark.parametrize("is_ours", [True, False])
def test_where_another_query_has_run_since_a_command_was_broken_off_nothing_is_written_over(
    query: QueryCoordinator, tmp_path: Path, *, is_ours: bool
) -> None:
    to = tmp_path / "to"
    killed = restore(tmp_path / "late", to, ONCEONLY_FAILPOINTS="savepoint.before_copy=kill")
    assert killed.returncode == -9
    if is_ours:
        QueryCoordinator(to, query=OTHER).complete(0)
    else:
        (to / "commits").mkdir()
        for name, text in (("metadata", json.dumps({"id": OTHER})), ("commits/0", "v1\n{}")):
            (to / name).write_text(text, encoding="utf-8")
    before = {path: path.read_bytes() for path in to.rglob("*") if path.is_file()}
    done = restore(tmp_path / "late", to)
    assert (done.returncode, f"query {OTHER} has been started there" in done.stderr) == (64, True)
    assert {path: path.read_bytes() for path in to.rglob("*") if path.is_file()} == before
    open_log(str(query.path), query=QUERY, create=True)


def test_an_epoch_that_was_decided_when_a_restore_was_broken_off_can_be_ended_where_it_is(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command that the refusal names; then the same command goes on."""
    broken_off_before_its_claim(tmp_path / "late", tmp_path / "to", monkeypatch)
    query.decide(3)  # by a driver that had begun before
    refused = restore(tmp_path / "late", tmp_path / "to")
    assert (refused.returncode, "transactions commit chk-3" in refused.stderr) == (1, True)
    done = run("transactions", "commit", "chk-3", query.path, "--yes")
    assert done.returncode == 0, done.stderr
    refused = restore(tmp_path / "late", tmp_path / "to")
    assert (refused.returncode, "6 rows of chk-3" in refused.stderr) == (64, True)
    assert restore(tmp_path / "late", tmp_path / "to", "--output", "withdraw").returncode == 0


def test_a_fork_that_was_broken_off_is_not_gone_on_with_for_other_targets(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = query.link
    monkeypatch.setattr(query, "link", lambda *of, **more: _at(made(*of, **more)))
    query.complete(3)
    savepoints.create(str(query.path), str(tmp_path / "place"))
    words = ("savepoint", "fork", tmp_path / "place", "--to", tmp_path / "to")
    assert run(*words, ONCEONLY_FAILPOINTS="savepoint.before_id=kill").returncode == -9
    done = run(*words, "--same-targets")
    assert (done.returncode, "keeps away from other targets" in done.stderr) == (64, True)
    assert run(*words).returncode == 0


@pytest.mark.parametrize("is_broken_off", [True, False])
def test_a_fork_does_not_go_on_in_targets_from_which_its_rows_were_taken_back(
    query: QueryCoordinator, tmp_path: Path, *, is_broken_off: bool
) -> None:
    """They would be lost there; with targets of its own it goes on, and so does one of before what was taken back."""
    if is_broken_off:
        broken_off(tmp_path)
    else:
        assert restore(tmp_path / "early", tmp_path / "to", "--output", "withdraw").returncode == 0
    words = ("savepoint", "fork", tmp_path / "late", "--to", tmp_path / "fork")
    done = run(*words, "--same-targets")
    assert done.returncode == 64
    assert "would be lost" in done.stderr
    assert "fork this one, with targets of its own" in " ".join(done.stderr.split())
    assert not (tmp_path / "fork").exists()
    assert run(*words).returncode == 0
    done = run("savepoint", "fork", tmp_path / "early", "--to", tmp_path / "before", "--same-targets")
    assert done.returncode == 0, done.stderr


def test_of_a_fork_that_shares_targets_it_is_told_what_it_writes_again(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    query.decide(3)  # by the original, which runs on
    words = ("savepoint", "fork", tmp_path / "early", "--same-targets", "--to")
    assert run(*words, tmp_path / "beside").returncode == 0
    query.complete(3)
    done = run(*words, tmp_path / "fork")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "the fork writes again sink box: 18 rows of chk-1 to chk-3: they will be there twice" in said
    shutil.rmtree(query.path)
    done = run(*words, tmp_path / "alone")
    assert (done.returncode, "nobody could tell what it has decided since chk-0" in done.stderr) == (0, True)


def _at(link: Link) -> Link:
    return replace(link, settings={"box": {"folder": "here"}})


# --- the place where the query was is gone ------------------------------------------------------------------


def test_where_the_store_of_the_query_is_gone_for_good_it_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for double in serving(monkeypatch, tmp_path):
        query = QueryCoordinator(tmp_path / "query")
        query.complete(0, 1)
        checkpoint = at_home(double, query, "cp")
        savepoints.create(checkpoint, str(tmp_path / "place"))
        monkeypatch.setattr(s3_double, "BUCKET", "another")
        for more in ((), ("--output", "again"), ("--force",)):
            refused = restore(tmp_path / "place", tmp_path / "to", *more)
            assert refused.returncode == 64
            assert (
                "cannot be asked: s3://bucket/cp/starting.json could not be read: there is no such"
                in refused.stderr
            )
            assert "add --output again --force" in refused.stderr
        done = restore(tmp_path / "place", tmp_path / "to", "--output", "again", "--force")
        assert (done.returncode, "nor keep it from going on there" in done.stderr) == (0, True)
        assert json.loads((tmp_path / "to/metadata").read_text(encoding="utf-8"))["id"] != QUERY


# --- making and looking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_back", [False, True])
def test_of_a_checkpoint_that_was_moved_by_hand_an_earlier_savepoint_is_restored(
    query: QueryCoordinator, tmp_path: Path, *, is_back: bool
) -> None:
    """Nothing in the savepoint says where it is now; without it, nobody would be fenced, nor anything taken back."""
    former, now = query.path, tmp_path / "moved"
    former.rename(now)
    assert run("checkpoints", "accept-move", now, "--yes").returncode == 0
    withdrawn = ["--output", "withdraw"]
    if is_back:
        now.rename(former)
        refused = restore(tmp_path / "early", tmp_path / "to", *withdrawn)
        assert f"onceonly checkpoints accept-move {former}" in " ".join(refused.stderr.split())
        assert run("checkpoints", "accept-move", former, "--yes").returncode == 0
    else:
        refused = restore(tmp_path / "early", tmp_path / "to", *withdrawn)
        assert "say where it is now with --moved-to CHECKPOINT" in " ".join(refused.stderr.split())
        wrong = restore(
            tmp_path / "early", tmp_path / "to", *withdrawn, "--moved-to", str(tmp_path / "nowhere")
        )
        assert (wrong.returncode, "is not the checkpoint of query" in wrong.stderr) == (64, True)
        withdrawn += ["--moved-to", str(now)]
    assert refused.returncode == 64
    done = restore(tmp_path / "early", tmp_path / "to", *withdrawn)
    assert done.returncode == 0, done.stderr
    assert query.seen() == ["t0-0.done", "t0-1.done"]
    with pytest.raises(CheckpointMovedError):
        open_log(str(former if is_back else now), query=QUERY, create=False)


def test_where_the_query_was_no_savepoint_is_made_of_it_as_if_it_went_on_there(
    query: QueryCoordinator, tmp_path: Path
) -> None:
    """A clock's command would make the same one for ever, and say that all is well."""
    done = restore(tmp_path / "early", tmp_path / "to", "--output", "again")
    assert done.returncode == 0, done.stderr
    refused = run("savepoint", "create", query.path, tmp_path / "nightly")
    assert (refused.returncode, f"make one of {(tmp_path / 'to').as_uri()}" in refused.stderr) == (64, True)
    assert not (tmp_path / "nightly").exists()
    assert run("savepoint", "create", query.path, tmp_path / "nightly", "--epoch", "chk-1").returncode == 0
    # It is of the query that was here, and what goes on elsewhere is known of.
    second = QueryCoordinator(tmp_path / "to", query=json.loads((tmp_path / "to/metadata").read_text())["id"])
    second.complete(1)
    refused = restore(tmp_path / "nightly", tmp_path / "third")
    assert (refused.returncode, "sink box: 6 rows of chk-2; sink box: 6 rows of chk-1" in refused.stderr) == (
        64,
        True,
    )


def test_a_place_that_is_full_is_not_filled_by_what_was_tried_there(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, left = Copier.copy, [5]

    def until_full(copier: Copier, name: str) -> File | None:
        left[0] -= 1
        if left[0] < 0:
            raise UnavailableError("no space is left", next_step="make room")
        return copy(copier, name)

    monkeypatch.setattr(Copier, "copy", until_full)
    for _ in range(2):
        left[0] = 5
        assert run("savepoint", "create", query.path, tmp_path / "place").returncode == 2
    assert list((tmp_path / "place").iterdir()) == []


def test_a_checkpoint_without_sparks_id_is_told_as_such(query: QueryCoordinator, tmp_path: Path) -> None:
    (query.path / "metadata").unlink()
    refused = run("savepoint", "create", query.path, tmp_path / "place")
    assert (refused.returncode, f"{query.path / 'metadata'} is gone" in refused.stderr) == (2, True)
    assert "minBatchesToRetain" not in refused.stderr


def test_while_an_epoch_is_in_flight_that_has_compacted_a_list_of_files_it_is_told_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has put the list of the epoch in flight in place of those before, which are gone after a while."""
    query = QueryCoordinator(tmp_path / "query")
    monkeypatch.setattr(query, "barrier", lambda epoch: f'{{"logOffset":{epoch}}}')
    query.complete(0, 1)
    query.set_barrier(2)
    lists = query.path / "sources" / "0"
    lists.mkdir(parents=True)
    (lists / "2.compact").write_text("v1", encoding="utf-8")
    refused = run("savepoint", "create", query.path, tmp_path / "place")
    assert (refused.returncode, "minBatchesToRetain" in refused.stderr) == (2, False)
    assert "when the epoch in flight is complete" in refused.stderr
    query.settle(query.decide(2))
    query.note(2)
    assert run("savepoint", "create", query.path, tmp_path / "place").returncode == 0


def test_a_batch_is_told_as_such(tmp_path: Path) -> None:
    batch = QueryCoordinator(tmp_path / "job", query=f"{BATCH}job-0123456789ab")
    batch.settle(batch.decide(0))
    for name in ("metadata", "offsets/0"):
        (batch.path / name).unlink()
    refused = run("savepoint", "create", batch.path, tmp_path / "place")
    assert (refused.returncode, "is the log of a batch" in refused.stderr) == (64, True)


def test_one_that_is_dropped_while_it_is_verified_is_not_called_damaged(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoints.create(str(query.path), str(tmp_path / "late"))
    wrong, dropped = places.wrong, list[str]()

    def beside_another(address: Address, savepoint: Savepoint, **more: object) -> Sequence[str]:
        if not dropped:
            dropped.append(address.shown)
            places.drop(address)
        return wrong(address, savepoint)

    monkeypatch.setattr(places, "wrong", beside_another)
    done = run("savepoint", "verify", tmp_path / "late")
    assert (done.returncode, done.stdout.count(": whole"), "missing" in done.stdout) == (0, 1, False)
    assert f"{dropped[0]} was dropped meanwhile" in done.stderr


@pytest.mark.parametrize("when", ["while its files are copied", "before its manifest", "after its manifest"])
@pytest.mark.parametrize("at", ["folder", "store"])
def test_one_that_is_dropped_while_it_is_made_is_not_taken_for_whole(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, at: str
) -> None:
    """A list says of one that is being made how to drop it, as nobody can tell it from one that was broken off."""
    copy, put, copies = Copier.copy, put_once, count(1)
    for _ in serving(monkeypatch, tmp_path):
        place = str(tmp_path / "place") if at == "folder" else f"s3a://{s3_double.BUCKET}/place"

        def drop(place: str = place) -> None:
            [begun] = places.standing(place)
            assert run("savepoint", "drop", begun.address.shown, "--yes").returncode == 0

        def copying(copier: Copier, name: str) -> File | None:
            if next(copies) == 5 and when == "while its files are copied":
                drop()
            return copy(copier, name)

        def putting(store: Store, name: str, data: bytes) -> bytes | None:
            if when == "before its manifest":
                drop()
            standing = put(store, name, data)
            if when == "after its manifest":
                drop()
            return standing

        monkeypatch.setattr(Copier, "copy", copying)
        monkeypatch.setattr(making, "put_once", putting)
        done = run("savepoint", "create", query.path, place)
        assert done.returncode == 2, done.stdout
        assert ("was dropped while it was made" in done.stderr) or (at, when) == (
            "folder",
            "before its manifest",
        )
        assert places.standing(place) == []
        assert [name for name in open_store(address_of(place)).tree("") if name.startswith("chk")] == []


def test_a_query_is_not_started_that_would_keep_its_savepoints_in_its_checkpoint(
    query: QueryCoordinator,
) -> None:
    """They would be gone with it."""
    kept = Keeping(every_s=3600.0, place=str(query.path / "savepoints"), keep=3)
    with pytest.raises(ConfigurationError, match="which the savepoint shall outlive"):
        Planner(QuerySettings(checkpoint=str(query.path), savepoints=kept), actor="planner", application="a")


def test_where_the_target_of_a_decided_epoch_is_gone_for_good_a_fork_goes_on_as_every_command_tells(
    tmp_path: Path,
) -> None:
    """No command ends that epoch any more, and each says so in place of another that refuses as well."""
    stage = Stage(tmp_path)
    stage.start(2)
    stage.decide(2)
    target = Path(stage.world.options["path"])
    target.rename(tmp_path / "aside")
    target.mkdir()
    path = str(stage.checkpoint)
    listed = json.loads(run("transactions", "list", "--json", path).stdout)
    name = listed["checkpoints"][0]["transactions"][0]["transaction"]
    [told] = json.loads(run("transactions", "explain", name, path, "--json", *FILES).stdout)["transactions"]
    assert (told["standing"], told["command"]) == ("unknown", None)
    assert "it stops before it reads a row" in told["next_start"]
    against = ("--against-decision", "--because", "made anew")
    place, to = tmp_path / "place", tmp_path / "fork"
    assert run("savepoint", "create", path, place).returncode == 0
    for done in (
        stage.transactions("commit", "chk-2"),
        stage.transactions("abort", "chk-2", *against),
        run("savepoint", "restore", place, "--to", to, "--output", "again", "--yes", *FILES),
    ):
        assert done.returncode in {1, 64}
        assert "savepoint fork --same-targets" in done.stderr
    assert run("savepoint", "fork", place, "--to", to, "--same-targets").returncode == 0
    with pytest.raises(TargetBehindError):
        stage.start(4)
    stage.world.options["onceonly.target.behind"] = "go-on"
    with pytest.raises(ConfigurationError, match="savepoint fork --same-targets"):
        stage.start(4)
    del stage.world.options["onceonly.target.behind"]
    stage.start(4, to)
    gone = Workload(epochs=2, slots=SLOTS).numbers()
    wanted = [each for each in Workload(epochs=4, slots=SLOTS).numbers() if each not in gone]
    with stage.world:
        stage.world.expect(wanted, "the fork writes what was pending, and what follows")


@pytest.mark.parametrize("more", [("box:password=x",), ("password=x",)])
def test_an_option_that_does_not_say_where_a_target_is_is_not_blamed(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    query = QueryCoordinator(tmp_path / "query")
    link = query.link(0, votes=[query.vote(0)])
    query.set_barrier(0)
    query.log.put_link(replace(link, settings={"box": {"topic_id": "former"}}))
    query.open("t0-0")
    given = [word for each in more for word in ("--option", each)]
    told = run("transactions", "commit", "chk-0", query.path, "--yes", *given)
    assert told.returncode == 64
    assert "bring back what the name led to" in told.stderr
    assert "correct the option" not in told.stderr
