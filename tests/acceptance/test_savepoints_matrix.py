"""Savepoints on a store of each operator, provider and format of state that Spark allows, against what never stopped.

Each query gets a savepoint beside it; then its checkpoint is deleted, the savepoint moved to another place of the
store, and restored to a third.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote
from urllib.request import Request, urlopen

import boto3
import pytest
import savepoint_job
from test_savepoints import CELLS, COMPARED, FILES, assert_alike
from test_savepoints_on_stores import BUCKET, Bench

from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
from onceonly_proof.embedded.s3 import SECRET, EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(3600)]


class Bucket:
    """A bucket as other programs see it."""

    def __init__(self, folder: Path) -> None:
        self.server = EmbeddedS3(folder)
        self.url = f"s3a://{BUCKET}"

    def start(self) -> None:
        self.server.start()
        self.server.make_bucket(BUCKET)
        self._client = boto3.client(
            "s3", endpoint_url=self.server.url, region_name="us-east-1", aws_access_key_id="all",
            aws_secret_access_key=SECRET,
        )  # fmt: skip

    def move(self, name: str, to: str) -> None:
        for key in self._keys(name):
            source = {"Bucket": BUCKET, "Key": key}
            self._client.copy_object(Bucket=BUCKET, Key=to + key.removeprefix(name), CopySource=source)
        self.remove(name)

    def remove(self, name: str) -> None:
        for key in self._keys(name):
            self._client.delete_object(Bucket=BUCKET, Key=key)

    def _keys(self, name: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{name}/")
        return [each["Key"] for page in pages for each in page.get("Contents", ())]


class FileSystem:
    """An HDFS as other programs see it."""

    def __init__(self, folder: Path) -> None:
        self.server = EmbeddedHdfs(folder)

    def start(self) -> None:
        self.server.start()
        self.url = self.server.url

    def move(self, name: str, to: str) -> None:
        assert b"true" in self._ask("PUT", name, f"RENAME&destination=/{quote(to)}")

    def remove(self, name: str) -> None:
        assert b"true" in self._ask("DELETE", name, "DELETE&recursive=true")

    def _ask(self, method: str, name: str, operation: str) -> bytes:
        url = f"http://{self.server.web}/webhdfs/v1/{quote(name)}?op={operation}"
        with urlopen(Request(url, method=method), timeout=30) as answer:
            found: bytes = answer.read()
            return found


@pytest.fixture(params=[Bucket, FileSystem], ids=["s3", "hdfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bucket | FileSystem]:
    made: Bucket | FileSystem = request.param(tmp_path / "server")
    with made.server:
        made.start()
        opened.tell(Hadoop(made.server.hadoop()))
        yield made
    opened.tell(Hadoop())


@pytest.mark.parametrize(("operator", "provider"), CELLS, ids=["-".join(cell) for cell in CELLS])
def test_it_goes_on_alike_with_the_original_gone_and_the_savepoint_moved(
    store: Bucket | FileSystem, tmp_path: Path, operator: str, provider: str
) -> None:
    # Each epoch of a store takes some hundred requests: a machine that does much else takes minutes for a few.
    bench = Bench(store.server, tmp_path, operator, provider, patience_s=600)
    if operator == "files":
        savepoint_job.write_files(tmp_path / "in", FILES)
    ledgers = tmp_path / "ledger", tmp_path / "ledger2"
    epoch = bench.cut_beside(f"{store.url}/one", ledgers[0], f"{store.url}/place")
    store.remove("one")
    store.move("place", "moved")
    bench.restored(f"{store.url}/moved", f"{store.url}/two")
    bench.goes_on(f"{store.url}/two", ledgers[1], epoch + COMPARED)
    assert_alike(*ledgers, range(epoch + 1, epoch + COMPARED + 1))
