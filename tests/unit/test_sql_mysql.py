"""What the MySQL dialect says without a server: addresses, versions, errors, and what they ask of a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pymysql
import pytest

from onceonly.errors import (
    ConfigurationError,
    OnceonlyError,
    RecordRefusedError,
    SetupError,
    UnavailableError,
)
from onceonly.options import read_options
from onceonly.sinks.sql.dialects import mysql, mysql_tables
from onceonly.sinks.sql.dialects.mysql import MySql
from onceonly.sinks.sql.dialects.mysql_packets import send
from onceonly.sinks.sql.options import DECLARED, SqlOptions
from onceonly.sinks.sql.refusals import is_doubtful
from onceonly.sinks.sql.types import Column, Table, columns_of, match, of_spark

if TYPE_CHECKING:
    from collections.abc import Sequence


def dialect(url: str = "mysql://u@db.example:3307/shop") -> MySql:
    return MySql(SqlOptions.of(read_options(DECLARED, {"url": url, "table": "t"}, who="x"), who="x"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://u@h", "names no database"),
        ("mysql://u@h/", "names no database"),
        ("mysql://u@h/a/b", "names no database"),
        ("mysql://u@h,i/a", "names no database"),
        ("mysql://u@h/a?charset=latin1", "with charset"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        dialect(url)
    assert "mysql://user@host:3306/database" in raised.value.next_step


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("mysql://u@db.example:3307/shop", ("db.example", 3307)),
        ("mariadb://u@db.example/shop", ("db.example", 3306)),
        ("mysql:///shop", ("localhost", 3306)),
        ("mysql://[::1]:3307/shop", ("::1", 3307)),
    ],
)
def test_host_and_port_are_those_of_the_address(url: str, place: tuple[str, int]) -> None:
    assert mysql._place(dialect(url).options.url) == place


@pytest.mark.parametrize(
    ("url", "is_checked"),
    [
        ("mysql://u@db.example/shop", True),
        ("mysql://u@db.example/shop?ssl_disabled=true", False),
        ("mysql://u@127.0.0.1/shop", False),
        ("mysql://u@localhost/shop?ssl_disabled=false", True),
    ],
)
def test_a_server_elsewhere_proves_who_it_is_unless_somebody_says_otherwise(
    url: str, *, is_checked: bool
) -> None:
    found = dialect(url).options.url
    context = mysql._tls(found, mysql._place(found)[0])
    assert (context is not None) == is_checked
    if context is not None:
        assert context.check_hostname


def test_a_certificate_that_is_not_there_is_named() -> None:
    url = dialect("mysql://u@h/shop?ssl_ca=/none.pem").options.url
    with pytest.raises(ConfigurationError, match="cannot be read"):
        mysql._tls(url, "h")


def test_a_package_that_a_log_in_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As caching_sha2_password does without TLS, which is how a MySQL 8 takes its users."""

    def connect(**_: object) -> None:
        message = (
            "'cryptography' package is required for sha256_password or caching_sha2_password auth methods"
        )
        raise RuntimeError(message)

    monkeypatch.setattr(pymysql, "connect", connect)
    with pytest.raises(SetupError, match="'cryptography' package is required") as raised:
        dialect("mysql://u@localhost/shop").connect()
    assert "PyMySQL[rsa]" in raised.value.next_step


@pytest.mark.parametrize(
    ("version", "kind"),
    [("10.4.34-MariaDB-log", "MariaDB"), ("5.5.5-10.4.34-MariaDB", "MariaDB"), ("5.7.44-log", "MySQL")],
)
def test_a_server_that_is_too_old_is_refused(
    version: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MySql, "run", lambda *_: [(version, 1)])
    with pytest.raises(ConfigurationError, match=f"is {kind} ") as raised:
        dialect()._set_up(None)
    assert raised.value.next_step.startswith(f"take {kind}")


@pytest.mark.parametrize(
    ("version", "limit"),
    [
        ("8.0.36", "max_execution_time = 300000"),
        ("9.1.0", "max_execution_time = 300000"),
        ("10.11.6-MariaDB", "max_statement_time = 300"),
        ("11.4.5-MariaDB", "max_statement_time = 300"),
        ("5.5.5-10.11.6-MariaDB", "max_statement_time = 300"),  # as it tells replicas that are older
    ],
)
def test_a_session_is_strict_in_utc_and_limited_in_the_words_of_its_server(
    version: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(_: MySql, __: Any, sql: str, values: Sequence[object] = ()) -> list[Any]:  # noqa: ANN401
        asked.append(sql)
        return [(version, 0)]

    monkeypatch.setattr(MySql, "run", run)
    dialect()._set_up(None)
    session = " ".join(asked)
    assert limit in session
    assert "STRICT_ALL_TABLES" in session
    assert "time_zone = '+00:00'" in session
    assert "READ COMMITTED" in session


@pytest.mark.parametrize(
    ("code", "text", "kind", "next_step"),
    [
        (1062, "Duplicate entry '1' for key 'PRIMARY'", RecordRefusedError, "mend the row"),
        (1406, "Data too long for column 'a'", RecordRefusedError, "mend the row"),
        (3819, "Check constraint 'c' is violated", RecordRefusedError, "mend the row"),
        (1118, "Row size too large (> 8126)", RecordRefusedError, "mend the row"),
        (1045, "Access denied for user 'u'", ConfigurationError, "password"),
        (1142, "INSERT command denied", ConfigurationError, "grant the user"),
        (1290, "running with the --read-only option", ConfigurationError, "not a replica"),
        (1146, "Table 'shop.t' doesn't exist", ConfigurationError, "make it"),
        (1153, "Got a packet bigger than 'max_allowed_packet'", ConfigurationError, "max_allowed_packet"),
        (3159, "Connections using insecure transport are prohibited", ConfigurationError, "ssl_ca"),
        (2003, "certificate verify failed", ConfigurationError, "ssl_ca"),
        (1205, "Lock wait timeout exceeded", UnavailableError, "start the query again"),
        (1213, "Deadlock found", UnavailableError, "start the query again"),
        (1021, "Disk full", UnavailableError, "make room"),
        (1114, "The table 't' is full", UnavailableError, "make room"),
        (
            1030,
            'Got error 28 "No space left on device" from storage engine InnoDB',
            UnavailableError,
            "make room",
        ),
        (3, "Error writing file '/tmp/a' (Errcode: 28)", UnavailableError, "make room"),
        (1030, "Got error 281 from storage engine", UnavailableError, "start the query again"),
        (2013, "Lost connection to MySQL server during query", UnavailableError, "start the query again"),
        (2013, "Lost connection … (timed out)", UnavailableError, "set statement.timeout to more"),
        (1205, "Lock wait timeout exceeded", UnavailableError, "set statement.timeout to more"),
        (1969, "Query execution was interrupted", UnavailableError, "set statement.timeout to more"),
        (3024, "Query execution was interrupted", UnavailableError, "set statement.timeout to more"),
        (0, "", UnavailableError, "start the query again"),
    ],
)
def test_each_answer_of_the_server_has_its_kind_and_its_next_step(
    code: int, text: str, kind: type[OnceonlyError], next_step: str
) -> None:
    told = dialect().told(Exception(code, text))
    assert type(told) is kind
    assert text in told.what
    assert next_step in told.next_step


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_column_that_rounds_takes_whole_numbers_alone(kind: str) -> None:
    told = dict.fromkeys(mysql_tables._ASKED) | {"COLUMN_NAME": "x", "IS_NULLABLE": "YES", "DATA_TYPE": kind}
    plain = mysql_tables._column({**told, "COLUMN_TYPE": kind, "NUMERIC_PRECISION": 22}, [])
    rounds = {"COLUMN_TYPE": f"{kind}(6,2)", "NUMERIC_PRECISION": 6, "NUMERIC_SCALE": 2}
    column = mysql_tables._column({**told, **rounds}, [])
    assert not plain.against(of_spark("float"))
    assert column.against(of_spark("float")) == "it takes no float"
    assert not column.against(of_spark("smallint"))
    assert (column.low, column.high) == (-9999, 9999)


@pytest.mark.parametrize(
    ("texts", "doubtful"),
    [(["a", None, "~\t\\"], False), ([None], False), ([], False), (["a", "ä"], True), (["☃"], True)],
)
def test_only_letters_that_a_charset_may_not_have_put_an_epoch_in_doubt(
    texts: list[str | None],
    doubtful: bool,  # noqa: FBT001  by name
) -> None:
    column = Column(name="t", declared="varchar(20)", takes=("text",), charset="latin1")
    table = Table(name="t", columns=(column,))
    batch = pa.RecordBatch.from_pydict({"t": pa.array(texts, pa.string())})
    found = match(columns_of(batch.schema), table)
    assert not found.doubts
    assert is_doubtful(batch, found) is doubtful


class HangsUp:
    """A cursor whose server hangs up while it is sent rows, as PyMySQL tells of it."""

    def executemany(self, _: str, __: Sequence[Sequence[str]]) -> None:
        raise pymysql.err.OperationalError(2006, "MySQL server has gone away (ConnectionResetError)")

    def mogrify(self, insert: str, row: Sequence[str]) -> str:
        return insert % tuple(row)


@pytest.mark.parametrize(("size", "code"), [(7_000, 2006), (9_000, 1153)])
def test_a_row_longer_than_a_packet_is_told_though_the_server_hung_up_before_it_was_heard(
    size: int, code: int
) -> None:
    table = Table(name="s.t", columns=(), keys=(), large=1_000)  # an eighth of a packet
    with pytest.raises(pymysql.err.OperationalError) as raised:
        send(HangsUp(), "INSERT INTO t VALUES (%s)", [["short"], ["x" * size]], table)
    assert raised.value.args[0] == code
    wrong = dialect().told(raised.value)
    assert isinstance(wrong, ConfigurationError if code == 1153 else UnavailableError)
