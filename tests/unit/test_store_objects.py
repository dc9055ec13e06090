"""Stores of objects, over a small server that misleads as real ones do, and over obstore's own memory."""

from __future__ import annotations

import json
import threading
import time
from itertools import product
from typing import TYPE_CHECKING

import pytest
from tests.unit.s3_double import BUCKET, Fault, S3Double, serve

from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.objects import ObjectStore
from onceonly.stores.port import PutUnknownError, RewritableStore, Store, put_once
from onceonly_proof.stores.laws import NAME, RewritableLaws

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRETS = ("sksksk", "SECRET")


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come through as they are; else ``obstore`` asks again itself."""
    monkeypatch.setitem(opened._RETRIES, "max_retries", 0)


def told(url: str, **more: str) -> Hadoop:
    return Hadoop(
        {
            "spark.hadoop.fs.s3a.endpoint": url,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "ak",
            "spark.hadoop.fs.s3a.secret.key": "sksksk",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in more.items()},
        }
    )


def store_at(url: str, path: str = f"s3a://{BUCKET}/chk/onceonly", **more: str) -> ObjectStore:
    address = parse(path)
    return ObjectStore(opened.make_client(address, told(url, **more).access(address)), address)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Double]:
    yield from serve(S3Double())


@pytest.fixture
def double(server: S3Double) -> S3Double:
    server.reset()
    return server


@pytest.fixture
def store(double: S3Double, no_retries: None) -> ObjectStore:
    return store_at(double.url)


class TestServer(RewritableLaws):
    @pytest.fixture
    def store(self, double: S3Double) -> Store:
        return store_at(double.url)


class TestWholeBucket(RewritableLaws):
    @pytest.fixture
    def store(self, double: S3Double) -> Store:
        return store_at(double.url, f"s3a://{BUCKET}")


class TestBusyServer(RewritableLaws):
    @pytest.fixture
    def store(self, double: S3Double, monkeypatch: pytest.MonkeyPatch) -> Store:
        monkeypatch.setattr(time, "sleep", lambda _: None)
        double.fault("PUT", Fault(), Fault(done=True), Fault(500, "InternalError", done=True))
        double.fault("GET", Fault(500, "InternalError"))
        return store_at(double.url)


class TestMemory(RewritableLaws):
    def fresh(self, folder: Path) -> Store:
        from obstore.store import MemoryStore

        return ObjectStore(MemoryStore(), parse("s3a://bucket/chk"))


MISLEADING = [
    Fault(cut=True),
    Fault(cut=True, done=True),
    Fault(503, "SlowDown"),
    Fault(503, "SlowDown", done=True),
    Fault(500, "InternalError", done=True),
    Fault(429, "TooManyRequests"),
    Fault(412, "PreconditionFailed", done=True),
    Fault(409, "ConditionalRequestConflict"),
    Fault(409, "ConditionalRequestConflict", done=True),
]


@pytest.mark.parametrize("faults", list(product(MISLEADING, repeat=2)))
def test_whatever_a_put_is_answered_what_it_returns_is_what_stands(
    double: S3Double, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, faults: tuple[Fault, ...]
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    double.fault("PUT", *faults)
    assert put_once(store, NAME, b"ours") == b"ours" == store.get(NAME)
    double.fault("PUT", *faults)
    assert put_once(store, NAME, b"theirs") == b"ours" == store.get(NAME)


def test_a_put_that_is_busy_is_not_known_to_have_failed(double: S3Double, store: ObjectStore) -> None:
    double.fault("PUT", Fault(503, "SlowDown", done=True))
    with pytest.raises(PutUnknownError, match="503"):
        store.put_if_absent(NAME, b"x")
    assert store.get(NAME) == b"x"


def test_a_list_is_read_to_its_last_page(double: S3Double, store: ObjectStore) -> None:
    names = {f"links/{number:020d}.0.json" for number in range(7)}
    for name in names:
        store.put_if_absent(name, b"")
    store.put_if_absent("links2/8.json", b"")
    store.put_if_absent("links/below/9.json", b"")
    assert set(store.list_names("links/")) == names
    assert sum(method == "LIST" for method, _ in double.requests) > 2
    assert set(store.list_folders("")) == {"links", "links2"}
    assert store.list_folders("links/") == ["below"]
    assert store.list_folders("absent/") == store.list_names("absent/") == []


def test_what_is_truncated_on_its_way_is_not_taken_for_the_whole(
    double: S3Double, store: ObjectStore
) -> None:
    store.put_if_absent(NAME, b"0123456789")
    double.fault("GET", *[Fault(short=True)] * 20)
    with pytest.raises(UnavailableError):
        store.get(NAME)


def test_a_replaced_object_is_the_new_one(double: S3Double, store: RewritableStore) -> None:
    store.replace("alive/1.json", b"one")
    store.replace("alive/1.json", b"two")
    assert store.get("alive/1.json") == b"two"


def test_names_are_keys_letter_by_letter(double: S3Double) -> None:
    store = store_at(double.url, f"s3a://{BUCKET}/a b/c%20d/e+f#g?h=ä")
    store.put_if_absent("links/1.json", b"x")
    assert list(double.objects) == ["a b/c%20d/e+f#g?h=ä/links/1.json"]
    assert store.get("links/1.json") == b"x"
    assert store.list_names("links/") == ["links/1.json"]


def test_a_name_that_is_taken_is_taken_also_where_it_is_called_a_conflict(
    double: S3Double, store: ObjectStore
) -> None:
    store.put_if_absent(NAME, b"first")
    double.fault("PUT", Fault(409, "BlobAlreadyExists"))
    assert not store.put_if_absent(NAME, b"second")


# --- before the first record --------------------------------------------------------------------------------


def test_a_fit_store_is_found_fit_and_nothing_stays(double: S3Double, store: ObjectStore) -> None:
    store.prepare(["links/"])
    assert double.objects == {}


def test_what_another_process_left_of_its_probe_is_taken_away_when_it_is_old(
    double: S3Double, store: ObjectStore
) -> None:
    old, new = f"chk/onceonly/probes/1000-{'0' * 16}", f"chk/onceonly/probes/{int(time.time())}-{'1' * 16}"
    double.objects.update({old: b"first", new: b"first", "chk/onceonly/probes/foreign": b""})
    store.prepare([])
    assert set(double.objects) == {new, "chk/onceonly/probes/foreign"}


def test_a_store_that_lies_about_conditions_is_refused_by_name(double: S3Double, store: ObjectStore) -> None:
    double.lies = True
    with pytest.raises(ConfigurationError, match=r"s3://bucket/chk/onceonly puts a file over another"):
        store.prepare([])
    assert double.objects == {}


def test_a_bucket_that_keeps_versions_is_taken_with_a_warning(
    double: S3Double, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.prepare([])
    assert not caplog.messages
    double.versions = True
    store.prepare([])
    (told,) = caplog.messages
    assert told.startswith("The store of s3://bucket/chk/onceonly keeps a version of each object")
    assert "lifecycle rule" in told


LOCKED = "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters"
KEPT = [
    ("PUT", 400, "InvalidRequest", LOCKED),
    ("DELETE", 400, "InvalidRequest", "Object is WORM protected and cannot be overwritten"),
    ("DELETE", 409, "BlobImmutableDueToPolicy", ""),
    ("DELETE", 403, "retentionPolicyNotMet", ""),
]


@pytest.mark.parametrize(("method", "status", "code", "message"), KEPT)
def test_a_bucket_that_lets_nothing_be_removed_is_refused_before_the_first_record(
    double: S3Double, store: ObjectStore, method: str, status: int, code: str, message: str
) -> None:
    double.fault(method, Fault(status, code, message=message))
    with pytest.raises(ConfigurationError, match="the bucket keeps every object for a time") as caught:
        store.prepare([])
    assert "a bucket without" in caught.value.next_step
    assert not any(secret in str(caught.value) for secret in SECRETS)


def test_a_store_without_conditions_is_refused_by_name(double: S3Double, store: ObjectStore) -> None:
    double.fault("PUT", Fault(501, "NotImplemented"))
    with pytest.raises(ConfigurationError, match="no put with a condition"):
        store.prepare([])


@pytest.mark.parametrize(
    ("method", "verb", "right"),
    [("PUT", "put", "s3:PutObject"), ("GET", "read", "s3:GetObject"), ("LIST", "listed", "s3:ListBucket"),
     ("DELETE", "removed", "s3:DeleteObject")],
)  # fmt: skip
def test_a_right_that_is_missing_is_named(
    double: S3Double, store: ObjectStore, method: str, verb: str, right: str
) -> None:
    double.denied.add(method)
    with pytest.raises(ConfigurationError, match=f"could not be {verb}: S3 does not permit it") as caught:
        store.prepare([])
    assert right in caught.value.next_step


CAUSES = [
    (403, "ExpiredToken", "have expired"),
    (400, "ExpiredToken", "have expired"),
    (403, "InvalidAccessKeyId", "are not known"),
    (403, "SignatureDoesNotMatch", "are not known"),
    (403, "RequestTimeTooSkewed", "clock"),
    (301, "PermanentRedirect", "another region"),
    (400, "AuthorizationHeaderMalformed", "another region"),
]


@pytest.mark.parametrize(("status", "code", "says"), CAUSES)
def test_a_cause_that_a_person_must_see_to_is_named_and_no_secret_with_it(
    double: S3Double, store: ObjectStore, status: int, code: str, says: str
) -> None:
    for method, call in (
        ("PUT", lambda: store.put_if_absent(NAME, b"x")),
        ("GET", lambda: store.get(NAME)),
        ("LIST", lambda: store.list_names("links/")),
        ("DELETE", lambda: store.delete(NAME)),
    ):
        double.fault(method, Fault(status, code))
        with pytest.raises(ConfigurationError, match=says) as caught:
            call()
        assert not any(secret in str(caught.value) for secret in SECRETS)


def test_an_expired_token_in_the_middle_leaves_what_was_put(double: S3Double, store: ObjectStore) -> None:
    store.put_if_absent(NAME, b"decided")
    double.fault("PUT", Fault(400, "ExpiredToken"))
    with pytest.raises(ConfigurationError, match="expired"):
        put_once(store, "links/8.json", b"next")
    assert store.get(NAME) == b"decided"
    assert put_once(store, "links/8.json", b"next") == b"next"


def test_a_bucket_that_is_not_there_is_named_also_by_who_only_reads(
    double: S3Double, no_retries: None
) -> None:
    store = store_at(double.url, "s3a://absent/chk")
    for call in (
        lambda: store.get(NAME),
        lambda: store.list_names("links/"),
        lambda: store.list_folders(""),
        lambda: store.put_if_absent(NAME, b""),
        lambda: store.delete(NAME),
        lambda: store.replace(NAME, b""),
    ):
        with pytest.raises(ConfigurationError, match=r"s3://absent/chk.*there is no such bucket"):
            call()


def test_a_server_that_is_not_there_is_unavailable(no_retries: None) -> None:
    store = store_at("http://127.0.0.1:9")
    with pytest.raises(UnavailableError, match=r"s3://bucket/chk/onceonly/links.*no usable answer"):
        store.get(NAME)
    with pytest.raises(PutUnknownError):
        store.put_if_absent(NAME, b"")


# --- who asks, and how --------------------------------------------------------------------------------------


def test_what_hadoop_was_given_reaches_the_server(double: S3Double) -> None:
    store = store_at(
        double.url,
        **{"session.token": "tok", "encryption.algorithm": "SSE-KMS", "encryption.key": "arn:aws:kms:x"},
    )
    store.put_if_absent(NAME, b"x")
    sent = double.headers[0]
    assert sent["x-amz-security-token"] == "tok"
    assert sent["x-amz-server-side-encryption"] == "aws:kms"
    assert sent["x-amz-server-side-encryption-aws-kms-key-id"] == "arn:aws:kms:x"
    assert "Credential=ak/" in sent["authorization"]


def test_keys_of_the_job_are_not_mixed_with_a_token_of_the_environment(
    double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another's")
    store_at(double.url).put_if_absent(NAME, b"x")
    assert "x-amz-security-token" not in double.headers[0]


def test_a_profile_is_used_where_nothing_else_is_said(double: S3Double, tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id=pk\naws_secret_access_key=ps\n"
    )
    (tmp_path / ".aws" / "config").write_text("[default]\nregion=eu-west-1\n")
    address = parse(f"s3a://{BUCKET}/chk")
    access = Hadoop({"fs.s3a.endpoint": double.url, "fs.s3a.path.style.access": "true"}).access(address)
    ObjectStore(opened.make_client(address, access), address).put_if_absent(NAME, b"x")
    assert "Credential=pk/" in double.headers[0]["authorization"]
    assert "/eu-west-1/s3/" in double.headers[0]["authorization"]


def test_a_client_is_made_once_for_a_bucket_and_anew_for_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "_clients", {})
    monkeypatch.setattr(opened, "_told", told("http://127.0.0.1:9"))
    first, second = (opened.open_store(parse(f"s3a://{BUCKET}/{name}")) for name in "ab")
    assert isinstance(first, ObjectStore)
    assert isinstance(second, ObjectStore)
    assert first._client is second._client
    opened.tell(told("http://127.0.0.1:9", **{"session.token": "new"}))
    third = opened.open_store(parse(f"s3a://{BUCKET}/a"))
    assert isinstance(third, ObjectStore)
    assert third._client is not first._client


def test_no_error_of_a_store_holds_a_key_of_it(double: S3Double, no_retries: None) -> None:
    store = store_at(double.url)
    double.denied |= {"PUT", "GET", "LIST", "DELETE"}
    told_of: list[str] = []
    for call in (lambda: store.get(NAME), lambda: store.list_names(""), lambda: store.replace(NAME, b"")):
        with pytest.raises(OnceonlyError) as caught:
            call()
        told_of += [str(caught.value), repr(caught.value), json.dumps(repr(store))]
        assert caught.value.__cause__ is None
    assert not any(secret in text for text in told_of for secret in SECRETS)


def test_racing_writers_agree_on_one(double: S3Double) -> None:
    stores = [store_at(double.url) for _ in range(4)]
    told_of: list[bytes | None] = []

    def put(store: Store, number: int) -> None:
        told_of.append(put_once(store, NAME, b"%d" % number))

    threads = [threading.Thread(target=put, args=(store, n)) for n, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(told_of) == {stores[0].get(NAME)}
