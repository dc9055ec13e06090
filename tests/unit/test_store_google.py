"""The store of the log over a small server that speaks Google Cloud Storage's XML interface, as ``obstore`` asks it."""

from __future__ import annotations

import time
from itertools import product
from typing import TYPE_CHECKING

import pytest
from tests.unit.s3_double import BUCKET, Fault, S3Double, serve

from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly.log import open_log
from onceonly.model import Link, LinkKind
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.objects import ObjectStore
from onceonly.stores.port import Store, put_once
from onceonly.stores.rights import require_rights
from onceonly_proof.stores.laws import NAME, RewritableLaws

if TYPE_CHECKING:
    from collections.abc import Iterator

MISLEADING = [
    Fault(cut=True),
    Fault(cut=True, done=True),
    Fault(503, "ServiceUnavailable"),
    Fault(500, "InternalError", done=True),
    Fault(429, "SlowDown"),
    Fault(412, "PreconditionFailed", done=True),
]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Double]:
    yield from serve(S3Double(google=True))


@pytest.fixture
def double(server: S3Double) -> S3Double:
    server.reset()
    return server


def told(double: S3Double) -> Hadoop:
    return Hadoop({"fs.gs.storage.root.url": double.url, "fs.gs.auth.type": "UNAUTHENTICATED"})


@pytest.fixture
def checkpoint(double: S3Double) -> Iterator[str]:
    opened.tell(told(double))
    yield f"gs://{BUCKET}/chk"
    opened.tell(Hadoop())


def store_at(double: S3Double, path: str = f"gs://{BUCKET}/chk/onceonly") -> ObjectStore:
    address = parse(path)
    return ObjectStore(opened.make_client(address, told(double).access(address)), address)


@pytest.fixture
def store(double: S3Double, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A store whose server's answers come through as they are; else ``obstore`` asks again itself."""
    monkeypatch.setitem(opened._RETRIES, "max_retries", 0)
    return store_at(double)


class TestGoogle(RewritableLaws):
    @pytest.fixture
    def store(self, double: S3Double) -> Store:
        return store_at(double)


@pytest.mark.parametrize("faults", list(product(MISLEADING, repeat=2)))
def test_whatever_a_put_is_answered_what_it_returns_is_what_stands(
    double: S3Double, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, faults: tuple[Fault, ...]
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    double.fault("PUT", *faults)
    assert put_once(store, NAME, b"ours") == b"ours" == store.get(NAME)
    double.fault("PUT", *faults)
    assert put_once(store, NAME, b"theirs") == b"ours" == store.get(NAME)


def test_a_log_is_opened_by_the_address_of_its_checkpoint(checkpoint: str) -> None:
    log = open_log(checkpoint, query="q", create=True)
    link = Link(epoch=0, index=0, kind=LinkKind.COMMIT, plan="p", run="r")
    log.put_link(link)
    assert open_log(checkpoint, query="q", create=False).chain(0) == (link,)
    with pytest.raises(OnceonlyError, match="belongs to the query q"):
        open_log(checkpoint, query="other", create=True)


def test_a_store_that_does_not_look_at_the_condition_is_refused(double: S3Double, store: ObjectStore) -> None:
    double.lies = True
    with pytest.raises(ConfigurationError, match="puts a file over another"):
        store.prepare([])


def test_a_bucket_that_is_not_there_is_missed_by_every_call(double: S3Double) -> None:
    absent = store_at(double, "gs://absent/chk")
    for call in (
        lambda: absent.put_if_absent(NAME, b""),
        lambda: absent.replace(NAME, b""),
        lambda: absent.get(NAME),
        lambda: absent.list_names("links/"),
        lambda: absent.delete(NAME),
    ):
        with pytest.raises(ConfigurationError, match="there is no such bucket"):
            call()


@pytest.mark.parametrize("method", ["PUT", "GET", "LIST", "DELETE"])
def test_a_right_that_is_missing_is_named(double: S3Double, store: ObjectStore, method: str) -> None:
    double.denied.add(method)
    with pytest.raises(ConfigurationError, match="does not permit it") as caught:
        store.prepare([])
    right = {"PUT": "create", "GET": "get", "LIST": "list", "DELETE": "delete"}[method]
    assert f"storage.objects.{right}" in caught.value.next_step


@pytest.mark.usefixtures("checkpoint")
def test_of_a_bucket_each_right_is_asked_for_by_what_changes_nothing(double: S3Double) -> None:
    place = parse(f"gs://{BUCKET}/chk")
    store_at(double).put_if_absent("links/1", b"x")
    before = dict(double.objects)
    assert require_rights(place, ["", "onceonly/"]) == ""
    for call, verb in (("LIST", "listed"), ("HEAD", "read"), ("PUT", "put"), ("DELETE", "removed")):
        double.denied = {call}
        with pytest.raises(ConfigurationError, match=f"could not be {verb}: Google Cloud Storage"):
            require_rights(place, ["", "onceonly/"])
    assert double.objects == before


@pytest.mark.usefixtures("checkpoint")
def test_a_bucket_that_knows_no_versions_keeps_nothing_of_the_question(double: S3Double) -> None:
    double.lies = True
    assert require_rights(parse(f"gs://{BUCKET}/chk")) == ""
    assert double.objects == {}


@pytest.mark.usefixtures("checkpoint")
def test_a_right_that_no_answer_tells_of_is_not_taken_for_granted(double: S3Double) -> None:
    double.fault("PUT", Fault(400, "InvalidArgument"))
    assert require_rights(parse(f"gs://{BUCKET}/chk")).startswith("what may be put in gs://")
