"""Restoring and forking by the command line, with Spark's files by hand and a box as the target."""

from __future__ import annotations

import importlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.operator_bench import BOX, QUERY, QueryCoordinator, broken_off_before_its_claim, run

from onceonly import savepoints
from onceonly.errors import CheckpointMovedError, ConfigurationError
from onceonly.log import open_log, origin
from onceonly.log.actions import ActionFiles
from onceonly.log.place import log_store
from onceonly.log.presence import Presence
from onceonly.model import LinkKind, Receipt, SinkUse, Skip
from onceonly.operations import disk, former
from onceonly.savepoints import starting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly.operations.find import Checkpoint
    from onceonly.ports import Leftover


@pytest.fixture
def query(tmp_path: Path) -> QueryCoordinator:
    made = QueryCoordinator(tmp_path / "query")
    made.complete(0, 1, 2, 3)
    return made


@pytest.fixture
def place(query: QueryCoordinator, tmp_path: Path) -> Path:
    savepoints.create(str(query.path), str(tmp_path / "place"))
    return tmp_path / "place"


def restore(place: Path, to: Path, *more: str) -> tuple[int, dict[str, object], str]:
    done = run("savepoint", "restore", place, "--to", to, "--json", "--sink", f"box={BOX}", *more)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def fork(place: Path, to: Path, *more: str) -> tuple[int, dict[str, object], str]:
    done = run("savepoint", "fork", place, "--to", to, "--json", *more)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def id_of(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])


def test_a_restored_query_goes_on_under_its_own_id_where_nothing_was_decided_since(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    status, told, _ = restore(place, tmp_path / "to")
    assert (status, told["query"], told["epoch"]) == (0, QUERY, 3)
    log = open_log(str(tmp_path / "to"), query=QUERY, create=True)
    assert log.newest() == 3
    assert log.token == query.log.token
    assert not (tmp_path / "to" / "starting.json").exists()
    assert not (tmp_path / "to" / "offsets" / "4").exists()


def test_nobody_goes_on_where_the_query_was(query: QueryCoordinator, place: Path, tmp_path: Path) -> None:
    query.set_barrier(4)
    assert restore(place, tmp_path / "to")[0] == 0
    for create in (True, False):
        with pytest.raises(
            CheckpointMovedError, match="was before it was restored from a savepoint"
        ) as stopped:
            open_log(str(query.path), query=QUERY, create=create)
        assert stopped.value.next_step == f"start the job at file://{tmp_path / 'to'}"
    # A driver that lived on finds its epoch claimed.
    standing = query.log.put_link(query.link(4, votes=[query.vote(4)]))
    assert standing.kind is LinkKind.ABORT
    assert standing.application.startswith("operator-")


def test_at_the_former_place_no_command_accepts_a_move(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    assert restore(place, tmp_path / "to")[0] == 0
    for words in (
        ("doctor", query.path, "--sink", f"box={BOX}"), ("transactions", "abort", "chk-4", query.path, "--yes"),
        ("watch", query.path, "--once"),
    ):  # fmt: skip
        done = run(*words)
        said = done.stdout + done.stderr
        assert f"start the job at file://{tmp_path / 'to'}" in said
        assert "accept-move" not in said
        assert "STUCK" not in said


def test_it_refuses_where_output_was_decided_after_the_savepoint_and_says_what_stands_where(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    query.complete(4, 5)
    status, _, said = restore(place, tmp_path / "to")
    assert status == 64
    assert all(
        word in said for word in ("after chk-3", "sink box", "12 rows of chk-4 to chk-5", "--output again")
    )
    assert not (tmp_path / "to").exists()


def test_output_that_is_written_again_is_another_querys(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    query.complete(4)
    query.set_barrier(5)
    query.open("t5-0")
    status, told, said = restore(place, tmp_path / "to", "--output", "again")
    assert status == 0, said
    assert told["query"] == id_of(tmp_path / "to") != QUERY
    assert "6 rows of chk-4: they will be there twice" in said
    # What the former one had open is aborted, and it does not go on.
    assert not (query.box / "t5-0.open").exists()
    with pytest.raises(CheckpointMovedError):
        open_log(str(query.path), query=QUERY, create=True)
    (link,) = open_log(str(tmp_path / "to"), query=str(told["query"]), create=True).chain(3)
    assert (link.kind, link.reason, link.barrier) == (LinkKind.SKIPPED, Skip.SAVEPOINT, (query.barrier(3),))


@pytest.fixture
def unanswered(query: QueryCoordinator, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A target that does not answer, until this is undone; something of a killed run is open in it."""
    query.complete(4)
    query.set_barrier(5)
    query.open("t5-0")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    box: Any = importlib.import_module("operator_bench")  # as the command imports it

    def recover(*_: object) -> list[Leftover]:
        message = "the box is not there"
        raise ConnectionError(message)

    monkeypatch.setattr(box.BoxSink, "recover", recover)
    return monkeypatch


def test_another_goes_on_only_when_what_the_former_one_has_open_is_ended(
    query: QueryCoordinator, place: Path, tmp_path: Path, unanswered: pytest.MonkeyPatch
) -> None:
    """No start and no other command would end it: both ids are others."""
    status, _, said = restore(place, tmp_path / "to", "--output", "again")
    assert (status, "could not be ended" in said, "type this again" in said) == (2, True, True)
    with pytest.raises(ConfigurationError, match="is not whole"):
        starting.refuse_begun(str(tmp_path / "to"))
    with pytest.raises(CheckpointMovedError):
        open_log(str(query.path), query=QUERY, create=True)
    assert (query.box / "t5-0.open").exists()
    unanswered.undo()
    status, told, said = restore(place, tmp_path / "to", "--output", "again")
    assert (status, "aborted and fenced: t5-0 of the former query" in said) == (0, True)
    assert told["query"] == id_of(tmp_path / "to") != QUERY
    assert not (query.box / "t5-0.open").exists()


def test_what_is_open_in_a_target_that_is_gone_for_good_is_left_to_its_time_out_and_said_so(
    query: QueryCoordinator, place: Path, tmp_path: Path, unanswered: pytest.MonkeyPatch
) -> None:
    status, _, said = restore(place, tmp_path / "to", "--output", "again", "--force")
    assert (status, "could not be ended" in said, "until its time-out" in said) == (0, True, True)
    unanswered.undo()
    for words in (("hanging",), ("explain", "t5-0")):
        done = run("transactions", *words, query.path, "--sink", f"box={BOX}", "--json")
        [told] = json.loads(done.stdout)["transactions"]
        # Every command is refused there.
        assert not told["command"]
        assert f"was restored from a savepoint to file://{tmp_path / 'to'}" in done.stdout
        assert "its time-out does" in done.stdout


def test_a_target_that_is_gone_for_good_keeps_no_other_from_being_asked(
    query: QueryCoordinator, place: Path, tmp_path: Path, unanswered: pytest.MonkeyPatch
) -> None:
    unanswered.undo()
    link = query.link(4)
    gone = SinkUse(sink=BOX, options={"folder": str(tmp_path / "gone")})
    query.log.put_link(
        replace(link, epoch=5, uses={"gone": gone, **link.uses}, settings={"gone": {}, **link.settings})
    )
    query.log.put_receipt(Receipt(epoch=5, index=0, plan="p"))
    unanswered.syspath_prepend(str(Path(__file__).parent))
    box: Any = importlib.import_module("operator_bench")
    recover = box.BoxSink.recover

    def recovering(sink: Any, context: object) -> Iterable[Leftover]:  # noqa: ANN401  the class of another module
        if not sink.folder.is_dir():
            raise ConnectionError
        return list(recover(sink, context))

    unanswered.setattr(box.BoxSink, "recover", recovering)
    words = ("--output", "again", "--sink", f"gone={BOX}")
    assert restore(place, tmp_path / "to", *words)[0] == 2
    assert not (query.box / "t5-0.open").exists()
    query.open("t5-1")
    status, _, said = restore(place, tmp_path / "to", *words, "--force")
    assert (status, "the sink gone" in said) == (0, True), said
    assert said.count("aborted and fenced: t5-1") == 1
    assert not (query.box / "t5-1.open").exists()


def test_an_epoch_in_doubt_is_to_be_ended_first(query: QueryCoordinator, place: Path, tmp_path: Path) -> None:
    query.decide(4)
    for more in ((), ("--output", "again")):
        status, _, said = restore(place, tmp_path / "to", *more)
        assert status == 1
        assert "transactions commit chk-4" in said


def test_what_no_command_writes_again_is_to_be_written_by_a_start_or_a_fork(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    query.lose_one(4)
    for more in ((), ("--output", "again")):
        status, _, said = restore(place, tmp_path / "to", *more)
        assert status == 1
        assert "start the query once" in said
        assert "transactions commit" not in said
        assert "savepoint fork --same-targets" in said
    assert run("savepoint", "fork", place, "--to", tmp_path / "to", "--same-targets").returncode == 0


def test_beside_a_run_that_lives_it_is_refused(query: QueryCoordinator, place: Path, tmp_path: Path) -> None:
    presence = Presence.hold(str(query.path))
    try:
        assert restore(place, tmp_path / "to")[0] == 64
        assert restore(place, tmp_path / "to", "--force")[0] == 0
    finally:
        presence.close()


def test_where_nothing_is_left_of_the_query_nobody_can_tell(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    shutil.rmtree(query.path)
    status, _, said = restore(place, tmp_path / "to")
    assert status == 64
    assert "nobody can tell" in said
    moved = tmp_path / "elsewhere"
    place.rename(moved)
    status, told, _ = restore(moved, tmp_path / "to", "--output", "again")
    assert (status, told["epoch"]) == (0, 3)
    assert told["query"] != QUERY


def test_a_query_that_was_restored_once_is_followed(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    assert restore(place, tmp_path / "to")[0] == 0
    second = QueryCoordinator(tmp_path / "to")
    second.complete(4)
    status, _, said = restore(place, tmp_path / "again")
    assert status == 64
    assert "6 rows of chk-4" in said
    assert restore(place, tmp_path / "again", "--output", "again")[0] == 0
    with pytest.raises(CheckpointMovedError):
        open_log(str(tmp_path / "to"), query=QUERY, create=True)


def test_what_ran_where_it_is_restored_to_and_is_gone_cannot_be_told(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    """Else the same id would write the epochs again that had been decided there."""
    assert restore(place, tmp_path / "to")[0] == 0
    QueryCoordinator(tmp_path / "to").complete(4)
    shutil.rmtree(tmp_path / "to")
    status, _, said = restore(place, tmp_path / "to")
    assert (status, f"({(tmp_path / 'to').as_uri()})" in said, "--output again" in said) == (64, True, True)
    status, told, _ = restore(place, tmp_path / "to", "--output", "again")
    assert status == 0
    assert told["query"] != QUERY


def test_what_was_restored_under_another_id_is_no_move_of_the_former(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    """With a move that is accepted, both would write what was decided since."""
    query.complete(4)
    assert restore(place, tmp_path / "to", "--output", "again")[0] == 0
    done = run("checkpoints", "accept-move", query.path, "--yes")
    assert (done.returncode, "was restored from a savepoint to" in done.stderr) == (1, True)
    with pytest.raises(CheckpointMovedError):
        open_log(str(query.path), query=QUERY, create=True)
    # Who wants the former back takes the other one away.
    shutil.rmtree(tmp_path / "to")
    with pytest.raises(CheckpointMovedError) as stopped:
        open_log(str(query.path), query=QUERY, create=True)
    assert stopped.value.next_step.endswith(f"onceonly checkpoints accept-move --force {query.path}")
    # It may have been moved on, too.
    done = run("checkpoints", "accept-move", query.path, "--yes")
    assert (done.returncode, "it cannot be told whether it was moved on" in done.stderr) == (1, True)
    assert run("checkpoints", "accept-move", query.path, "--yes", "--force").returncode == 0


def test_what_a_savepoint_holds_is_no_checkpoint_that_was_moved(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    (held,) = place.glob("*/files")
    query.path.rename(tmp_path / "elsewhere")
    done = run("checkpoints", "accept-move", held, "--yes")
    assert (done.returncode, "is what a savepoint holds" in done.stderr) == (64, True)
    assert f"{held.parent} --to CHECKPOINT" in done.stderr


def test_of_two_that_restore_it_to_two_places_at_once_one_does(
    query: QueryCoordinator, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two checkpoints of one id would each write what the other writes."""
    build = starting.build
    others: list[int] = []

    def while_another_does(*arguments: Any, **named: Any) -> None:  # noqa: ANN401  as they come
        if not others:
            others.append(-1)
            others.append(restore(place, tmp_path / "other")[0])
        build(*arguments, **named)

    monkeypatch.setattr(starting, "build", while_another_does)
    status, _, said = restore(place, tmp_path / "to")
    assert (status, others[1]) == (64, 0)
    assert f"another home meanwhile, {(tmp_path / 'other').as_uri()}" in said
    assert not (tmp_path / "to" / "metadata").exists()
    open_log(str(tmp_path / "other"), query=QUERY, create=True)
    # Run again, it goes on from there.
    assert restore(place, tmp_path / "to")[0] == 0
    with pytest.raises(CheckpointMovedError):
        open_log(str(tmp_path / "other"), query=QUERY, create=True)


def test_of_two_that_restore_to_two_places_at_once_one_is_refused(
    query: QueryCoordinator, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one finds the place of the first only begun, as one that was broken off would be."""
    claim = former.claim
    others: list[int] = []

    def while_another_does(checkpoint: Checkpoint) -> None:
        monkeypatch.setattr(former, "claim", claim)
        others.append(restore(place, tmp_path / "other")[0])
        claim(checkpoint)

    monkeypatch.setattr(former, "claim", while_another_does)
    status, _, said = restore(place, tmp_path / "to")
    assert (status, others, "another home meanwhile" in said) == (64, [0], True)
    assert not (tmp_path / "to" / "metadata").exists()
    open_log(str(tmp_path / "other"), query=QUERY, create=True)


def test_one_that_is_refused_leaves_the_home_as_another_has_set_it(
    query: QueryCoordinator, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, leave = former.claim, former.leave

    def while_another_is_refused(checkpoint: Checkpoint) -> None:
        monkeypatch.setattr(former, "claim", claim)
        monkeypatch.setattr(former, "leave", later)
        assert restore(place, tmp_path / "other")[0] == 64
        with pytest.raises(CheckpointMovedError):
            open_log(str(query.path), query=QUERY, create=True)
        claim(checkpoint)

    def later(checkpoint: Checkpoint, to: str) -> None:
        monkeypatch.setattr(former, "leave", leave)
        query.complete(4)
        leave(checkpoint, to)

    monkeypatch.setattr(former, "claim", while_another_is_refused)
    assert restore(place, tmp_path / "to")[0] == 64


def test_who_restores_as_another_user_than_the_job_is_told_what_to_type(
    query: QueryCoordinator, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "owner", lambda path: 4711 if path.name == "metadata" else 0)
    for command, to in ((fork, tmp_path / "fork 1"), (restore, tmp_path / "to 1")):
        status, _, said = command(place, to)
        assert (status, f"chown -R 4711 '{to}'" in said) == (0, True)


def test_of_two_that_make_the_same_place_at_once_one_is_refused(
    query: QueryCoordinator, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = starting.build
    others: list[tuple[int, dict[str, object], str]] = []

    def while_another_does(*arguments: Any, **named: Any) -> None:  # noqa: ANN401  as they come
        others.append(fork(place, tmp_path / "to"))
        build(*arguments, **named)

    monkeypatch.setattr(starting, "build", while_another_does)
    status, told, _ = fork(place, tmp_path / "to")
    [(other, _, said)] = others
    assert (status, other) == (0, 64)
    assert "another process is making a checkpoint" in said
    assert told["query"] == id_of(tmp_path / "to")


def test_an_epoch_that_is_decided_until_nobody_may_begin_there_is_seen(
    query: QueryCoordinator, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = former.leave

    def later(checkpoint: Checkpoint, to: str) -> None:
        query.complete(4)
        leave(checkpoint, to)

    monkeypatch.setattr(former, "leave", later)
    status, _, said = restore(place, tmp_path / "to")
    assert (status, "6 rows of chk-4" in said) == (64, True)
    # It was refused, and so the query goes on where it is.
    open_log(str(query.path), query=QUERY, create=True)


def test_a_place_that_was_only_begun_is_no_home_of_the_query(
    query: QueryCoordinator, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_off_before_its_claim(place, tmp_path / "begun", monkeypatch)
    query.complete(4)  # by a driver that had begun before
    for to in ("to", "begun"):
        status, _, said = restore(place, tmp_path / to)
        assert (status, "6 rows of chk-4" in said) == (64, True)
    assert restore(place, tmp_path / "to", "--output", "again")[0] == 0
    assert query.log.put_link(query.link(5, votes=[query.vote(5)])).kind is LinkKind.ABORT


def test_what_is_whole_but_for_its_mark_is_not_made_once_more(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    """Its job may have been started: what the log has folded since would come back."""
    assert restore(place, tmp_path / "to")[0] == 0
    savepoint = next(place.glob("chk-3-*")).name
    begun = {"savepoint": savepoint, "query": QUERY, "anew": False}
    (tmp_path / "to" / "starting.json").write_text(json.dumps(begun), encoding="utf-8")
    (tmp_path / "to" / "onceonly" / "links" / f"{0:020}.0.json").unlink()
    status, told, _ = restore(place, tmp_path / "to")
    assert (status, told["query"]) == (0, QUERY)
    assert not (tmp_path / "to" / "starting.json").exists()
    assert not (tmp_path / "to" / "onceonly" / "links" / f"{0:020}.0.json").exists()


def test_the_querys_own_place_is_not_empty_which_is_said_before_all_else(
    query: QueryCoordinator, place: Path
) -> None:
    status, _, said = restore(place, query.path)
    assert (status, "no empty place: there is something in it" in said) == (64, True)


def test_a_place_that_is_not_empty_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "notes.txt").write_text("mine", encoding="utf-8")
    for command in (restore, fork):
        status, _, said = command(place, tmp_path / "to")
        assert status == 64
        assert "no empty place" in said
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["notes.txt"]


def test_a_damaged_savepoint_is_not_restored(place: Path, tmp_path: Path) -> None:
    (path,) = place.glob("chk-3-*/files/offsets/3")
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data.replace(b"40", b"50"))
    status, _, said = restore(place, tmp_path / "to")
    assert status == 2
    assert "offsets/3 has other bytes" in said
    assert not (tmp_path / "to" / "metadata").exists()


@pytest.mark.parametrize("name", ["offsets/3", "state/0/_metadata/v2/0"])
def test_a_fork_of_a_savepoint_that_has_no_text_any_more_where_it_had_is_refused(
    query: QueryCoordinator, tmp_path: Path, name: str
) -> None:
    schemas = query.path / "state/0/_metadata/v2/0"
    schemas.parent.mkdir(parents=True)
    schemas.write_text("v2", encoding="utf-8")
    savepoints.create(str(query.path), str(tmp_path / "place"))
    (path,) = (tmp_path / "place").glob(f"chk-3-*/files/{name}")
    path.unlink()
    path.write_bytes(b"\xff")
    status, _, said = fork(tmp_path / "place", tmp_path / "to")
    assert status == 2
    assert f"is damaged: {name} has 1 bytes" in said
    assert not (tmp_path / "to" / "metadata").exists()


def test_addresses_of_schemas_lead_into_the_new_place(query: QueryCoordinator, tmp_path: Path) -> None:
    schemas = query.path / "state/0/_metadata/v2/0"
    schemas.parent.mkdir(parents=True)
    schemas.write_text(
        f'v2\n{{"stateSchemaFilePaths":["file:{query.path}/state/0/_stateSchema/default/0_a"]}}'
    )
    (query.path / "state/0/0").mkdir()
    (query.path / "state/0/0/4.snapshot").write_bytes(b"s")
    savepoints.create(str(query.path), str(tmp_path / "place"))
    assert fork(tmp_path / "place", tmp_path / "to")[0] == 0
    text = (tmp_path / "to" / "state/0/_metadata/v2/0").read_text(encoding="utf-8")
    assert text == f'v2\n{{"stateSchemaFilePaths":["file:{tmp_path}/to/state/0/_stateSchema/default/0_a"]}}'
    assert str(query.path) in schemas.read_text(encoding="utf-8")


def test_files_that_were_read_since_have_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = QueryCoordinator(tmp_path / "query")
    monkeypatch.setattr(query, "barrier", lambda epoch: f'{{"logOffset":{epoch}}}')
    query.complete(0, 1, 2, 3)
    data = [tmp_path / f"in {number}.json" for number in range(5)]
    lists = query.path / "sources" / "0"
    lists.mkdir(parents=True)
    for number, path in enumerate(data):
        path.write_text("{}", encoding="utf-8")
        entry = json.dumps({"path": path.as_uri(), "timestamp": 1, "batchId": number}, separators=(",", ":"))
        (lists / str(number)).write_text(f"v1\n{entry}", encoding="utf-8")
    savepoints.create(str(query.path), str(tmp_path / "place"))
    data[0].unlink()  # read before
    data[4].unlink()
    status, _, said = restore(tmp_path / "place", tmp_path / "to")
    assert status == 64
    assert "in%204.json" in said
    data[4].write_text("{}", encoding="utf-8")
    assert restore(tmp_path / "place", tmp_path / "to")[0] == 0
    assert sorted(path.name for path in (tmp_path / "to" / "sources" / "0").iterdir()) == ["0", "1", "2", "3"]


def test_a_fork_is_another_query_and_leaves_the_first_alone(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in query.path.rglob("*") if path.is_file()}
    query.complete(4)
    ids = set()
    for number in (1, 2):
        status, told, _ = fork(place, tmp_path / f"fork{number}")
        assert status == 0
        ids |= {told["query"], id_of(tmp_path / f"fork{number}")}
    assert len(ids) == 2
    assert QUERY not in ids
    assert {path: path.read_bytes() for path in before} == before
    log = open_log(str(query.path), query=QUERY, create=True)
    assert log.newest() == 4
    assert run("checkpoints", "list", tmp_path / "fork1").returncode == 0
    shown = json.loads(run("checkpoints", "show", "chk-3", tmp_path / "fork1", "--json").stdout)
    (detail,) = shown["checkpoints"]
    assert (detail["epoch"]["state"], detail["epoch"]["reason"]) == ("skipped", "savepoint")


def test_a_fork_of_a_query_that_reads_kinesis_begins_with_ranges_of_its_own(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the barrier, and in the link that says what it was decided by, alike; the original's are named once."""

    def barrier(epoch: int) -> str:
        return json.dumps({"version": 1, "reader": "a" * 32, "number": epoch + 1, "made": "", "former": ""})

    monkeypatch.setattr(query, "barrier", barrier)
    query.complete(4, 5)

    def ends(checkpoint: Path, epoch: int) -> dict[str, object]:
        told = (checkpoint / "offsets" / str(epoch)).read_text(encoding="utf-8")
        (link,) = open_log(str(checkpoint), query=id_of(checkpoint), create=True).chain(epoch)
        assert told.split("\n")[2:] == list(link.barrier)
        found: dict[str, object] = json.loads(link.barrier[0])
        return found

    place, readers = query.path, ["a" * 32]
    for name in ("one", "two"):
        savepoints.create(str(place), str(tmp_path / f"{name}-savepoints"))
        place = tmp_path / name
        assert fork(tmp_path / f"{name}-savepoints", place)[0] == 0
        found = ends(place, 5)
        assert (found["former"], found["number"]) == ("a" * 32, 6)
        readers.append(str(found["reader"]))
    assert len(set(readers)) == 3
    assert ends(query.path, 5)["former"] == ""


def test_a_fork_knows_all_targets_of_its_query_and_so_do_its_own_forks(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = query.link
    for epoch in (4, 5):  # as of a function that writes to one sink or the other
        settings = {"box": {"folder": f"of chk-{epoch}"}}
        monkeypatch.setattr(
            query, "link", lambda *of, _given=settings, **more: replace(made(*of, **more), settings=_given)
        )
        query.complete(epoch)
    theirs = [{"folder": "of chk-5"}, {"folder": "of chk-4"}]

    def forked(source: str, to: str, *more: str) -> list[dict[str, object]]:
        savepoints.create(str(tmp_path / source), str(tmp_path / f"{to}-savepoints"))
        assert fork(tmp_path / f"{to}-savepoints", tmp_path / to, *more)[0] == 0
        found = origin.read(log_store(str(tmp_path / to)))
        return [] if found is None else [dict(each.identity) for each in found.targets]

    assert forked("query", "same", "--same-targets") == []
    assert forked("query", "fork") == theirs
    assert forked("fork", "next") == theirs
    assert forked("fork", "next-same", "--same-targets") == theirs


@pytest.mark.parametrize("command", ["restore", "fork"])
def test_killed_at_each_step_the_same_command_goes_on(
    query: QueryCoordinator, place: Path, tmp_path: Path, command: str
) -> None:
    copies = (1, 5, 9, 13) if command == "restore" else (1, 3, 5)
    points = [*(f"savepoint.after_copy=kill@{number}" for number in copies), "savepoint.before_id=kill"]
    arguments = ("savepoint", command, place, "--to", tmp_path / "to", "--json")
    for point in points:
        killed = run(*arguments, ONCEONLY_FAILPOINTS=point)
        assert killed.returncode == -9, (point, killed.stderr)
        assert not (tmp_path / "to" / "metadata").exists()
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert id_of(tmp_path / "to") == json.loads(done.stdout)["query"]
    assert not (tmp_path / "to" / "starting.json").exists()
    again = run(*arguments)
    assert again.returncode == 64  # it is no empty place any more


def test_who_restored_and_forked_is_told_where_it_was_made_and_where_the_query_was(
    query: QueryCoordinator, place: Path, tmp_path: Path
) -> None:
    def by_hand(at: Path) -> list[str]:
        return [each.sentence for each in ActionFiles(log_store(str(at))).newest()]

    assert fork(place, tmp_path / "fork")[0] == 0
    assert by_hand(query.path) == []
    assert restore(place, tmp_path / "to")[0] == 0
    [forked], [restored], [left] = map(by_hand, (tmp_path / "fork", tmp_path / "to", query.path))
    assert forked.startswith("chk-3 was gone on from by hand (fork) at ")
    assert f"after, query {id_of(tmp_path / 'fork')} at home at file://{tmp_path}/fork" in forked
    assert restored.startswith("chk-3 was gone on from by hand (restore) at ")
    assert f"after, query {QUERY} at home at file://{tmp_path}/to" in restored
    assert left.partition("at ")[0] == restored.partition("at ")[0]
    assert restored in run("checkpoints", "show", "chk-3", tmp_path / "to").stdout.replace("\n", " ")
