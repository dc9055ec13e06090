"""The operator's view of checkpoints on stores: the same as of folders, in few requests, and without a secret shown."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit import ui_bench
from tests.unit.disk_bench import COLUMNS, World
from tests.unit.operator_bench import BOX, QUERY, QueryCoordinator, run
from tests.unit.s3_double import BUCKET, Fault, S3Double
from tests.unit.store_bench import SECRET, at_home, serving, upload

from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import ConfigurationError
from onceonly.log import heartbeat, open_log
from onceonly.log.place import log_store
from onceonly.log.presence import Presence, present
from onceonly.log.progress import OperatorReport, Progress
from onceonly.log.runs import Run, RunFiles
from onceonly.log.stored_progress import StoredProgress
from onceonly.looking import seen
from onceonly.model import Guarantee, SinkUse, Stamp
from onceonly.operations import look
from onceonly.operations import search as searching
from onceonly.operations.find import find, open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly.ports import Sink

ABOVE = f"s3a://{BUCKET}/queries"


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Double]:
    yield from serving(monkeypatch, tmp_path)


@pytest.fixture
def coordinator(tmp_path: Path) -> QueryCoordinator:
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.complete(0, 1)
    coordinator.decide(2)
    return coordinator


def listed(path: str | Path, *command: str) -> Any:  # noqa: ANN401  any JSON
    told = run(*(command or ("checkpoints", "list")), path, "--json")
    assert told.stdout, told.stderr
    return json.loads(told.stdout)["checkpoints"]


def without_times(value: Any) -> Any:  # noqa: ANN401  any JSON
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in {"at", "since"}}
    return list(map(without_times, value)) if isinstance(value, list) else value


# --- looking ----------------------------------------------------------------------------------------------


def test_a_checkpoint_on_a_store_is_listed_as_it_was_in_a_folder(
    double: S3Double, coordinator: QueryCoordinator
) -> None:
    (before,) = listed(coordinator.path)
    address = at_home(double, coordinator, "queries/a")
    (after,) = listed(address)
    assert without_times(after["epochs"]) == without_times(before["epochs"])
    assert after["epochs_known"] == before["epochs_known"] == 3
    assert (after["path"], after["address"], after["home"]) == (
        address, f"s3://{BUCKET}/queries/a", f"s3://{BUCKET}/queries/a",
    )  # fmt: skip
    assert (after["query"], after["run"], after["moved"]) == (QUERY, {"state": "down", "who": ""}, False)


def test_one_epoch_is_shown_with_what_a_store_can_tell(
    double: S3Double, coordinator: QueryCoordinator
) -> None:
    address = at_home(double, coordinator, "a")
    (found,) = listed(address, "checkpoints", "show", "chk-1")
    epoch = found["epoch"]
    assert epoch["sources"][0]["partitions"][0] == {
        "partition": "events/0",
        "start": 10,
        "end": 20,
        "span": 10,
        "behind": None,
        "behind_ms": None,
    }
    assert [handle["state"] for handle in epoch["handles"]] == ["committed", "committed"]
    assert epoch["bytes"] is None
    shown = run("checkpoints", "show", "chk-1", address)
    assert "not counted on a store" in shown.stdout
    assert shown.returncode == 0


def test_the_steps_of_an_epoch_are_told_by_the_stamps_of_its_files(
    double: S3Double, coordinator: QueryCoordinator
) -> None:
    address = at_home(double, coordinator, "a")
    assert run("transactions", "commit", "chk-2", address, "--yes", "--sink", f"box={BOX}").returncode == 0
    planned, put = (Stamp(at=f"2026-11-26T10:00:0{second}.250Z", host="h", pid=1) for second in range(2))
    link = coordinator.link(3, 1, votes=[coordinator.vote(3)])  # after the claim of the command
    open_log(address, query=QUERY, create=True).put_link(replace(link, planned=planned, stamp=put))
    detail = look.epoch(open_checkpoint(address), 3).epoch
    assert [(step.what, step.at % 60) for step in detail.steps[1:]] == [
        ("plan of link 3.1", 0.25), ("link 3.1: GLOBAL_COMMIT", 1.25),
    ]  # fmt: skip
    assert detail.steps[0].what == "link 3.0: ABORT"
    (row, *_) = look.newest(open_checkpoint(address), limit=1, history=False).epochs
    assert row.at == detail.steps[-1].at
    ((epoch, pending),) = look.unsettled(open_checkpoint(address)).in_doubt
    assert epoch.since(pending) == row.at


def test_what_spark_reported_and_the_runs_are_shown(double: S3Double, coordinator: QueryCoordinator) -> None:
    address = at_home(double, coordinator, "a")
    reports = StoredProgress(log_store(address))
    operator = OperatorReport(name="stateStoreSave", rows_total=4, memory_bytes=99)
    reports.put(Progress(epoch=1, run="r", rows=15, duration_ms={"addBatch": 7}, operators=(operator,)))
    reports.close()
    RunFiles(log_store(address)).put(
        Run(run="r-1", began=Stamp(at="2026-11-26T10:00:00.000Z", host="h", pid=7))
    )
    (found,) = listed(address, "checkpoints", "show", "chk-1")
    assert found["epoch"]["spark"]["duration_ms"] == {"addBatch": 7}
    assert found["epoch"]["spark"]["operators"][0]["rows_total"] == 4
    assert [(each["run"], each["host"], each["pid"]) for each in found["runs"]] == [("r-1", "h", 7)]
    assert "addBatch 7 ms" in run("checkpoints", "show", "chk-1", address).stdout


def test_a_living_run_is_shown_and_left_alone(double: S3Double, coordinator: QueryCoordinator) -> None:
    address = at_home(double, coordinator, "a")
    held = Presence.hold(address, actor="driver")
    deadline = time.monotonic() + 10
    while present(address) is None:
        assert time.monotonic() < deadline
    assert listed(address)[0]["run"]["state"] == "alive"
    refused = run("transactions", "commit", "chk-2", address, "--yes", "--sink", f"box={BOX}")
    assert (refused.returncode, "a run is alive" in refused.stderr) == (64, True)
    assert "if you know that it is dead, add --force" in refused.stderr
    assert coordinator.log.receipt(2) is None
    # It was killed a moment ago on another host, and still looks alive.
    forced = run("transactions", "commit", "chk-2", address, "--yes", "--force", "--sink", f"box={BOX}")
    assert forced.returncode == 0, forced.stderr
    assert open_checkpoint(address).log.receipt(2) is not None
    held.close()
    heartbeat.end()
    assert listed(address)[0]["run"]["state"] == "down"


_LEAVES = """
import os, sys
from pathlib import Path
from onceonly.log.presence import Presence, present
from onceonly.stores import opened
from onceonly.stores.configuration import settings
opened.tell(settings([Path(os.environ["ONCEONLY_HADOOP_CONF"])]))
Presence.hold(sys.argv[1], actor="driver")
while present(sys.argv[1]) is None:
    pass
print("shown", flush=True)
"""


def test_a_process_that_ends_in_order_is_not_taken_for_alive(
    double: S3Double, coordinator: QueryCoordinator
) -> None:
    address = at_home(double, coordinator, "a")
    done = subprocess.run(
        [sys.executable, "-c", _LEAVES, address], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "shown\n", done.stderr
    assert [name for name in double.objects if "/heartbeats/" in name] == []


# --- searching --------------------------------------------------------------------------------------------


def test_several_are_found_below_an_address_in_the_order_of_their_names(
    double: S3Double, tmp_path: Path
) -> None:
    for name in ("z", "a", "deep/er/b"):
        made = QueryCoordinator(tmp_path / name, query=name.replace("/", "-"))
        at_home(double, made, f"queries/{name}")
    double.objects["queries/theirs/metadata"] = b'{"id":"x"}'
    double.objects["queries/theirs/offsets/0"] = b""
    double.objects["queries/data/onceonly/readme"] = b"a project of this name is no log"
    double.objects["queries/_hidden/onceonly/identity.json"] = b""
    double.objects["queries/torn/onceonly/identity.json"] = b"\n"
    found = find(ABOVE)
    assert [each.path for each in found.checkpoints] == [
        f"{ABOVE}/{name}" for name in ("a", "z", "deep/er/b")
    ]
    assert [(each.path, each.foreign) for each in found.problems] == [
        (f"{ABOVE}/theirs", True), (f"{ABOVE}/torn", False),
    ]  # fmt: skip
    told = run("checkpoints", "list", ABOVE)
    assert told.returncode == 2
    assert told.stdout.count("query ") == 3
    assert "torn/onceonly/identity.json" in told.stderr


def test_a_log_that_is_named_itself_leads_to_its_checkpoint(
    double: S3Double, coordinator: QueryCoordinator
) -> None:
    address = at_home(double, coordinator, "a")
    (found,) = find(f"{address}/onceonly/").checkpoints
    assert found.path == address


def test_where_there_is_none_it_is_said(double: S3Double) -> None:
    double.objects["data/day=1/rows.parquet"] = b""
    told = run("checkpoints", "list", f"s3a://{BUCKET}/data")
    assert told.returncode == 64
    assert f"there is no checkpoint in s3a://{BUCKET}/data, nor in" in told.stderr


def test_a_bucket_that_is_not_there_is_named(double: S3Double) -> None:
    told = run("transactions", "list", "s3a://other/a")
    assert told.returncode == 64
    assert "there is no such bucket" in told.stderr
    assert "Traceback" not in told.stderr


def test_the_search_is_bounded_and_asks_once_for_each_folder(
    double: S3Double, coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(double, coordinator, "top/z/cp")
    for number in range(6):
        double.objects[f"top/{number}/rows"] = b""
    double.page = 1000
    double.requests.clear()
    assert len(find(f"s3a://{BUCKET}/top").checkpoints) == 1
    opened = 3 + 3 + 1  # identity, a move and no other; links, receipts, history; metadata
    assert len(double.requests) <= 1 + 7 + 1 + opened
    double.objects["deep/" + "/".join("abcdef") + "/onceonly/links/x"] = b""
    with pytest.raises(ConfigurationError, match="nor in the 5 levels"):
        find(f"s3a://{BUCKET}/deep")
    monkeypatch.setattr(searching, "FOLDERS_MAX_OF_STORE", 3)
    (problem,) = find(f"s3a://{BUCKET}/top").problems
    assert "more than 3 folders" in problem.error.what


def test_a_look_asks_for_little(double: S3Double, tmp_path: Path) -> None:
    """A budget that grows with a folder to look into, and never else: a person waits, and a store is paid."""
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.complete(*range(40))
    address = at_home(double, coordinator, "a")
    double.page = 1000  # as S3 has it
    double.requests.clear()
    assert run("checkpoints", "list", address, "--limit", "10").returncode == 0
    assert len(double.requests) <= 21 + 3 * 10  # whose log it is, asked before all else and after it


def test_watch_looks_at_several_checkpoints_on_a_store_at_the_same_time(
    double: S3Double, coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(double, coordinator.path, "queries/a")
    upload(double, coordinator.path, "queries/b")
    both, newest = threading.Barrier(2, timeout=10), look.newest

    def looked(*given: Any, **more: Any) -> Any:  # noqa: ANN401  whatever it is given
        both.wait()
        return newest(*given, **more)

    monkeypatch.setattr(look, "newest", looked)
    assert run("watch", ABOVE, "--once").stdout.count("query ") == 2


# --- acting -----------------------------------------------------------------------------------------------


def test_what_is_decided_is_committed_with_the_job_down_and_nobody_looks_alive_afterwards(
    double: S3Double, coordinator: QueryCoordinator
) -> None:
    coordinator.open("stray")
    address = at_home(double, coordinator, "a")
    before = run("transactions", "list", address)
    assert (before.returncode, "t2-0" in before.stdout) == (1, True)
    # In a process of its own, whose end is soon.
    done = run("transactions", "commit", "chk-2", address, "--yes", "--sink", f"box={BOX}", NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert {"t2-0.done", "t2-1.done"} <= set(coordinator.seen())
    assert "stray.open" not in coordinator.seen()
    assert open_checkpoint(address).log.receipt(2) is not None
    assert [name for name in double.objects if "/heartbeats/" in name or "/probes/" in name] == []
    assert run("transactions", "list", address).returncode == 0
    assert SECRET not in done.stdout + done.stderr


def test_a_store_that_does_not_permit_it_is_named_and_no_secret_is_shown(
    double: S3Double, coordinator: QueryCoordinator
) -> None:
    address = at_home(double, coordinator, "a")
    double.denied = {"PUT"}
    told = run("transactions", "commit", "chk-2", address, "--yes", "--sink", f"box={BOX}")
    assert told.returncode == 64
    assert "s3:PutObject" in told.stderr
    assert SECRET not in told.stderr
    assert "SECRET" not in told.stderr  # of the server's own words
    double.denied.clear()
    double.fault("LIST", Fault(400, "ExpiredToken"))
    told = run("checkpoints", "list", address)
    assert (told.returncode, "have expired" in told.stderr) == (64, True)
    assert "SECRET" not in told.stderr


class Noted(World):
    """A world whose links say how its sinks are used, as those of a query do."""

    def coordinator(self, sinks: dict[str, Sink]) -> Coordinator:
        query = str(json.loads((self.checkpoint / "metadata").read_text(encoding="utf-8"))["id"])
        opened = open_log(str(self.checkpoint), query=query, keep=2, create=True)
        coordinator = Coordinator(log=opened, actor="driver", commit_timeout_s=1.0, clock=self.clock())
        use = SinkUse(sink="files", options={"path": str(self.target), "format": "json"})
        for name, sink in sinks.items():
            coordinator.join(
                name, Participant(sink=sink, guarantee=Guarantee.EXACTLY_ONCE, columns=COLUMNS, use=use)
            )
        return coordinator


def test_old_files_of_a_query_whose_checkpoint_is_on_a_store_are_expired(
    double: S3Double, tmp_path: Path
) -> None:
    world = Noted(tmp_path / "w")
    world.live(world.last)
    upload(double, world.checkpoint, "w")
    address = f"s3a://{BUCKET}/w"
    refused = run("files", "expire", address, "--older-than", "0s", "--dry-run")
    assert (refused.returncode, "is at home at file://" in refused.stderr) == (1, True)
    (world.checkpoint / "onceonly").rename(world.folder / "gone")
    assert run("checkpoints", "accept-move", address, "--yes").returncode == 0
    told = run("files", "expire", address, "--older-than", "0s", "--dry-run")
    assert told.returncode == 0, told.stderr
    assert "chk-18" in told.stdout


# --- how a store is reached -------------------------------------------------------------------------------


def test_hadoops_own_files_are_read_where_the_environment_names_them(
    double: S3Double, coordinator: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, made = at_home(double, coordinator, "a"), QueryCoordinator(tmp_path / "local")
    monkeypatch.delenv("ONCEONLY_HADOOP_CONF")
    told = {
        "fs.s3a.endpoint": double.url, "fs.s3a.path.style.access": "true", "fs.s3a.access.key": "ak",
        "fs.s3a.secret.key": "${env.KEY_OF_S3}", "fs.defaultFS": f"s3a://{BUCKET}",
    }  # fmt: skip
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/core-site.xml").write_text(
        "<configuration>"
        + "".join(
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in told.items()
        )
        + "</configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("KEY_OF_S3", "sksksk")
    assert listed(address)[0]["path"] == address
    # A path is then where it is for the job, too.
    assert listed("/a")[0]["path"] == address
    (found,) = listed(f"file:{made.path}")
    assert (found["path"], found["moved"]) == (str(made.path), False)
    by_option = run("checkpoints", "list", address, "--hadoop-conf", tmp_path / "spark-defaults.conf")
    assert by_option.returncode == 0, by_option.stderr


def test_a_machine_without_the_package_is_told_what_to_install(
    double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onceonly.stores.objects", None)
    told = run("checkpoints", "list", f"s3a://{BUCKET}/a")
    assert told.returncode == 2
    assert "onceonly[stores]" in told.stderr


def test_a_report_reads_once_what_is_of_the_whole_checkpoint(
    double: S3Double, coordinator: QueryCoordinator
) -> None:
    address = at_home(double, coordinator, "a")
    RunFiles(log_store(address)).put(
        Run(run="r-1", began=Stamp(at="2026-11-26T10:00:00.000Z", host="h", pid=7))
    )
    checkpoint = open_checkpoint(address)
    double.requests.clear()
    view = seen(checkpoint, epochs=1000)
    assert [bool(each.ranges) for each in view.epochs] == [True] * 3
    asked = [name for _, name in double.requests if "/runs/" in name or name.endswith("sources.json")]
    assert len(asked) == 2


def test_earlier_runs_are_counted_and_read_for_whoever_asks(
    double: S3Double, coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    address = at_home(double, coordinator, "a")
    for number in range(13):
        RunFiles(log_store(address)).put(
            Run(run=f"r{number}", began=Stamp(at=f"2026-03-01T12:00:{number:02}.000Z", host="h", pid=7))
        )
    with ui_bench.serve([open_checkpoint(address)]) as page:
        newest = page.get(f"/{QUERY}/now").text
        assert "3 earlier runs are not read here, as each is a request to the store" in newest
        assert f'href="/{QUERY}/now?runs=100"' in newest
        assert ("run r12 began" in newest, "run r2 began" in newest) == (True, False)
        whole = page.get(f"/{QUERY}/now?runs=100").text
        assert ("run r0 began" in whole, "not read here" in whole) == (True, False)
        assert "1 earlier run is not read here" in page.get(f"/{QUERY}/now?runs=12").text
        assert page.get(f"/{QUERY}/now?runs=many").status == 404
    for given, seen_first in (((), False), (("--runs", "100"), True)):
        out = tmp_path / "run.html"
        assert run("report", address, "--out", out, *given).returncode in {0, 1}
        told = out.read_text(encoding="utf-8")
        assert ("run r0 began" in told, "onceonly report --runs 100" in told) == (seen_first, not seen_first)
    before = sum("/runs/" in name and not name.endswith("/runs/") for _, name in double.requests)
    assert run("report", address, "--out", out, "--runs", "2").returncode in {0, 1}
    assert "11 earlier runs are not read here" in out.read_text(encoding="utf-8")
    after = sum("/runs/" in name and not name.endswith("/runs/") for _, name in double.requests)
    assert after - before == 2, "each is read once, and no other"
