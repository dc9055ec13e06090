"""The operator's commands at the terminal, in a pipe, and for machines."""

from __future__ import annotations

import getpass
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import BOX, PATH, QUERY, QueryCoordinator, here, run

from onceonly import cli
from onceonly.checkpoint.files import FolderFiles
from onceonly.cli import shared
from onceonly.errors import CheckpointMovedError
from onceonly.guards import known
from onceonly.log import open_log
from onceonly.log.presence import Presence

if TYPE_CHECKING:
    from onceonly.log.heartbeat import Heartbeat


@pytest.fixture
def coordinator(tmp_path: Path) -> QueryCoordinator:
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.complete(0, 1)
    coordinator.decide(2)
    return coordinator


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 0),
        (["checkpoints", "--help"], 0),
        (["checkpoints", "list", "--help"], 0),
        (["checkpoints", "show", "--help"], 0),
        (["checkpoints", "accept-move", "--help"], 0),
        (["transactions", "list", "--help"], 0),
        (["transactions", "abort", "--help"], 0),
        (["transactions", "commit", "--help"], 0),
        (["transactions", "explain", "--help"], 0),
        (["checkpoints", "nonsense"], 64),
        (["checkpoints", "list", "/none"], 64),
        (["checkpoints", "list", "dbfs:/cp"], 64),
        (["checkpoints", "list", "s3a:///cp"], 64),
        (["checkpoints", "list", "--hadoop-conf", "/none", "."], 64),
        (["checkpoints", "list", "--limit", "0"], 64),
        (["checkpoints", "show", "seven", "."], 64),
        (["transactions", "list", "/none"], 64),
        (["transactions", "abort", "chk-2", "/none"], 64),
        (["transactions", "commit", "chk-2", "/none"], 64),
        (["transactions", "explain", "t", "/none"], 64),
        (["checkpoints", "accept-move", "/none"], 64),
    ],
)
def test_status(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert here(*arguments) == status
    told = capsys.readouterr()
    assert (told.out == "") == (status != 0)
    assert "Traceback" not in told.err


@pytest.mark.parametrize("seconds", ["0", "-1"])
def test_a_time_out_is_some_time(seconds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert here("doctor", str(tmp_path), "--timeout", seconds) == 64
    assert "--timeout" in capsys.readouterr().err


def test_in_a_pipe_nothing_is_cut_and_nothing_is_coloured(tmp_path: Path) -> None:
    coordinator = QueryCoordinator(tmp_path / "cp")
    name = "a-very-long-transaction." * 20
    coordinator.set_barrier(0)
    coordinator.log.put_link(coordinator.link(0, votes=[coordinator.vote(0, name=name)]))
    shown = run("checkpoints", "show", "chk-0", tmp_path, COLUMNS="40")
    assert name in shown.stdout
    assert "\x1b" not in shown.stdout
    assert all(line == line.rstrip() for line in shown.stdout.splitlines())


def test_in_a_narrow_terminal_an_id_goes_on_in_the_next_line(tmp_path: Path) -> None:
    coordinator = QueryCoordinator(tmp_path / "cp")
    name = "0123456789" * 10
    coordinator.set_barrier(0)
    coordinator.log.put_link(coordinator.link(0, votes=[coordinator.vote(0, name=name)]))
    text = _in_terminal("transactions", "list", str(tmp_path), columns=60, NO_COLOR="1")
    assert "\x1b[3" not in text
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert sum(text.count(digit) for digit in "0123456789") >= 100
    assert max(len(line) for line in text.splitlines() if "file://" not in line) <= 60
    assert "\x1b[3" in _in_terminal("transactions", "list", str(tmp_path), columns=60)


def _in_terminal(*arguments: str, columns: int, answer: str = "", **env: str) -> str:
    """Run the command line on a pseudo-terminal, and give all that it wrote."""
    parent, child = pty.openpty()
    environment = {
        **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
        "PYTHONPATH": PATH, "COLUMNS": str(columns), "TERM": "xterm-256color", **env,
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "onceonly", *arguments], stdin=child, stdout=child, stderr=child, env=environment
    )  # fmt: skip
    os.close(child)
    os.write(parent, answer.encode())
    text = b""
    try:
        while data := os.read(parent, 65536):
            text += data
    except OSError:  # the other side has hung up
        pass
    process.wait(30)
    os.close(parent)
    return text.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(("answer", "done"), [("y\n", True), ("n\n", False)])
def test_at_a_terminal_it_asks_first(coordinator: QueryCoordinator, answer: str, done: bool) -> None:  # noqa: FBT001
    text = _in_terminal(
        "transactions",
        "commit",
        "chk-2",
        str(coordinator.path),
        "--sink",
        f"box={BOX}",
        columns=100,
        answer=answer,
    )
    assert "Shall this be done?" in text
    assert ("t2-0.done" in coordinator.seen()) is done


def test_what_a_query_promises_from_end_to_end_is_shown(coordinator: QueryCoordinator) -> None:
    assert "from end to end" not in run("checkpoints", "show", "chk-1", coordinator.path).stdout
    told = known.Known(formats=("kafka", "socket"), promise="at-most-once")
    known.write(FolderFiles(coordinator.path), told)
    shown = run("checkpoints", "show", "chk-1", coordinator.path).stdout
    assert "at-most-once from end to end (source: kafka, socket)" in shown
    (checkpoint,) = json.loads(run("checkpoints", "list", coordinator.path, "--json").stdout)["checkpoints"]
    assert (checkpoint["sources"], checkpoint["end_to_end"]) == (["kafka", "socket"], "at-most-once")


def test_machines_get_stable_keys(coordinator: QueryCoordinator) -> None:
    listed = json.loads(run("checkpoints", "list", coordinator.path, "--json").stdout)
    assert sorted(listed) == ["checkpoints", "problems"]
    (checkpoint,) = listed["checkpoints"]
    assert sorted(checkpoint) == [
        "actions", "address", "end_to_end", "epochs", "epochs_known", "home", "moved", "name", "path", "query", "run",
        "runs", "sources",
    ]  # fmt: skip
    assert checkpoint["query"] == QUERY
    assert checkpoint["run"] == {"state": "down", "who": ""}
    assert sorted(checkpoint["epochs"][0]) == [
        "aborts", "at", "commit_seconds", "dead_letters", "epoch", "folded", "links", "name", "outcomes", "pending",
        "reason", "sinks", "state",
    ]  # fmt: skip
    assert [(item["name"], item["state"], item["pending"]) for item in checkpoint["epochs"]] == [
        ("chk-2", "decided", 2), ("chk-1", "complete", 0), ("chk-0", "complete", 0),
    ]  # fmt: skip
    shown = json.loads(run("checkpoints", "show", "chk-2", coordinator.path, "--json").stdout)
    epoch = shown["checkpoints"][0]["epoch"]
    assert {"sources", "chain", "handles", "steps", "spark", "bytes", "note"} <= epoch.keys()
    assert epoch["sources"][0]["partitions"][0] == {
        "partition": "events/0", "start": 20, "end": 30, "span": 10, "behind": None, "behind_ms": None,
    }  # fmt: skip
    assert epoch["handles"][0]["data"] == {"box": 1}


def test_every_key_is_in_the_reference(coordinator: QueryCoordinator) -> None:
    reference = (Path(__file__).parents[2] / "docs/reference/cli-json.md").read_text(encoding="utf-8")
    for command in (
        ["checkpoints", "list"],
        ["checkpoints", "show", "chk-2"],
        ["transactions", "list", "--ask"],
    ):
        told = json.loads(run(*command, coordinator.path, "--json").stdout)
        assert {key for key in _keys(told) if f"`{key}`" not in reference} == set()
    told = json.loads(run("transactions", "commit", "--yes", "chk-2", coordinator.path, "--json").stdout)
    assert {key for key in _keys(told) if f"`{key}`" not in reference} == set()


def _keys(value: object) -> set[str]:
    """Return all keys, but for those of maps whose keys are the user's."""
    if isinstance(value, dict):
        below = [
            item for key, item in value.items() if key not in {"sinks", "outcomes", "data", "dead_letters"}
        ]
        return {key for key in value if isinstance(key, str)}.union(*map(_keys, below))
    return set().union(*map(_keys, value)) if isinstance(value, list) else set()


def test_a_living_run_is_shown(coordinator: QueryCoordinator) -> None:
    presence = Presence.hold(str(coordinator.path), actor="driver")
    shown = run("checkpoints", "list", coordinator.path)
    assert f"alive (host {os.uname().nodename}, process {os.getpid()} (driver))" in shown.stdout
    presence.close()
    assert "run down" in run("checkpoints", "list", coordinator.path).stdout


def test_messages_go_to_stderr_and_data_to_stdout(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    (tmp_path / "broken/onceonly").mkdir(parents=True)
    (tmp_path / "broken/onceonly/identity.json").write_bytes(b"{}")
    told = run("checkpoints", "list", tmp_path)
    assert told.returncode == 2
    assert "chk-2" in told.stdout
    assert "broken" not in told.stdout
    assert "broken/onceonly/identity.json" in told.stderr
    assert told.stderr.count("error:") == told.stderr.count("next:") == 1


# --- a checkpoint that moved ------------------------------------------------------------------------------


def test_a_move_is_seen_listed_and_accepted(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    new = tmp_path / "new"
    shutil.move(coordinator.path, new)
    listed = run("checkpoints", "list", new)
    assert (listed.returncode, "moved here from" in listed.stdout, "chk-2" in listed.stdout) == (
        1,
        True,
        True,
    )
    unasked = run("checkpoints", "accept-move", new)
    assert unasked.returncode == 64
    assert f"from file://{coordinator.path}\n  to   file://{new}" in unasked.stderr
    assert run("checkpoints", "accept-move", new, "--yes").returncode == 0
    listed = run("checkpoints", "list", new, "--json")
    assert listed.returncode == 0
    [action] = json.loads(listed.stdout)["checkpoints"][0]["actions"]
    assert (action["command"], action["epoch"], action["who"]) == ("accept-move", 2, getpass.getuser())
    assert (action["before"], action["after"]) == (
        f"at home at file://{coordinator.path}",
        f"at home at file://{new}",
    )
    open_log(str(new), query=QUERY, create=True)
    assert run("transactions", "commit", "chk-2", new, "--yes").returncode == 0
    again = run("checkpoints", "accept-move", new, "--yes")
    assert (again.returncode, "nothing to do" in again.stderr) == (0, True)


def test_a_copy_is_no_move(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    shutil.copytree(coordinator.path, tmp_path / "copy")
    told = run("checkpoints", "accept-move", tmp_path / "copy", "--yes", "--force")
    assert told.returncode == 1
    assert "is a copy: the same decision log is still at" in told.stderr
    with pytest.raises(CheckpointMovedError):
        open_log(str(tmp_path / "copy"), query=QUERY, create=True)


def test_a_link_left_at_the_old_place_is_no_copy(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    shutil.move(coordinator.path, tmp_path / "new")
    coordinator.path.symlink_to(tmp_path / "new")
    assert run("checkpoints", "accept-move", tmp_path / "new", "--yes").returncode == 0


def test_another_checkpoint_at_the_old_place_is_no_copy(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    shutil.move(coordinator.path, tmp_path / "new")
    QueryCoordinator(coordinator.path, query="other")
    assert run("checkpoints", "accept-move", tmp_path / "new", "--yes").returncode == 0


def test_a_move_under_a_living_run_is_refused(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    shutil.move(coordinator.path, tmp_path / "new")
    presence = Presence.hold(str(tmp_path / "new"), actor="driver")
    told = run("checkpoints", "accept-move", tmp_path / "new", "--yes")
    presence.close()
    assert (told.returncode, "a run is alive" in told.stderr) == (64, True)


@pytest.mark.parametrize("happens", ["a run starts", "the old one comes back"])
def test_a_move_is_looked_at_again_after_a_person_has_thought(
    coordinator: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    shutil.move(coordinator.path, tmp_path / "new")
    started: list[Presence | Heartbeat] = []

    def think(_question: str, *, yes: bool) -> bool:
        if happens == "a run starts":
            started.append(Presence.hold(str(tmp_path / "new"), actor="driver"))
        else:
            shutil.copytree(tmp_path / "new", coordinator.path)
        return not yes

    monkeypatch.setattr(shared, "agreed", think)
    told = run("checkpoints", "accept-move", tmp_path / "new", "--force")
    for presence in started:
        presence.close()
    assert told.returncode == (64 if started else 1)
    assert ("a run is alive" if started else "is a copy") in told.stderr
    assert "accepted" not in told.stderr
    with pytest.raises(CheckpointMovedError):
        open_log(str(tmp_path / "new"), query=QUERY, create=True)


def test_an_old_place_whose_folder_is_not_here_may_be_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    QueryCoordinator(tmp_path / "disk/cp").complete(0)
    shutil.move(tmp_path / "disk/cp", tmp_path / "new")
    shutil.rmtree(tmp_path / "disk")
    told = run("checkpoints", "accept-move", tmp_path / "new", "--yes")
    assert told.returncode == 2
    assert f"{tmp_path}/disk is not there on this machine" in told.stderr
    assert "--force" in told.stderr
    assert "accepted" not in told.stderr
    assert run("checkpoints", "accept-move", tmp_path / "new", "--yes", "--force").returncode == 0
    open_log(str(tmp_path / "new"), query=QUERY, create=True)


def test_one_of_several_that_cannot_be_accepted_hides_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        QueryCoordinator(tmp_path / name, query=name).complete(0)
    shutil.copytree(tmp_path / "a", tmp_path / "new/a")
    shutil.move(tmp_path / "b", tmp_path / "new/b")
    told = run("checkpoints", "accept-move", tmp_path / "new", "--yes")
    assert (told.returncode, "new/a is a copy" in told.stderr, "accepted" in told.stderr) == (1, True, True)
    open_log(str(tmp_path / "new/b"), query="b", create=True)


# --- speed ------------------------------------------------------------------------------------------------


def test_nothing_heavy_is_imported_for_a_look(coordinator: QueryCoordinator) -> None:
    code = (
        "import sys, onceonly.cli; onceonly.cli.run(sys.argv[1:]); "
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy', 'confluent_kafka', 'kafka', 'onceonly_proof.demo', "
        "'onceonly_proof.embedded'} & set(sys.modules); sys.exit(str(sorted(heavy)) if heavy else 0)"
    )
    for command in (
        ["checkpoints", "list"],
        ["checkpoints", "show", "chk-2"],
        ["transactions", "list", "--all"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *command, str(coordinator.path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("own", ["", "debug"])
def test_what_clients_in_rust_warn_of_stays_off_the_terminal_unless_it_is_asked_for(
    own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUST_LOG", own)
    if not own:
        monkeypatch.delenv("RUST_LOG")
    monkeypatch.setattr(sys, "argv", ["onceonly", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    assert os.environ["RUST_LOG"] == (own or "error")
