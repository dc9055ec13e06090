"""A query whose checkpoint and files are in a bucket that keeps versions, or locks every object for a time.

Where a server keeps what is replaced or removed as a version, the query goes on; where it refuses, that is said before
the first record, by name.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from stored_query import ROWS, StoredQuery

from onceonly.errors import ConfigurationError
from onceonly.log.place import log_store
from onceonly.operations import expire
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.embedded.moto import EmbeddedMoto
from onceonly_proof.embedded.s3 import EmbeddedS3, client_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.long]  # further servers

EPOCHS = 32
"""So many that old ones are folded, and taken away."""
MODES = ("GOVERNANCE", "COMPLIANCE")
_numbers = itertools.count()


def make_buckets(client: Any) -> None:  # noqa: ANN401  boto3 has no types
    """Make one that keeps versions, one in which objects can be locked, and two that lock each for a day."""
    client.create_bucket(Bucket="versions")
    client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    client.create_bucket(Bucket="lockable", ObjectLockEnabledForBucket=True)
    for mode in MODES:
        bucket = mode.lower()
        client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        rule = {"DefaultRetention": {"Mode": mode, "Days": 1}}
        client.put_object_lock_configuration(
            Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
        )


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMoto]:
    with EmbeddedMoto(tmp_path_factory.mktemp("moto")) as found:
        make_buckets(found.client)
        yield found


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedS3]:
    with EmbeddedS3(tmp_path_factory.mktemp("s3"), volumes=40) as found:  # each bucket takes seven
        make_buckets(client_of(found.url))
        yield found


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(opened, "_clients", {})
    monkeypatch.setattr(opened, "_uploads", {})
    yield
    opened.tell(Hadoop())


def query_in(bucket: str, **options: str) -> StoredQuery:
    folder = f"s3a://{bucket}/{next(_numbers)}"
    return StoredQuery(f"{folder}/chk", f"{folder}/out", **options)


def client_for(server: EmbeddedMoto | EmbeddedS3) -> Any:  # noqa: ANN401  as above
    return server.client if isinstance(server, EmbeddedMoto) else client_of(server.url)


def rows(server: EmbeddedMoto | EmbeddedS3, query: StoredQuery) -> Counter[int]:
    """Count the rows that anybody finds who lists the target."""
    bucket, _, prefix = query.path.removeprefix("s3a://").partition("/")
    client, found = client_for(server), Counter[int]()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/"):
        for each in page.get("Contents", ()):
            if not any(part[0] in "._" for part in each["Key"].removeprefix(f"{prefix}/").split("/")):
                content = client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()
                found.update(int(json.loads(line)["id"]) for line in content.splitlines())
    return found


def lives_on(server: EmbeddedMoto | EmbeddedS3, query: StoredQuery) -> None:
    """Run a query through restarts until its log is folded twice, then let its old files expire."""
    query.begin()
    query.write(*range(EPOCHS // 2))
    query.start()
    plan = query.plan(EPOCHS // 2)  # one that is given up: its uploads are ended by the next life
    query.prepare(plan)
    query.start()
    query.write(*range(EPOCHS // 2, EPOCHS))
    assert rows(server, query) == Counter(range(ROWS * EPOCHS))
    log = log_store(query.checkpoint)
    assert log.list_names("history/"), "old links are folded, which removes them"
    assert len(log.list_names("links/")) < EPOCHS
    query.close()
    (place,) = expire.places(query.checkpoint)
    for _ in range(2):  # out of the manifests, and then the files
        expire.carry_out(place, expire.look(place, older_s=0, grace_s=0))
    assert len(rows(server, query)) < ROWS * EPOCHS
    query.start()
    query.write(EPOCHS)


@pytest.mark.parametrize(
    ("kind", "bucket"), [("moto", "versions"), ("moto", "lockable"), ("seaweed", "lockable")]
)
def test_where_what_is_removed_stays_as_a_version_a_query_goes_on_as_elsewhere(
    request: pytest.FixtureRequest, kind: str, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = request.getfixturevalue(kind)
    opened.tell(Hadoop(server.hadoop()))
    query = query_in(bucket)
    lives_on(server, query)
    assert "keeps a version of each object" in caplog.text
    prefix = query.checkpoint.removeprefix(f"s3a://{bucket}/")
    kept = client_for(server).list_object_versions(Bucket=bucket, Prefix=prefix)
    assert kept["DeleteMarkers"], "nothing is removed for good"


@pytest.mark.parametrize("mode", MODES)
def test_a_bucket_that_locks_what_is_put_there_is_refused_by_name_before_the_first_record(
    moto: EmbeddedMoto, tmp_path: Path, mode: str
) -> None:
    opened.tell(Hadoop(moto.hadoop()))
    bucket = mode.lower()
    (tmp_path / "chk").mkdir()
    for query in (
        query_in(bucket),
        StoredQuery(str(tmp_path / "chk"), f"s3a://{bucket}/out-{next(_numbers)}"),
    ):
        with pytest.raises(ConfigurationError, match="the bucket keeps every object for a time") as caught:
            started(query)
        assert f"s3://{bucket}/" in caught.value.what
        assert "use a bucket without" in caught.value.next_step
    assert moto.client.list_object_versions(Bucket=bucket).get("Versions", []) == []


def started(query: StoredQuery) -> None:
    query.begin()
    query.plan(0)


def test_a_server_that_takes_it_all_the_same_keeps_it_as_a_version(seaweed: EmbeddedS3) -> None:
    opened.tell(Hadoop(seaweed.hadoop()))
    lives_on(seaweed, query_in("compliance"))


@pytest.mark.parametrize("kind", ["moto", "seaweed"])
def test_objects_that_somebody_locks_one_by_one_stay_as_versions_and_the_query_goes_on(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """As a tool for back-ups does, or a person who keeps evidence."""
    server = request.getfixturevalue(kind)
    opened.tell(Hadoop(server.hadoop()))
    query = query_in("lockable")
    query.begin()
    query.write(*range(EPOCHS // 2))
    client = client_for(server)
    prefix = query.checkpoint.removeprefix("s3a://lockable/").removesuffix("chk")
    until = datetime.now(UTC) + timedelta(days=1)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="lockable", Prefix=prefix):
        for each in page["Contents"]:
            client.put_object_retention(
                Bucket="lockable", Key=each["Key"], Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until}
            )
    query.start()
    query.write(*range(EPOCHS // 2, EPOCHS))
    assert rows(server, query) == Counter(range(ROWS * EPOCHS))
    assert len(log_store(query.checkpoint).list_names("links/")) < EPOCHS
