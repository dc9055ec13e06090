"""Options of the Redis sink: taken, refused by name, and as the page says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from redis import exceptions

from onceonly.errors import ConfigurationError, SetupError
from onceonly.sinks.redis import RedisSink
from onceonly.sinks.redis.target import Target

if TYPE_CHECKING:
    from onceonly.sinks.redis.options import RedisOptions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "redis-options.md"


def read(**given: str) -> RedisOptions:
    return RedisSink({"url": "redis://localhost", "key": "id", **given})._redis


def test_defaults() -> None:
    found = read()
    assert (found.where, found.database, found.tls) == ("localhost:6379", 0, False)
    assert (found.user, found.password.read(), found.books) == (None, None, "onceonly:books")
    assert found.tombstones_ms == 7 * 24 * 3600 * 1000


def test_an_address_says_where_who_and_how() -> None:
    found = read(url="rediss://me:p%40ss@cache.example:7000/3", prefix="order:")
    assert (found.where, found.database, found.tls) == ("cache.example:7000", 3, True)
    assert (found.user, found.password.read(), found.books) == ("me", "p@ss", "order:onceonly:books")
    assert "p@ss" not in repr(found)


def test_options_of_their_own_go_before_the_address() -> None:
    found = read(url="redis://me:old@localhost", user="you", password="new")  # noqa: S106  of no server
    assert (found.user, found.password.read()) == ("you", "new")


def test_a_password_in_a_file_is_read_at_each_connect(tmp_path: Path) -> None:
    file = tmp_path / "password"
    found = read(**{"password.file": str(file)})
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        found.password.read()
    for text in ("first", "second"):
        file.write_text(f"{text}\n", encoding="utf-8")
        assert found.password.read() == text
    with pytest.raises(ConfigurationError, match="are both given"):
        read(**{"password.file": str(file), "password": "x"})


def test_certificates_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = RedisSink({"url": "rediss://localhost", "key": "id", "tls.ca": "/ca.pem"})
    made: dict[str, Any] = sink._target._connected().connection_pool.connection_kwargs
    assert made["ssl_cert_reqs"] == "required"
    assert made["ssl_check_hostname"] is True
    assert made["ssl_ca_certs"] == "/ca.pem"
    sink.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "localhost:6379"}, "not one of a server"),
        ({"url": "http://localhost"}, "not one of a server"),
        ({"url": "redis://"}, "not one of a server"),
        ({"url": "redis://localhost:port"}, "not an address"),
        ({"url": "redis://localhost/zero"}, "not an address"),
        ({"url": "redis://me:canary@localhost/zero"}, "not an address"),
        ({"url": "rediss://localhost?ssl_cert_reqs=none"}, "nothing may stand behind"),
        ({"key": "a,,b"}, "separated by commas, none twice"),
        ({"timeout": "0 s"}, "must be a time"),
        ({"tombstones": "7"}, "must be a time"),
        ({"threads": "0"}, "from 1 to 64"),
        ({"pasword": "x"}, "did you mean password?"),
    ],
)
def test_wrong_options_are_refused_by_name_without_a_secret(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**given)
    assert said in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_package_that_is_missing_is_named_at_the_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "redis.exceptions")
    for told in (None, False):
        sink = RedisSink({"url": "redis://localhost", "key": "id"})
        if told is not None:
            sink._target.is_cluster = told
        with pytest.raises(SetupError) as caught:
            sink.known({"a": {"folder": "q/s"}})
        assert "onceonly[redis]" in caught.value.next_step
        with pytest.raises(SetupError):
            sink.generation("q", "s")


def test_of_several_nodes_one_that_is_silent_or_gone_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Node:
        def __init__(self, host: str, port: int, *, database: int = 0) -> None:
            asked.append((host, port, database))

        def info(self, _: str) -> dict[str, int]:
            host = asked[-1][0]
            if host in {"silent", "gone"}:
                raise {"silent": exceptions.TimeoutError, "gone": exceptions.ConnectionError}[host]
            return {"cluster_enabled": 1}

        def close(self) -> None:
            pass

    monkeypatch.setattr(Target, "_connection", lambda _, *given, **more: Node(*given, **more))
    sink = RedisSink({"url": "redis://silent,gone:1,fine:2/3", "key": "id"})
    with pytest.raises(ConfigurationError, match="the database 0 alone"):
        sink._target.look()
    assert asked == [("silent", 6379, 0), ("gone", 1, 0), ("fine", 2, 0)]


def test_nodes_of_a_cluster_are_one_target_in_any_order() -> None:
    one, other = (RedisSink({"url": f"redis://{nodes}", "key": "id"}) for nodes in ("a,b:1", "b:1,a"))
    assert one.identity() == other.identity() == {"server": "a:6379,b:1", "database": 0, "prefix": ""}


def test_the_page_has_the_table_of_the_declared_options() -> None:
    assert "```{onceonly-options} onceonly.sinks.redis.options\n" in PAGE.read_text(encoding="utf-8")
