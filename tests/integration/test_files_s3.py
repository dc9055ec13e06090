"""The file sink on a real S3 server, SeaweedFS: the conformance suite, readers that list, uploads that are ended."""

# ruff: noqa: F811  fixtures are asked for by name

from __future__ import annotations

import io
import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from s3_bench import BUCKET, listed, server, told  # noqa: F401  fixtures

from onceonly import files
from onceonly.errors import ConfigurationError
from onceonly.model import Committed, Guarantee, Lost
from onceonly.ports import QueryContext, WriteContext
from onceonly.sinks.files import FilesSink
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.rights import require_rights
from onceonly_proof.conformance import SinkConformance
from onceonly_proof.embedded.s3 import SECRET, EmbeddedS3, client_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onceonly.model import Handle

pytestmark = pytest.mark.integration

COLUMNS = (("id", "bigint"), ("day", "string"))
_folders = itertools.count()


def shown(server: EmbeddedS3, folder: str) -> Iterator[str]:
    """Those that Hive's and Spark's rule does not hide."""
    for name in listed(server, folder):
        if not any(part[0] in "._" for part in name.removeprefix(folder + "/").split("/")):
            yield name


class TestSeaweed(SinkConformance):
    sink = FilesSink
    every_pass = False

    @pytest.fixture(autouse=True)
    def s3(self, server: EmbeddedS3) -> None:
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        return {"path": f"s3a://{BUCKET}/rows-{next(_folders)}"}

    def visible(self, options: Mapping[str, str]) -> Iterator[tuple[object, ...]]:
        for name in shown(self.server, _folder(options)):
            content = self.server.read(BUCKET, name)
            if content is not None:
                yield from (tuple(row.values()) for row in pq.read_table(io.BytesIO(content)).to_pylist())

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return self.server.uploads(BUCKET, _folder(options) + "/")

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        self.server.kill()
        yield
        self.server.start()


def _folder(options: Mapping[str, str]) -> str:
    return options["path"].removeprefix(f"s3a://{BUCKET}/")


class Bench:
    """A sink with its contexts, in a folder of its own."""

    def __init__(self, **options: str) -> None:
        self.folder = f"bench-{next(_folders)}"
        self.path = f"s3a://{BUCKET}/{self.folder}"
        self.sink = FilesSink({"path": self.path, "partitionby": "day", **options})
        self.context = QueryContext(
            query="q", sink="files", guarantee=Guarantee.EXACTLY_ONCE, columns=COLUMNS
        )
        self._facts = self.sink.check(self.context)

    def prepared(self, epoch: int, *ids: int) -> Handle:
        context = WriteContext(
            query="q", sink="files", run="r", epoch=epoch, plan="p", slot=0, attempt="1",
            guarantee=Guarantee.EXACTLY_ONCE, facts=self._facts,
        )  # fmt: skip
        attempt = self.sink.begin_transaction(context)
        days = ["a:b" if number % 2 else "ü %25" for number in ids]
        self.sink.write(attempt, pa.record_batch({"id": list(ids), "day": days}))
        return self.sink.pre_commit(attempt)


def test_readers_that_list_see_decided_rows_alone(server: EmbeddedS3) -> None:
    bench = Bench()
    reader = pafs.S3FileSystem(
        access_key="all", secret_key=SECRET, endpoint_override=server.url, scheme="http", region="us-east-1"
    )

    def seen() -> list[tuple[int, str]]:
        found = ds.dataset(f"{BUCKET}/{bench.folder}", filesystem=reader, partitioning="hive").to_table()
        return sorted((row["id"], row["day"]) for row in found.to_pylist()) if found.num_columns else []

    handle, other = bench.prepared(0, 1, 2), bench.prepared(0, 7)
    assert list(shown(server, bench.folder)) == []
    assert bench.sink.commit(handle) == Committed()
    bench.sink.complete(bench.context, 0, [handle])
    assert seen() == [(1, "a:b"), (2, "ü %25")]
    assert [epoch.rows for epoch in files.committed(bench.path)] == [2]
    (left,) = [each for each in bench.sink.recover(bench.context) if each.transaction == other.transaction]
    bench.sink.abort(left.handle)
    assert bench.prepared(1, 3).transaction
    assert seen() == [(1, "a:b"), (2, "ü %25")]


def test_an_upload_that_somebody_ended_is_lost_and_its_rows_are_written_again(server: EmbeddedS3) -> None:
    bench = Bench()
    handle = bench.prepared(0, 1, 2)
    s3 = client_of(server.url)
    (first, *_) = s3.list_multipart_uploads(Bucket=BUCKET, Prefix=bench.folder + "/")["Uploads"]
    s3.abort_multipart_upload(Bucket=BUCKET, Key=first["Key"], UploadId=first["UploadId"])
    assert isinstance(bench.sink.commit(handle), Lost)
    assert isinstance(bench.sink.commit(handle), Lost)
    assert list(shown(server, bench.folder)) == []
    again = bench.prepared(0, 1, 2)
    assert bench.sink.commit(again) == Committed()
    bench.sink.complete(bench.context, 0, [again])
    assert [epoch.rows for epoch in files.committed(bench.path)] == [2]
    assert s3.list_multipart_uploads(Bucket=BUCKET, Prefix=bench.folder + "/").get("Uploads", []) == []


def test_a_file_of_several_parts_comes_as_a_whole(server: EmbeddedS3) -> None:
    bench = Bench(compression="none")
    ids = range(1, 4_000_001, 2)  # of one day, and of more than one part
    handle = bench.prepared(0, *ids)
    assert bench.sink.commit(handle) == Committed()
    (name,) = shown(server, bench.folder)
    content = server.read(BUCKET, name)
    assert content is not None
    assert len(content) > 8 << 20
    assert pq.read_table(io.BytesIO(content))["id"].to_pylist() == list(ids)


def test_who_may_only_read_lacks_the_right_to_put_before_anything_is_put(server: EmbeddedS3) -> None:
    place = parse(f"s3a://{BUCKET}/rights")
    before = server.names(BUCKET, "")
    assert require_rights(place, ["a/"], in_parts=True) in {
        "", f"what may be removed in {place.shown} shows only in doing it",
    }  # fmt: skip
    opened.tell(Hadoop(server.hadoop("reader")))
    with pytest.raises(ConfigurationError, match="could not be put: S3 does not permit it"):
        require_rights(place, ["a/"])
    assert server.names(BUCKET, "") == before


def test_who_may_only_read_is_told_what_is_missing(server: EmbeddedS3) -> None:
    opened.tell(Hadoop(server.hadoop("reader")))
    with pytest.raises(ConfigurationError, match="could not be put: S3 does not permit it") as caught:
        Bench()
    assert "s3:PutObject" in caught.value.next_step
    assert SECRET not in str(caught.value)
