"""Log and files on an S3 server that answers otherwise than SeaweedFS, moto's: laws, conformance, ended uploads."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from store_race import race
from stored_logs import StoredLogs

from onceonly.sinks.files import FilesSink
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.objects import ObjectStore
from onceonly.stores.rights import require_rights
from onceonly.stores.uploads import Completion
from onceonly_proof.conformance import SinkConformance
from onceonly_proof.embedded.moto import EmbeddedMoto
from onceonly_proof.stores.laws import RewritableLaws

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onceonly.stores.port import Store

pytestmark = [pytest.mark.integration, pytest.mark.long]  # a further server

BUCKET = "landing"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMoto]:
    with EmbeddedMoto(tmp_path_factory.mktemp("moto")) as found:
        found.make_bucket(BUCKET)
        yield found


@pytest.fixture(autouse=True)
def told(server: EmbeddedMoto) -> Iterator[None]:
    opened.tell(Hadoop(server.hadoop()))
    yield
    opened.tell(Hadoop())


@pytest.fixture
def checkpoint() -> str:
    return f"s3a://{BUCKET}/chk-{next(_numbers)}"


def store(server: EmbeddedMoto, place: str) -> ObjectStore:
    address = parse(place)
    return ObjectStore(opened.make_client(address, Hadoop(server.hadoop()).access(address)), address)


def shown(server: EmbeddedMoto, folder: str) -> Iterator[str]:
    """What Hive's and Spark's rule does not hide."""
    for name in server.names(BUCKET, folder):
        if not any(part[0] in "._" for part in name.removeprefix(folder + "/").split("/")):
            yield name


def test_rights_are_asked_for_and_nothing_is_left(server: EmbeddedMoto) -> None:
    place = parse(f"s3a://{BUCKET}/rights-{next(_numbers)}")
    store(server, place.location).replace("a/x", b"")
    asked = server.client
    # It has another answer than S3 to a part of an upload that it does not know.
    assert require_rights(place, ["a/", "b/"], in_parts=True).startswith("what may be put in ")
    assert server.names(BUCKET, place.path) == [f"{place.path}/a/x"]
    assert "Uploads" not in asked.list_multipart_uploads(Bucket=BUCKET, Prefix=place.path)
    versioned = f"{BUCKET}-versions"
    server.make_bucket(versioned)
    asked.put_bucket_versioning(Bucket=versioned, VersioningConfiguration={"Status": "Enabled"})
    assert "removed in" in require_rights(parse(f"s3a://{versioned}/x"))
    assert "DeleteMarkers" not in asked.list_object_versions(Bucket=versioned)


class TestLaws(RewritableLaws):
    @pytest.fixture
    def store(self, server: EmbeddedMoto) -> Store:
        return store(server, f"s3a://{BUCKET}/laws-{next(_numbers)}")


class TestLogs(StoredLogs):
    pass


class TestFiles(SinkConformance):
    sink = FilesSink
    every_pass = False

    @pytest.fixture(autouse=True)
    def s3(self, server: EmbeddedMoto) -> None:
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        return {"path": f"s3a://{BUCKET}/rows-{next(_numbers)}"}

    def visible(self, options: Mapping[str, str]) -> Iterator[tuple[object, ...]]:
        for name in shown(self.server, _folder(options)):
            content = self.server.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
            yield from (tuple(row.values()) for row in pq.read_table(io.BytesIO(content)).to_pylist())

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        found = self.server.client.list_multipart_uploads(Bucket=BUCKET, Prefix=_folder(options) + "/")
        return [each["Key"] for each in found.get("Uploads", ())]


def _folder(options: Mapping[str, str]) -> str:
    return options["path"].removeprefix(f"s3a://{BUCKET}/")


def test_of_eight_clients_that_put_at_once_exactly_one_wins(server: EmbeddedMoto) -> None:
    place = f"s3a://{BUCKET}/race-{next(_numbers)}"
    race(lambda: store(server, place))


def test_an_upload_is_completed_once_and_a_second_time_is_told_from_it(server: EmbeddedMoto) -> None:
    address = parse(f"s3a://{BUCKET}/uploads-{next(_numbers)}")
    uploads, key = opened.open_uploads(address), f"{address.path}/part.parquet"
    first, second = uploads.begin(key, "first"), uploads.begin(key, "second")
    parts = [[uploads.send(key, each, 1, each.encode())] for each in (first, second)]
    assert server.names(BUCKET, address.path) == []
    assert uploads.complete(key, first, parts[0]) is Completion.DONE
    found = uploads.look(key)
    assert found is not None
    assert found.token == "first"  # noqa: S105  no secret
    assert not uploads.stands(key, first)
    # This server says that it is done, others that it is gone, or that the name is taken: it is the same object.
    assert uploads.complete(key, first, parts[0]) is Completion.DONE
    assert uploads.complete(key, second, parts[1]) is Completion.TAKEN
    uploads.end(key, second)
    uploads.end(key, second)
    assert uploads.look(key) == found
