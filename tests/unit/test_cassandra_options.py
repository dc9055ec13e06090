"""The Cassandra sink without a server: options, types of columns, and what each answer of a cluster means."""

from __future__ import annotations

import datetime as dt
import ssl
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest
from cassandra import AuthenticationFailed, InvalidRequest, OperationTimedOut, Unauthorized, Unavailable
from cassandra.cluster import NoHostAvailable

from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError
from onceonly.families.columns import parse
from onceonly.families.keyed import KeyedRows
from onceonly.sinks.cassandra import CassandraSink, types
from onceonly.sinks.cassandra.sink import FIRST
from onceonly.sinks.cassandra.target import Table, meaning

if TYPE_CHECKING:
    from onceonly.sinks.cassandra.options import CassandraOptions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cassandra-options.md"
GIVEN = {"hosts": "localhost", "keyspace": "shop", "table": "carts", "key": "id"}


def read(**given: str) -> CassandraOptions:
    return CassandraSink({**GIVEN, **given})._given


def test_defaults() -> None:
    found = read()
    assert (found.hosts, found.cluster, found.where) == (
        (("localhost", 9042),),
        "localhost:9042",
        "shop.carts",
    )
    assert (found.tls, found.user, found.password.read(), found.books) == (
        False,
        None,
        None,
        "onceonly_books",
    )
    assert (found.consistency, found.keeps_nulls, found.tombstones_s) == (
        "LOCAL_QUORUM",
        False,
        7 * 24 * 3600,
    )


def test_a_column_that_is_gone_when_rows_with_it_are_applied_has_its_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = CassandraSink(GIVEN)
    table = Table(
        types={"id": "text"}, partition=("id",), key=("id",), statics=frozenset(), gc_grace_s=864_000
    )
    monkeypatch.setattr(sink._target, "_table", table)
    waiting = KeyedRows(
        keys=["a"], deleted=[False], rows=pa.RecordBatch.from_pydict({"id": ["a"], "value": ["v"]})
    )
    for ask in (
        lambda: sink.put(waiting, 1),
        lambda: sink.examine(waiting, 1),
        lambda: list(sink.unfit(waiting)),
    ):
        with pytest.raises(ConfigurationError, match="has no column value any more") as raised:
            ask()
        assert 'ALTER TABLE "shop"."carts" ADD "value"' in raised.value.next_step


def test_hosts_may_have_ports_and_the_order_of_them_is_no_other_target() -> None:
    found = read(hosts="b.example:9142, a.example,[::1]:7")
    assert found.hosts == (("b.example", 9142), ("a.example", 9042), ("::1", 7))
    other = CassandraSink({**GIVEN, "hosts": "a.example,[::1]:7,b.example:9142"})
    assert (
        other.identity() == CassandraSink({**GIVEN, "hosts": "b.example:9142, a.example,[::1]:7"}).identity()
    )


def test_a_password_in_a_file_is_read_at_each_connect(tmp_path: Path) -> None:
    file = tmp_path / "password"
    sink = CassandraSink({**GIVEN, "user": "me", "password.file": str(file)})
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        sink._target._made()
    file.write_text("first\n", encoding="utf-8")
    cluster = sink._target._made()
    for text in ("first", "second"):
        file.write_text(f"{text}\n", encoding="utf-8")
        assert cluster.auth_provider.new_authenticator("host").password == text
    cluster.shutdown()


def test_certificates_and_names_are_verified() -> None:
    cluster = CassandraSink({**GIVEN, "tls": "true"})._target._made()
    assert cluster.ssl_context.verify_mode is ssl.CERT_REQUIRED
    assert cluster.ssl_context.check_hostname is True
    cluster.shutdown()
    with pytest.raises(ConfigurationError, match=r"tls\.ca .* cannot be used"):
        CassandraSink({**GIVEN, "tls": "true", "tls.ca": "/none.pem"})._target._made()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hosts": "http://localhost"}, "names of hosts"),
        ({"hosts": "localhost:port"}, "names of hosts"),
        ({"hosts": "me:canary@localhost"}, "names of hosts"),
        ({"hosts": "a,,b"}, "names of hosts"),
        ({"books": "a b"}, "small letters, digits"),
        ({"consistency": "ONE"}, "must be one of LOCAL_QUORUM, QUORUM, ALL"),
        ({"nulls": "drop"}, "must be one of write, keep"),
        ({"tls": "yes"}, "must be true or false"),
        ({"tls.ca": "/ca.pem"}, "tls.ca of the sink cassandra is there, and tls is not"),
        ({"user": "me"}, "user of the sink cassandra is there, and password is not"),
        ({"password": "canary"}, "has a password, and nobody whose it is"),
        ({"timeout": "0 s"}, "must be a time"),
        ({"keyspac": "x"}, "did you mean keyspace?"),
    ],
)
def test_wrong_options_are_refused_by_name_without_a_secret(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**given)
    assert said in str(caught.value)
    if "password" in given:
        assert "canary" not in str(caught.value)


def test_the_page_has_the_table_of_the_declared_options() -> None:
    assert "```{onceonly-options} onceonly.sinks.cassandra.options\n" in PAGE.read_text(encoding="utf-8")


# --- types ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spark", "cql"),
    [
        ("tinyint", "varint"), ("bigint", "bigint"), ("float", "double"), ("decimal(38,0)", "varint"),
        ("decimal(10,2)", "decimal"), ("varchar(3)", "text"), ("string collate UTF8_LCASE", "ascii"),
        ("array<map<string,int>>", "frozen<list<frozen<map<text, int>>>>"), ("array<int>", "set<bigint>"),
    ],
)  # fmt: skip
def test_a_type_that_takes_every_value_is_taken(spark: str, cql: str) -> None:
    assert types.against(parse(spark), cql) == ""


@pytest.mark.parametrize(
    ("spark", "cql"),
    [
        ("bigint", "int"), ("int", "float"), ("double", "float"), ("double", "decimal"), ("decimal(10,2)", "varint"),
        ("bigint", "counter"), ("array<int>", "list<int>"), ("array<bigint>", "frozen<list<int>>"),
        ("map<string,int>", "map<text, smallint>"), ("struct<a:int>", "frozen<pair>"), ("timestamp_ntz", "timestamp"),
        ("variant", "text"), ("array<timestamp>", "set<timestamp>"), ("array<float>", "vector<float, 3>"),
    ],
)  # fmt: skip
def test_a_type_that_may_refuse_or_double_a_value_is_refused(spark: str, cql: str) -> None:
    assert types.against(parse(spark), cql)


def test_values_are_those_of_the_driver() -> None:
    at = dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC)
    text = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
    for array, cql, wanted in (
        (pa.array([at, None], pa.timestamp("us", "UTC")), "timestamp", [-1, None]),
        (pa.array([dt.date(1970, 1, 2)]), "date", [2**31 + 1]),
        (pa.array([Decimal(7)]), "varint", [7]),
        (pa.array([text]), "uuid", [UUID(text)]),
        (pa.array([["b", "a", "b"]]), "set<text>", [["b", "a"]]),
        (pa.array([[("k", [1])]], pa.map_(pa.string(), pa.list_(pa.int32()))), "map<text, frozen<list<int>>>",
         [{"k": [1]}]),
    ):  # fmt: skip
        assert types.values(array, cql) == wanted


def test_every_version_is_behind_the_clock_and_within_64_bits() -> None:
    from onceonly.families.keyed.versions import version_of
    from onceonly.sinks.cassandra.books import GENERATION_BITS

    greatest = version_of(generation=(1 << GENERATION_BITS) - 1, epoch=2**31 - 1, index=2**12 - 1)
    assert dt.datetime.now(dt.UTC).timestamp() * 1e6 < FIRST
    assert FIRST + greatest < 2**63


# --- answers ----------------------------------------------------------------------------------------------------


def nobody(**causes: Exception) -> NoHostAvailable:
    return NoHostAvailable("Unable to connect", causes)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (nobody(a=AuthenticationFailed("no")), ConfigurationError, "does not let the user me in"),
        (nobody(a=ssl.SSLError("CERTIFICATE_VERIFY_FAILED")), ConfigurationError, "is not trusted"),
        (
            nobody(a=ConnectionRefusedError("refused")),
            UnavailableError,
            "does not answer: NoHostAvailable: refused",
        ),
        (Unauthorized("no MODIFY permission"), ConfigurationError, "does not permit the user me"),
        (InvalidRequest("no such column"), ConfigurationError, "refuses what goes to shop.carts"),
        (OperationTimedOut(), UnavailableError, "does not answer: OperationTimedOut"),
        (Unavailable("too few", 4, 2, 1), UnavailableError, "does not answer: Unavailable"),
    ],
)
def test_what_an_answer_means(error: Exception, kind: type[OnceonlyError], said: str) -> None:
    found = meaning(error, read(user="me", password="canary"))  # noqa: S106  of no server
    assert type(found) is kind
    assert said in found.what
    assert "canary" not in str(found)


def test_a_defect_is_no_answer() -> None:
    with pytest.raises(TypeError):
        meaning(TypeError("ours"), read())


def test_the_client_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    gone: Any = None
    monkeypatch.setitem(sys.modules, "cassandra.cluster", gone)
    with pytest.raises(OnceonlyError, match=r"pip install 'onceonly\[cassandra\]'"):
        CassandraSink(GIVEN)._target._made()
