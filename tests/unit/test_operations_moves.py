"""A checkpoint that goes to a store and comes back: noticed, told from a copy, accepted, and gone on with."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.hdfs_double import HdfsDouble
from tests.unit.hdfs_double import serve as serve_hdfs
from tests.unit.operator_bench import QUERY, run
from tests.unit.operator_bench import QueryCoordinator as Bench
from tests.unit.s3_double import BUCKET, S3Double
from tests.unit.store_bench import at_home, download, remove, serving, told, upload

from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import CheckpointMovedError
from onceonly.log import LocalStore, heartbeat, open_log
from onceonly.log.identity import record_move
from onceonly.log.opening import accept_move, look
from onceonly.model import Mode
from onceonly.operations import move
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import remember
from onceonly.stores.opened import address_of, open_store
from onceonly_proof.memory_sink import MemorySink

sys.path.insert(0, str(Path(__file__).parents[1] / "acceptance"))

from doc_blocks import extract, matches, transcript

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.stores.port import RewritableStore

PAGE = "docs/how-to/move-a-checkpoint.md"


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Double]:
    yield from serving(monkeypatch, tmp_path)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "cp")
    bench.complete(0, 1)
    return bench


# --- there and back ---------------------------------------------------------------------------------------


def epochs(checkpoint: str | Path, first: int, last: int) -> None:
    """Run epochs of a query on a checkpoint, wherever it is, as a job that is started there does."""
    spark = open_store(address_of(str(checkpoint)))
    if first == 0:
        spark.replace("metadata", json.dumps({"id": "q"}).encode())
    _set_barrier(spark, first)
    query = QueryCoordinator(
        QuerySettings(checkpoint=str(checkpoint)), actor="driver", application=f"app-{first}"
    )
    query.enlist(SinkSettings(name="memory"), MemorySink, ())
    for epoch in range(first, last + 1):
        _set_barrier(spark, epoch)
        plan = query.plan(epoch, run=f"run-{first}")
        assert plan.mode is Mode.RUN
        query.decide(plan, [])
        spark.replace(f"commits/{epoch}", b"v1\n{}")
    heartbeat.end()


def _set_barrier(spark: RewritableStore, epoch: int) -> None:
    spark.replace(f"offsets/{epoch}", f'v1\n{{}}\n{{"t":{{"0":{epoch}}}}}'.encode())


def as_shown(name: str, double: S3Double, data: Path) -> None:
    """Run a block of the page: what the store's own tool does, here by hand; the rest as it stands there."""
    for command, expected in transcript(extract(PAGE, name)):
        words = shlex.split(re.sub(r"/data\b", str(data), command))
        seen = ""
        if words[0] == "aws":
            _aws(double, [word for word in words[2:] if word not in {"--quiet", "--recursive"}])
        elif words[0] == "onceonly":
            done = run(*words[1:])
            seen = done.stdout + done.stderr
        elif words[0] != "sync":  # of a file system that others measure
            subprocess.run(words, check=True)
        assert matches(re.sub(r"/data\b", str(data), expected), seen), f"{command}\n{seen}"


def _aws(double: S3Double, words: list[str]) -> None:
    exclude = words.pop(words.index("--exclude") + 1) if "--exclude" in words else ""
    what, *places = [word for word in words if word != "--exclude"]
    keys = [place.removeprefix(f"s3://{BUCKET}/") for place in places]
    if what == "rm":
        remove(double, *keys)
    elif places[0].startswith("s3:"):
        download(double, keys[0], Path(places[1]))
    else:
        upload(double, Path(places[0]), keys[1], exclude=exclude)


def test_a_checkpoint_goes_to_a_store_and_back_as_the_page_says(double: S3Double, tmp_path: Path) -> None:
    MemorySink.stores.clear()
    remember(MemorySink)
    here, there, back = tmp_path / "archive/orders", f"s3a://{BUCKET}/orders", tmp_path / "back/orders"
    here.mkdir(parents=True)
    epochs(here, 0, 2)
    (here / "offsets/.0.crc").write_bytes(b"crc")
    as_shown("to-a-store", double, tmp_path)
    assert "orders/offsets/.0.crc" not in double.objects
    epochs(there, 3, 4)
    double.objects[f"orders/onceonly/{heartbeat.ALIVE}x.json"] = b"{}"  # of a run that was killed
    as_shown("back", double, tmp_path)
    epochs(back, 5, 5)
    log = look(str(back))[0]
    assert log.epochs() == range(6)
    assert all(log.receipt(epoch) is not None for epoch in range(6))
    (found,) = json.loads(run("checkpoints", "list", back, "--json").stdout)["checkpoints"]
    assert found["run"] == {"state": "down", "who": ""}


def test_the_query_does_not_start_where_nobody_has_accepted_the_move(double: S3Double, bench: Bench) -> None:
    upload(double, bench.path, "cp")
    shutil.rmtree(bench.path)
    listed = run("checkpoints", "list", f"s3a://{BUCKET}/cp")
    assert (listed.returncode, f"moved here from file://{bench.path}" in listed.stdout) == (1, True)
    refused = run("transactions", "commit", "chk-1", f"s3a://{BUCKET}/cp", "--yes")
    assert refused.returncode == 1
    assert f"onceonly checkpoints accept-move s3://{BUCKET}/cp" in refused.stderr


# --- a copy is no move ------------------------------------------------------------------------------------


def accept(path: str | Path, *more: str) -> tuple[int, str]:
    done = run("checkpoints", "accept-move", path, "--yes", *more)
    return done.returncode, done.stderr


def test_a_copy_on_a_store_is_told_from_a_move(double: S3Double, bench: Bench) -> None:
    upload(double, bench.path, "cp")
    status, said = accept(f"s3a://{BUCKET}/cp", "--force")
    assert status == 1
    assert f"s3a://{BUCKET}/cp is a copy: the same decision log is still at {bench.path}" in said


def test_a_copy_in_a_folder_of_one_on_a_store_is_told_from_a_move(
    double: S3Double, bench: Bench, tmp_path: Path
) -> None:
    at_home(double, bench, "cp")
    download(double, "cp", tmp_path / "copy")
    status, said = accept(tmp_path / "copy", "--force")
    assert (status, f"still at s3://{BUCKET}/cp" in said) == (1, True)
    remove(double, "cp")
    assert accept(tmp_path / "copy")[0] == 0


def test_a_copy_beside_it_on_the_same_store_is_told_from_a_move(double: S3Double, bench: Bench) -> None:
    at_home(double, bench, "cp")
    for name, data in list(double.objects.items()):
        double.objects[f"other/{name}"] = data
    status, said = accept(f"s3a://{BUCKET}/other/cp", "--force")
    assert (status, "is a copy" in said) == (1, True)
    assert not [name for name in double.objects if "/probes/" in name]
    with pytest.raises(CheckpointMovedError):
        open_log(f"s3a://{BUCKET}/other/cp", query=QUERY, create=True)
    remove(double, "cp")
    assert accept(f"s3a://{BUCKET}/other/cp")[0] == 0


def test_a_former_store_that_cannot_be_looked_at_wants_force(
    double: S3Double, bench: Bench, tmp_path: Path
) -> None:
    at_home(double, bench, "cp")
    download(double, "cp", tmp_path / "new")
    double.denied = {"GET"}
    status, said = accept(tmp_path / "new")
    assert status == 2
    assert "it cannot be told whether the former place still has this log" in said
    assert "s3:GetObject" in said
    assert "--force" in said
    assert accept(tmp_path / "new", "--force")[0] == 0


def test_a_former_folder_of_another_machine_wants_force(double: S3Double, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "disk/cp")
    bench.complete(0)
    upload(double, bench.path, "cp")
    shutil.rmtree(tmp_path / "disk")
    status, said = accept(f"s3a://{BUCKET}/cp")
    assert (status, f"{tmp_path}/disk is not there on this machine" in said) == (2, True)
    assert accept(f"s3a://{BUCKET}/cp", "--force")[0] == 0


def test_no_login_goes_to_a_host_because_the_checkpoint_names_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(move, "log_store", asked.append)
    moved = tmp_path / "moved"
    shutil.move(bench.path, moved)
    record_move(LocalStore(moved / "onceonly"), "abfss://data@account.dfs.example.com/cp")
    status, said = accept(moved)
    assert (status, "only the checkpoint names it" in said, "--force" in said) == (2, True, True)
    assert accept(moved, "--force")[0] == 0
    assert asked == []


# --- two addresses of one place ---------------------------------------------------------------------------


def test_another_address_of_the_same_place_is_no_copy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bench: Bench
) -> None:
    """A name node that gets a name service has another address; what is there stays where it is."""
    for double in serve_hdfs(HdfsDouble()):
        addresses = "\n".join(
            f"spark.hadoop.dfs.namenode.http-address.{service} {double.host}"
            for service in ("nn1", "cluster")
        )
        told(monkeypatch, tmp_path / "hdfs.conf", addresses)
        for path in bench.path.rglob("*"):
            if path.is_file():
                double.files[f"/cp/{path.relative_to(bench.path)}"] = path.read_bytes()
        accept_move("hdfs://nn1/cp")
        assert accept("hdfs://cluster/cp")[0] == 0
        listed = json.loads(run("checkpoints", "list", "hdfs://cluster/cp", "--json").stdout)
        (found,) = listed["checkpoints"]
        assert (found["home"], found["moved"], found["epochs_known"]) == ("hdfs://cluster/cp", False, 2)
        assert not [name for name in double.files if "/probes/" in name]
        # Another place with the same log is a copy there, too.
        for name, data in list(double.files.items()):
            double.files[f"/copy{name}"] = data
        assert accept("hdfs://cluster/copy/cp")[0] == 1
