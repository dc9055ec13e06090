"""The store of the log on an HDFS that asks for logins by Kerberos, with a KDC, out of Debian's packages."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.hdfs import HdfsStore
from onceonly.stores.port import Store, put_once
from onceonly.stores.tokens import token_of_process
from onceonly.stores.webhdfs import WebHdfs
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
from onceonly_proof.embedded.kerberos import EmbeddedKdc, gssapi_folder, shifted_clock
from onceonly_proof.stores.laws import NAME, RewritableLaws

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.long]  # apt, a KDC, a further HDFS

_folders = itertools.count()
_READ = (
    "import sys; from onceonly.stores.configuration import settings; from onceonly.stores import opened; "
    "from pathlib import Path; opened.tell(settings([Path(sys.argv[1])])); "
    "print(opened.open_store(opened.address_of(sys.argv[2])).get(sys.argv[3]))"
)


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    folder = gssapi_folder()
    with pytest.MonkeyPatch.context() as patch:
        if folder is not None:
            patch.syspath_prepend(str(folder))
        yield


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKdc]:
    with EmbeddedKdc(tmp_path_factory.mktemp("kdc")) as found, pytest.MonkeyPatch.context() as patch:
        for name, value in found.environment.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, kdc: EmbeddedKdc) -> Iterator[EmbeddedHdfs]:
    with EmbeddedHdfs(tmp_path_factory.mktemp("hdfs"), kdc=kdc) as found:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KRB5CCNAME", f"FILE:{tmp_path_factory.mktemp('admin')}/cache")
            patch.setenv("KRB5_CLIENT_KTNAME", str(kdc.keytab("admin.keytab", "hdfs/localhost")))
            web = WebHdfs.of(parse(found.url), Hadoop(found.hadoop()))
            for _ in range(5):  # the very first login takes a busy machine long
                with contextlib.suppress(UnavailableError):
                    web.ask("PUT", "MKDIRS", "/alice")
                    web.ask("PUT", "SETOWNER", "/alice", owner="alice")
                    break
        yield found


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place for tickets, with none in it, and no keytab."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/cache")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def keytab(kdc: EmbeddedKdc) -> Path:
    return kdc.keytab("alice.keytab", "alice")


def store_of(server: EmbeddedHdfs, folder: str = "", **more: str) -> HdfsStore:
    folder = folder or f"laws-{next(_folders)}"
    return HdfsStore.at(parse(f"{server.url}/alice/{folder}"), Hadoop({**server.hadoop(), **more}))


class TestByKeytab(RewritableLaws):
    @pytest.fixture
    def store(
        self, server: EmbeddedHdfs, cache: Path, keytab: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Store:
        monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytab))
        return store_of(server)


class TestByTicket(RewritableLaws):
    @pytest.fixture
    def store(self, server: EmbeddedHdfs, kdc: EmbeddedKdc, cache: Path, keytab: Path) -> Store:
        kdc.ticket("alice", keytab, cache)
        return store_of(server)


def test_a_ticket_that_expires_stops_who_has_no_keytab_and_nobody_else(
    server: EmbeddedHdfs, kdc: EmbeddedKdc, cache: Path, keytab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdc.ticket("alice", keytab, cache, lifetime_s=5)
    got = time.monotonic()
    store = store_of(server)
    put_once(store, NAME, b"kept")
    time.sleep(max(0.0, got + 6 - time.monotonic()))  # what is tried is the passing of time
    with pytest.raises(ConfigurationError, match=r"the ticket has expired.*kinit"):
        store.get(NAME)
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytab))
    assert store.get(NAME) == b"kept"


def test_who_has_no_ticket_is_told_so(server: EmbeddedHdfs, cache: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"there is no Kerberos ticket for HTTP@localhost: No Kerberos cred"
    ):
        store_of(server).prepare([])


def test_who_may_not_write_there_is_told_so(server: EmbeddedHdfs, kdc: EmbeddedKdc, cache: Path) -> None:
    kdc.ticket("mallory", kdc.keytab("mallory.keytab", "mallory"), cache)
    with pytest.raises(ConfigurationError, match=r"HDFS does not permit it: Permission denied: user=mallory"):
        store_of(server).prepare([])


def test_a_keytab_with_old_keys_is_told_from_one_of_nobody(
    server: EmbeddedHdfs, kdc: EmbeddedKdc, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = kdc.keytab("old.keytab", "bob")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(old))
    kdc.remove("bob")
    with pytest.raises(ConfigurationError, match=r"the KDC does not know who asks \(Client 'bob@"):
        store_of(server).prepare([])
    kdc.keytab("new.keytab", "bob")
    with pytest.raises(ConfigurationError, match="the keytab does not fit the KDC"):
        store_of(server).prepare([])
    assert not cache.exists()


def test_a_name_node_that_is_called_by_another_name_is_named(
    server: EmbeddedHdfs, kdc: EmbeddedKdc, cache: Path, keytab: Path
) -> None:
    kdc.ticket("alice", keytab, cache)
    number = server.web.replace("localhost", "127.0.0.1")
    with pytest.raises(
        ConfigurationError, match=r"HTTP@127.0.0.1: the KDC does not know this server by that name"
    ):
        store_of(server, **{"dfs.namenode.http-address": number}).prepare([])


def test_who_does_not_say_that_the_cluster_has_kerberos_is_told_so(server: EmbeddedHdfs, cache: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"which has no proof.*hadoop.security.authentication=kerberos"
    ):
        store_of(server, **{"hadoop.security.authentication": "simple"}).prepare([])


@pytest.mark.parametrize("shift", [0, 1200])
def test_a_clock_that_differs_is_said(
    server: EmbeddedHdfs, kdc: EmbeddedKdc, cache: Path, keytab: Path, tmp_path: Path, shift: int
) -> None:
    kdc.ticket("alice", keytab, cache)
    store = store_of(server, "clock")
    put_once(store, NAME, b"here")
    told = tmp_path / "spark-defaults.conf"
    told.write_text("".join(f"spark.hadoop.{name} {value}\n" for name, value in server.hadoop().items()))
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(told), f"{server.url}/alice/clock", NAME],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(shifted_clock(shift) if shift else {})},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == ("" if shift else "b'here'")
    assert ("clock differs too much" in done.stderr) == bool(shift)


def test_a_kdc_that_dies_stops_nobody_who_has_a_ticket_and_one_that_comes_back_is_found(
    server: EmbeddedHdfs, kdc: EmbeddedKdc, cache: Path, keytab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdc.ticket("alice", keytab, cache)
    store = store_of(server)
    put_once(store, NAME, b"x")
    kdc.kill()
    assert store.get(NAME) == b"x"
    kdc.start()
    cache.unlink()
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(keytab))
    assert store.get(NAME) == b"x"


def test_a_container_logs_in_by_the_token_that_it_was_handed_until_that_ends(
    server: EmbeddedHdfs,
    kdc: EmbeddedKdc,
    cache: Path,
    keytab: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kdc.ticket("alice", keytab, cache)
    server.fetch_token(tmp_path / "tokens")
    cache.unlink()  # a container has none
    with pytest.raises(ConfigurationError, match="there is no Kerberos ticket"):
        store_of(server).prepare([])
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    store = store_of(server)
    store.prepare([])
    assert put_once(store, NAME, b"x") == b"x"
    assert store.list_names("links/") == [NAME]
    web = WebHdfs.of(parse(server.url), Hadoop(server.hadoop()))
    web.ask("PUT", "CANCELDELEGATIONTOKEN", "/", token=token_of_process(server.url.partition("//")[2]))
    with pytest.raises(
        ConfigurationError, match=r"does not accept the login any more.*name a keytab"
    ) as caught:
        store.get(NAME)
    assert token_of_process("") not in str(caught.value)
