"""Logins to HDFS by Kerberos: which request has a proof, and what is said where none is to be had or is not taken.

Codes and texts are those of MIT's library 1.20 and of Hadoop 3.4, as test_stores_kerberos.py sees them.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.unit.hdfs_double import Fault, HdfsDouble, serve

from onceonly.errors import ConfigurationError, SetupError, UnavailableError
from onceonly.stores import webhdfs
from onceonly.stores.address import parse
from onceonly.stores.hdfs import HdfsStore
from onceonly.stores.name_nodes import Server
from onceonly.stores.port import put_once
from onceonly.stores.webhdfs import WebHdfs
from onceonly_proof.stores.laws import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAJOR = "Major (851968): Unspecified GSS failure.  Minor code may provide more information, "
_SKEW = (
    "<html><title>Error 403 GSSException: Failure unspecified at GSS-API level (Mechanism level: Clock skew too great "
    "(37))</title></html>"
)


class _GSSError(Exception):
    def __init__(self, min_code: int, said: str) -> None:
        super().__init__(f"{_MAJOR}Minor ({min_code}): {said}")
        self.min_code = min_code


class _Library:
    """Stands for ``gssapi``: fails as often as it was told to."""

    def __init__(self) -> None:
        self.failures: list[_GSSError] = []
        self.asked: list[str] = []

    def step(self) -> bytes:
        if self.failures:
            raise self.failures.pop(0)
        return b"proof"

    def module(self) -> SimpleNamespace:
        def context(*, name: str, usage: str) -> _Library:
            self.asked.append(f"{usage} {name}")
            return self

        return SimpleNamespace(
            Name=lambda text, _: text,
            NameType=SimpleNamespace(hostbased_service=None),
            SecurityContext=context,
            exceptions=SimpleNamespace(GSSError=_GSSError),
        )


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> _Library:
    found = _Library()
    monkeypatch.setitem(sys.modules, "gssapi", found.module())
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(webhdfs, "_AGAIN_S", 1.0)
    return found


@pytest.fixture
def double() -> Iterator[HdfsDouble]:
    yield from serve(HdfsDouble())


@pytest.fixture
def store(double: HdfsDouble, library: _Library) -> HdfsStore:
    host, _, port = double.host.rpartition(":")
    web = WebHdfs((Server(host, int(port), tls=False),), kerberos=True)
    return HdfsStore(web, parse("hdfs://cluster/chk"))


def test_each_request_to_a_name_node_has_a_proof_for_its_host(store: HdfsStore, library: _Library) -> None:
    assert put_once(store, NAME, b"x") == b"x"
    assert store.get(NAME) == b"x"
    assert set(library.asked) == {"initiate HTTP@127.0.0.1"}


@pytest.mark.parametrize(
    ("code", "said", "what", "next_step"),
    [
        (2529638944, "Ticket expired", "has expired", "kinit"),
        (2529638919, "Server HTTP/nn@R not found in Kerberos database", "by that name", "http-address"),
        (2529638918, "Client 'bob@R' not found in Kerberos database", "who asks", "KRB5_CLIENT_KTNAME"),
        (2529638943, "Decrypt integrity check failed", "does not fit", "make it anew"),
        (2529639066, 'Cannot find KDC for realm "R"', "where the realm's KDC is", "KRB5_CONFIG"),
        (2529638949, "Clock skew too great", "clock differs", "NTP"),
        (2529639053, "No Kerberos credentials available (default cache: FILE:/x)", "there is no", "kinit"),
        (39756033, "whatever else", "there is no Kerberos ticket", "kinit"),
    ],
)
def test_what_is_wrong_with_a_ticket_or_keytab_is_said(
    store: HdfsStore, library: _Library, code: int, said: str, what: str, next_step: str
) -> None:
    library.failures = [_GSSError(code, said)]
    with pytest.raises(ConfigurationError, match=what) as caught:
        store.get(NAME)
    assert next_step in (caught.value.next_step or "")
    assert said in str(caught.value)
    assert "Major" not in str(caught.value)


def test_a_kdc_that_is_away_for_a_moment_is_asked_again(store: HdfsStore, library: _Library) -> None:
    put_once(store, NAME, b"x")
    library.failures = [_GSSError(2529639068, "Cannot contact any KDC for realm 'R'")] * 3
    assert put_once(store, NAME, b"y") == b"x"


def test_a_kdc_that_stays_away_is_said_after_a_bound(store: HdfsStore, library: _Library) -> None:
    library.failures = [_GSSError(2529639068, "Cannot contact any KDC for realm 'R'")] * 1_000_000
    with pytest.raises(UnavailableError, match=r"no KDC answers.*Cannot contact") as caught:
        store.get(NAME)
    assert "KDC" in (caught.value.next_step or "")


def test_a_clock_that_differs_from_the_servers_is_said(store: HdfsStore, double: HdfsDouble) -> None:
    double.fault("OPEN", Fault(page=_SKEW))
    with pytest.raises(ConfigurationError, match=r"clock differs.*NTP"):
        store.get(NAME)


@pytest.mark.parametrize(
    ("status", "page", "shown"),
    [
        (401, "<html><title>Error 401 Authentication required</title></html>", "by Kerberos"),
        (403, _SKEW.replace("Clock skew too great", "Checksum failed"), "Checksum failed"),
    ],
)
def test_a_proof_that_is_not_taken_is_said(
    store: HdfsStore, double: HdfsDouble, status: int, page: str, shown: str
) -> None:
    double.fault("OPEN", Fault(status=status, page=page))
    with pytest.raises(ConfigurationError, match=f"does not accept.*{shown}"):
        store.get(NAME)


def test_a_right_that_is_missing_is_no_fault_of_the_login(store: HdfsStore, double: HdfsDouble) -> None:
    double.fault("OPEN", Fault("AccessControlException"))
    with pytest.raises(ConfigurationError, match="does not permit"):
        store.get(NAME)


def test_without_its_library_a_login_is_refused_by_name(
    store: HdfsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(SetupError, match="gssapi"):
        store.get(NAME)
