"""The file sink on a real HDFS: the conformance suite, and what one name node alone can tell."""

from __future__ import annotations

import io
import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onceonly import files
from onceonly.model import Guarantee
from onceonly.ports import QueryContext, WriteContext
from onceonly.sinks.files import FilesSink
from onceonly.stores import opened, webhdfs
from onceonly.stores.access import Hadoop
from onceonly_proof.conformance import SinkConformance
from onceonly_proof.embedded.hdfs import EmbeddedHdfs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.integration

_folders = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedHdfs]:
    with EmbeddedHdfs(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


@pytest.fixture(autouse=True)
def told(server: EmbeddedHdfs) -> Iterator[None]:
    opened.tell(Hadoop(server.hadoop()))
    yield
    opened.tell(Hadoop())


def listed(server: EmbeddedHdfs, folder: str) -> Iterator[str]:
    """All files, as whoever lists the folder finds them."""
    for name in server.names(folder):
        if name.endswith("/"):
            yield from listed(server, f"{folder}/{name.rstrip('/')}")
        else:
            yield f"{folder}/{name}"


def shown(server: EmbeddedHdfs, folder: str) -> Iterator[str]:
    """Those that Hive's and Spark's rule does not hide."""
    for name in listed(server, folder):
        if not any(part[0] in "._" for part in name.removeprefix(folder + "/").split("/")):
            yield name


@pytest.mark.long
class TestHdfs(SinkConformance):
    sink = FilesSink
    every_pass = False

    @pytest.fixture(autouse=True)
    def hdfs(self, server: EmbeddedHdfs) -> None:
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        return {"path": f"{self.server.url}/rows-{next(_folders)}"}

    def visible(self, options: Mapping[str, str]) -> Iterator[tuple[object, ...]]:
        for name in shown(self.server, self._folder(options)):
            content = self.server.read(name)
            if content is not None:
                yield from (tuple(row.values()) for row in pq.read_table(io.BytesIO(content)).to_pylist())

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [name for name in listed(self.server, self._folder(options)) if name.endswith(".staged")]

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(webhdfs, "_AGAIN_S", 0.2)
            self.server.kill("namenode")
            yield
            self.server.start()

    def _folder(self, options: Mapping[str, str]) -> str:
        return options["path"].removeprefix(self.server.url + "/")


def test_manifests_partitions_and_retention_are_as_on_a_disk(server: EmbeddedHdfs) -> None:
    sink = FilesSink({"path": f"{server.url}/out", "partitionby": "day", "retention": "1 second"})
    columns = (("id", "bigint"), ("day", "string"))
    context = QueryContext(query="q", sink="files", guarantee=Guarantee.EXACTLY_ONCE, columns=columns)
    facts = sink.check(context)
    for epoch in range(3):
        attempt = sink.begin_transaction(
            WriteContext(
                query="q",
                sink="files",
                run="r",
                epoch=epoch,
                plan="p",
                slot=0,
                attempt="1",
                guarantee=Guarantee.EXACTLY_ONCE,
                facts=facts,
            )
        )
        sink.write(attempt, pa.record_batch({"id": [1, 2], "day": ["a:b", "ü"]}))
        handle = sink.pre_commit(attempt)
        assert len(list(shown(server, "out"))) == 2 * epoch
        sink.commit(handle)
        sink.complete(context, epoch, [handle])
    folders = {name.split("/")[1] for name in shown(server, "out")}
    assert folders == {"day=a%3Ab", "day=ü"}
    assert [epoch.rows for epoch in files.committed(f"{server.url}/out")] == [2, 2, 2]
