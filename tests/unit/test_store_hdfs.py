"""A store on HDFS, over a name node that misleads as real ones do."""

from __future__ import annotations

import time
from itertools import product
from typing import TYPE_CHECKING

import pytest
from tests.unit.hdfs_double import Fault, HdfsDouble, serve

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.stores import webhdfs
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.hdfs import HdfsStore
from onceonly.stores.name_nodes import Server, servers
from onceonly.stores.port import Store, put_once
from onceonly.stores.webhdfs import WebHdfs
from onceonly_proof.stores.laws import NAME, RewritableLaws

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ADDRESS = parse("hdfs://cluster/chk/a b%20ä")


def store_of(*doubles: HdfsDouble) -> HdfsStore:
    nodes = [double.host.rpartition(":") for double in doubles]
    return HdfsStore(
        WebHdfs(tuple(Server(host, int(port), tls=False) for host, _, port in nodes), user="me"), ADDRESS
    )


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(webhdfs, "_AGAIN_S", 1.0)


@pytest.fixture(scope="module")
def server() -> Iterator[HdfsDouble]:
    yield from serve(HdfsDouble())


@pytest.fixture
def double(server: HdfsDouble) -> HdfsDouble:
    server.reset()
    return server


@pytest.fixture
def store(double: HdfsDouble) -> HdfsStore:
    return store_of(double)


class TestHdfs(RewritableLaws):
    @pytest.fixture
    def store(self, double: HdfsDouble) -> Store:
        return store_of(double)


class TestHttpFs(RewritableLaws):
    @pytest.fixture
    def store(self, double: HdfsDouble) -> Store:
        double.old_rename = True
        return store_of(double)


class TestBrokenOff(RewritableLaws):
    @pytest.fixture
    def store(self, double: HdfsDouble) -> Store:
        double.fault("RENAME", Fault(cut=True), Fault(cut=True, done=True))
        double.fault("CREATE", Fault(cut=True), Fault("SafeModeException"))
        double.fault("OPEN", Fault("RetriableException"))
        return store_of(double)


GATEWAY = "<html>Gateway</html>"
MISLEADING = [
    Fault(cut=True),
    Fault(cut=True, done=True),
    Fault("StandbyException"),
    Fault("SafeModeException"),
    Fault("RetriableException", 503),
    Fault(status=504, page=GATEWAY),
    Fault(status=504, page=GATEWAY, done=True),
]


@pytest.mark.parametrize("faults", list(product(MISLEADING, repeat=2)))
def test_whatever_a_rename_is_answered_what_is_returned_is_what_stands(
    double: HdfsDouble, store: HdfsStore, faults: tuple[Fault, ...]
) -> None:
    double.fault("RENAME", *faults)
    assert put_once(store, NAME, b"ours") == b"ours" == store.get(NAME)
    double.fault("RENAME", *faults)
    assert put_once(store, NAME, b"theirs") == b"ours" == store.get(NAME)
    assert [name for name in double.files if name.endswith(".tmp")] == []


def test_names_are_paths_letter_by_letter(double: HdfsDouble, store: HdfsStore) -> None:
    store.put_if_absent(NAME, b"x")
    assert list(double.files) == [f"/chk/a b%20ä/{NAME}"]
    assert double.user == "me"


def test_a_name_node_on_standby_leads_to_the_other_one(double: HdfsDouble) -> None:
    for standby in serve(HdfsDouble()):
        standby.fault("CREATE", Fault(), Fault())
        standby.fault("RENAME", Fault())
        store = store_of(standby, double)
        store.put_if_absent(NAME, b"x")
        standby.operations.clear()
        assert store.get(NAME) == b"x"
        assert standby.operations == []  # the one that answered is asked first


def test_a_name_node_that_is_down_leads_to_the_other_one(double: HdfsDouble) -> None:
    store = store_of(HdfsDouble(host="127.0.0.1:9"), double)
    assert put_once(store, NAME, b"x") == b"x"


def test_no_name_node_at_all_is_unavailable_after_a_bound() -> None:
    with pytest.raises(UnavailableError, match=r"did not answer for 1 s.*127\.0\.0\.1:9"):
        store_of(HdfsDouble(host="127.0.0.1:9")).get(NAME)


def test_a_gateway_that_has_no_name_node_just_now_is_asked_again(
    double: HdfsDouble, store: HdfsStore
) -> None:
    for operation in ("CREATE", "OPEN", "LISTSTATUS", "DELETE"):
        double.fault(operation, Fault(status=503, page=GATEWAY), Fault(status=429, page=GATEWAY))
    store.put_if_absent(NAME, b"x")
    assert store.get(NAME) == b"x"
    assert store.list_names("links/") == [NAME]
    store.delete(NAME)
    assert store.get(NAME) is None


def test_a_data_node_that_cannot_be_reached_is_named(double: HdfsDouble, store: HdfsStore) -> None:
    double.files["/chk/a b%20ä/" + NAME] = b"x"
    with pytest.MonkeyPatch.context() as patch:
        nowhere = (Server("127.0.0.1", 9, tls=False), "/")
        patch.setattr(webhdfs, "_elsewhere", lambda *_: nowhere)
        with pytest.raises(UnavailableError, match=r"OPEN of .*: 127\.0\.0\.1:9: "):
            store.get(NAME)


@pytest.mark.parametrize("put", [put_once, HdfsStore.replace])
def test_a_data_node_that_writes_late_tears_nothing(
    double: HdfsDouble, store: HdfsStore, monkeypatch: pytest.MonkeyPatch, put: Callable[..., object]
) -> None:
    called = WebHdfs._call
    late: list[tuple[object, ...]] = []

    def call(
        web: WebHdfs, node: Server, method: str, operation: str, path: str, data: bytes, *rest: object
    ) -> bytes:
        if operation == "CREATE" and not late:
            late.append((node, method, operation, path, data[:1], *rest))
            raise TimeoutError
        if operation == "RENAME":
            called(web, *late[0])  # type: ignore[arg-type]
        return called(web, node, method, operation, path, data, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(WebHdfs, "_call", call)
    put(store, NAME, b"whole")
    assert store.get(NAME) == b"whole"


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("put", [HdfsStore.put_if_absent, HdfsStore.replace])
def test_a_put_whose_tries_all_broke_off_leaves_nothing_and_asks_in_vain_once(
    double: HdfsDouble,
    store: HdfsStore,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[..., object],
    is_down: bool,  # noqa: FBT001
) -> None:
    called, removed = WebHdfs._call, set()

    def call(web: WebHdfs, node: Server, method: str, operation: str, path: str, *rest: object) -> bytes:
        if operation == "DELETE":
            removed.add(path)
        if not is_down:
            found = called(web, node, method, operation, path, *rest)  # type: ignore[arg-type]
            if operation != "CREATE":
                return found
        raise TimeoutError

    monkeypatch.setattr(WebHdfs, "_call", call)
    monkeypatch.setattr(webhdfs, "_AGAIN_S", 0.6)
    with pytest.raises(UnavailableError, match="did not answer"):
        put(store, NAME, b"whole")
    assert not double.files
    if is_down:
        assert len(removed) == 1


def test_over_httpfs_too_a_replaced_file_is_the_new_one_whatever_was_answered(
    double: HdfsDouble, store: HdfsStore
) -> None:
    double.old_rename = True
    for fault in (Fault(cut=True), Fault(cut=True, done=True), Fault(status=504, page=GATEWAY, done=True)):
        store.replace("offsets/1", b"one")
        double.fault("RENAME", Fault("StandbyException"), fault)
        store.replace("offsets/1", b"two")
        assert store.get("offsets/1") == b"two"
        assert [name for name in double.files if name.endswith(".tmp")] == []


def test_a_right_that_is_missing_is_said(double: HdfsDouble, store: HdfsStore) -> None:
    double.fault("CREATE", Fault("AccessControlException"))
    with pytest.raises(ConfigurationError, match="does not permit it: about AccessControlException"):
        store.put_if_absent(NAME, b"x")


@pytest.mark.parametrize(
    ("message", "step"),
    [
        (
            'Permission denied: user=me, access=WRITE, inode="/chk":hdfs:hdfs:drwxr-xr-x',
            "the right to write in",
        ),
        (
            'Permission denied: user=me, access=ALL, inode="/chk":hdfs:hdfs:drwxr-xr-x',
            "the right to write in",
        ),
        (
            'Permission denied: user=me, access=READ_EXECUTE, inode="/chk":h:h:d-wx-wx-wx',
            "to read and to list",
        ),
        ('Permission denied: user=me, access=READ, inode="/chk/a":h:h:-rw-------', "to read and to list"),
        (
            'Permission denied: user=me, access=EXECUTE, inode="/chk":h:h:drw-rw-rw-',
            "the right to pass through",
        ),
        ('Permission denied by sticky bit: user=me, path="/chk/a":h:h:-rw-r--r--', "chown -R"),
    ],
)
def test_of_a_right_that_is_missing_the_next_step_names_that_one(
    double: HdfsDouble, store: HdfsStore, message: str, step: str
) -> None:
    double.fault("LISTSTATUS", Fault("AccessControlException", message=message))
    with pytest.raises(ConfigurationError) as caught:
        store.list_names("links/")
    assert caught.value.what == f"HDFS does not permit it: {message}"
    assert step in caught.value.next_step


def test_a_name_node_in_safe_mode_is_called_so_beside_another_on_standby(
    double: HdfsDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhdfs, "_AGAIN_S", 0.4)  # each is asked once
    words = "Cannot create file/chk/a. Name node is in safe mode."
    for standby in serve(HdfsDouble()):
        standby.fault("LISTSTATUS", Fault())
        double.fault("LISTSTATUS", Fault("SafeModeException", message=words))
        with pytest.raises(
            UnavailableError, match=r"HDFS is in safe mode, and for 0\.4 s did not do"
        ) as caught:
            store_of(double, standby).list_names("links/")
        assert (
            f"{double.host}: SafeModeException: {words}; {standby.host}: StandbyException"
            in caught.value.what
        )
        assert "hdfs dfsadmin -safemode leave" in caught.value.next_step


def test_an_address_at_which_somebody_else_answers_is_named_and_the_others_are_asked(
    double: HdfsDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhdfs, "_AGAIN_S", 0.4)  # each is asked once
    for stranger in serve(HdfsDouble()):
        stranger.fault("LISTSTATUS", *[Fault(status=404, page="Not here")] * 2)
        with pytest.raises(UnavailableError, match="it answers HTTP 404 Not Found, as neither") as caught:
            store_of(stranger).list_names("links/")
        assert stranger.host in caught.value.what
        assert "dfs.namenode.http-address" in caught.value.what
        double.files[f"/chk/a b%20ä/{NAME}"] = b"x"
        assert store_of(stranger, double).list_names("links/") == [NAME]


def test_a_login_that_is_not_accepted_is_said(double: HdfsDouble, store: HdfsStore) -> None:
    double.fault("OPEN", Fault("AuthenticationException", 401))
    with pytest.raises(ConfigurationError, match="'me'"):
        store.get(NAME)


def test_a_quota_that_is_used_up_is_no_put(double: HdfsDouble, store: HdfsStore) -> None:
    double.fault("RENAME", Fault("NSQuotaExceededException"))
    with pytest.raises(UnavailableError, match=r"NSQuotaExceededException.*nothing was changed") as caught:
        store.put_if_absent(NAME, b"x")
    assert "raise its quota" in caught.value.next_step
    assert double.files == {}


def test_a_fit_store_is_found_fit_and_nothing_stays(double: HdfsDouble, store: HdfsStore) -> None:
    store.prepare(["links/"])
    assert double.files == {}


def test_a_store_that_renames_over_a_file_is_refused(double: HdfsDouble, store: HdfsStore) -> None:
    double.overwrites = True
    with pytest.raises(ConfigurationError, match="puts a file over another"):
        store.prepare([])


def test_what_broken_off_puts_left_is_cleared_away_where_the_name_is_taken(
    double: HdfsDouble, store: HdfsStore
) -> None:
    at = "/chk/a b%20ä/"
    store.put_if_absent("links/1.json", b"")
    left = {f"links/.{n}.json.7-{'a' * 12}.tmp": b"" for n in (1, 2, 3)}
    old = f"probes/.1-{'0' * 16}.7-{'a' * 12}.tmp"
    double.files.update({at + name: data for name, data in {**left, old: b""}.items()})
    store.drop_leftovers(lambda name: name == "links/3.json")
    assert set(double.files) == {f"{at}links/1.json", f"{at}links/.2.json.7-{'a' * 12}.tmp"}
    assert store.list_names("links/") == ["links/1.json"]


def test_what_another_has_renamed_is_made_durable_by_a_later_entry_of_the_log(
    double: HdfsDouble, store: HdfsStore
) -> None:
    store.put_if_absent(NAME, b"x")
    double.operations.clear()
    store.sync(NAME)
    assert double.operations == ["GETFILESTATUS", "SETTIMES"]


def test_a_replaced_file_is_the_new_one_also_where_the_answer_was_lost(
    double: HdfsDouble, store: HdfsStore
) -> None:
    store.replace("offsets/1", b"one")
    double.fault("RENAME", Fault(cut=True, done=True))
    store.replace("offsets/1", b"two")
    assert store.get("offsets/1") == b"two"
    assert store.list_folders("") == ["offsets"]


SERVERS: list[tuple[str, dict[str, str], list[str]]] = [
    ("hdfs://nn:8020/chk", {}, ["nn:9870"]),
    ("hdfs://nn:8020/chk", {"dfs.http.policy": "HTTPS_ONLY"}, ["nn:9871"]),
    ("hdfs://nn:8020/chk", {"dfs.namenode.http-address": "0.0.0.0:50070"}, ["nn:50070"]),
    ("hdfs://nn:8020/chk", {"dfs.namenode.http-address": "gate:14000"}, ["gate:14000"]),
    ("hdfs://nn:8020/chk", {"dfs.namenode.http-address": "gate:14000", "fs.defaultFS": "hdfs://NN"}, ["gate:14000"]),
    ("hdfs://nn:8020/chk", {"dfs.namenode.http-address": "gate:14000", "fs.defaultFS": "s3a://b"}, ["gate:14000"]),
    # Of another cluster than the default one, whose address it is.
    ("hdfs://other:8020/chk", {"dfs.namenode.http-address": "nn:50070", "fs.defaultFS": "hdfs://nn:8020"},
     ["other:50070"]),
    ("hdfs://other/chk", {"dfs.namenode.http-address": "nn:50070", "dfs.namenode.http-address.other": "gate:14000",
                          "fs.defaultFS": "hdfs://nn:8020"}, ["gate:14000"]),
    ("hdfs:///chk", {"fs.defaultFS": "hdfs://nn:8020"}, ["nn:9870"]),
    ("hdfs://ha/chk", {"dfs.ha.namenodes.ha": "a, b", "dfs.namenode.http-address.ha.a": "n1:9870",
                       "dfs.namenode.http-address.ha.b": "n2:9870"}, ["n1:9870", "n2:9870"]),
    ("hdfs://[::1]:8020/chk", {}, ["[::1]:9870"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "given", "found"), SERVERS)
def test_the_name_nodes_are_where_hadoops_settings_say(
    text: str, given: dict[str, str], found: list[str]
) -> None:
    assert [each.text for each in servers(parse(text), Hadoop(given))] == found


def test_a_name_service_without_addresses_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'ha'.*no HTTP address") as caught:
        servers(parse("hdfs://ha/chk"), Hadoop({"dfs.ha.namenodes.ha": "a,b"}))
    # Nor is the default cluster's that of another one, of whose name nodes the names alone are known.
    given = {"dfs.ha.namenodes.ha": "a,b", "fs.defaultFS": "hdfs://nn:8020"}
    with pytest.raises(ConfigurationError, match="no HTTP address of a name node is known"):
        servers(parse("hdfs://ha/chk"), Hadoop({**given, "dfs.namenode.http-address": "nn:50070"}))
    assert "dfs.namenode.http-address.ha" in caught.value.next_step


def test_the_user_is_that_of_hadoop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    assert WebHdfs.of(ADDRESS, Hadoop())._user == "etl"
    assert WebHdfs.of(ADDRESS, Hadoop({"hadoop.security.authentication": "Kerberos"}))._user == ""
