"""A job with its checkpoint on S3: a savepoint beside it, restored elsewhere on it, on this machine, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import harness
import pytest
import savepoint_job
from harness import python_path
from savepoint_job import newest
from test_operators_view import LEDGER
from test_operators_view import onceonly as command
from test_savepoints import COMPARED, CUT, FILES, assert_alike, end_after, finished

from onceonly.jars.locked import ensure_jars, spark_jars
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.embedded.s3 import SECRET, EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Run

    from onceonly_proof.embedded.hdfs import EmbeddedHdfs

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1800)]

BUCKET = "checkpoints"


@dataclass
class Bench:
    """A store, a folder, and how a job and the command line reach them."""

    server: EmbeddedS3 | EmbeddedHdfs
    folder: Path
    operator: str
    provider: str
    patience_s: float = harness.TIMEOUT_S
    """How long the job is waited for, each time."""

    def start(self, checkpoint: str, ledger: Path) -> Run:
        jars = [spark_jars()]
        if isinstance(self.server, EmbeddedS3):  # Spark has Hadoop's client of HDFS
            jars += map(str, ensure_jars(used_by="store-s3a"))
        conf = {f"spark.hadoop.{name}": value for name, value in self.server.hadoop().items()}
        env = {
            "PYTHONPATH": python_path(),
            "SAVEPOINT_FILES": str(self.folder / "in"),
            # A copy takes some requests a file, so that Spark must keep more than on a disk.
            "SAVEPOINT_JOB": json.dumps(
                {**conf, "spark.jars": ",".join(jars), "spark.sql.streaming.minBatchesToRetain": "20"}
            ),
        }
        told = (checkpoint, str(ledger), self.operator, self.provider)
        return harness.start(savepoint_job.__file__, self.folder, *told, env=env)

    def onceonly(self, *arguments: str) -> Any:  # noqa: ANN401  JSON
        conf = self.folder / "spark-defaults.conf"
        lines = [f"spark.hadoop.{name} {value}\n" for name, value in self.server.hadoop().items()]
        conf.write_text("".join(lines), encoding="utf-8")
        status, told, said = command(*arguments, ONCEONLY_HADOOP_CONF=str(conf))
        assert status == 0, said
        assert SECRET not in said
        return told

    def cut_beside(self, checkpoint: str, ledger: Path, place: str) -> int:
        """Run the job, make a savepoint beside it, and let it go on for a while; give the savepoint's epoch."""
        run = self.start(checkpoint, ledger)
        try:
            first = newest(checkpoint)
            wanted = max(first + 2, CUT)
            run.until(lambda: newest(checkpoint) >= wanted, "epochs were noted", self.patience_s, poll_s=1)
            made = self.onceonly("savepoint", "create", checkpoint, place)
            self.onceonly("savepoint", "verify", place)
            end_after(control(checkpoint, ledger), made["epoch"] + COMPARED)
            finished(run, self.patience_s)
        finally:
            run.kill_tree()
        epoch: int = made["epoch"]
        return epoch

    def restored(self, place: str, to: str) -> None:
        self.onceonly("savepoint", "restore", place, "--to", to, "--output", "again", *LEDGER)

    def goes_on(self, checkpoint: str, ledger: Path, last: int) -> None:
        end_after(control(checkpoint, ledger), last)
        finished(self.start(checkpoint, ledger), self.patience_s)

    def remove(self, address: str) -> None:
        """Take away all that is below an address, as another program does."""
        client = boto3.client(
            "s3", endpoint_url=self.server.url, region_name="us-east-1", aws_access_key_id="all",
            aws_secret_access_key=SECRET,
        )  # fmt: skip
        prefix = address.removeprefix(f"s3a://{BUCKET}/") + "/"
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
            for each in page.get("Contents", ()):
                client.delete_object(Bucket=BUCKET, Key=each["Key"])


def control(checkpoint: str, ledger: Path) -> Path:
    return ledger if "://" in checkpoint else Path(checkpoint)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedS3]:
    with EmbeddedS3(tmp_path / "s3") as found:
        found.make_bucket(BUCKET)
        opened.tell(Hadoop(found.hadoop()))
        yield found
    opened.tell(Hadoop())


def test_from_one_place_on_the_store_to_another_with_the_original_gone(
    server: EmbeddedS3, tmp_path: Path
) -> None:
    bench = Bench(server, tmp_path, "window", "changelog")
    one, place, two = (f"s3a://{BUCKET}/{name}" for name in ("one", "place", "two"))
    epoch = bench.cut_beside(one, tmp_path / "ledger", place)
    bench.remove(one)
    bench.restored(place, two)
    bench.goes_on(two, tmp_path / "ledger2", epoch + COMPARED)
    assert_alike(tmp_path / "ledger", tmp_path / "ledger2", range(epoch + 1, epoch + COMPARED + 1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("operator", "provider"),
    [
        ("window", "rocksdb"),
        ("tws", "changelog2"),
        ("join", "hdfs"),
        ("files", "rocksdb2"),
        ("dedup", "changelog"),
    ],
)
def test_from_the_store_to_this_machine_and_back(
    server: EmbeddedS3, tmp_path: Path, operator: str, provider: str
) -> None:
    bench = Bench(server, tmp_path, operator, provider)
    if operator == "files":
        savepoint_job.write_files(tmp_path / "in", FILES)
    one, back = f"s3a://{BUCKET}/one", f"s3a://{BUCKET}/back"
    here = str(tmp_path / "here")
    first = bench.cut_beside(one, tmp_path / "ledger", str(tmp_path / "place"))
    bench.remove(one)
    bench.restored(str(tmp_path / "place"), here)
    second = bench.cut_beside(here, tmp_path / "ledger2", f"s3a://{BUCKET}/place")
    assert_alike(tmp_path / "ledger", tmp_path / "ledger2", range(first + 1, first + COMPARED + 1))
    bench.restored(f"s3a://{BUCKET}/place", back)
    bench.goes_on(back, tmp_path / "ledger3", second + COMPARED)
    assert_alike(tmp_path / "ledger2", tmp_path / "ledger3", range(second + 1, second + COMPARED + 1))
