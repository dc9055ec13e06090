"""Delegation tokens in the file that YARN writes for a container: whose is taken, and what goes into an address."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.hdfs_double import Fault, HdfsDouble, serve

from onceonly.errors import ConfigurationError
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.hdfs import HdfsStore
from onceonly.stores.tokens import choose, read, token_of_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = "ha-hdfs:cluster"
ENDED = {
    "exception": "SecurityException",
    "message": "Failed to obtain user group information: org.apache.hadoop.security.token.SecretManager$InvalidToken: "
    "Token for real user: , can't be found in cache",
}


def number(value: int) -> bytes:
    """As WritableUtils.writeVInt."""
    if -112 <= value <= 127:
        return value.to_bytes(1, signed=True)
    size = (value.bit_length() + 7) // 8
    return (-112 - size).to_bytes(1, signed=True) + value.to_bytes(size)


def field(data: bytes) -> bytes:
    return number(len(data)) + data


def written(service: str, kind: str = "HDFS_DELEGATION_TOKEN", identifier: bytes = b"who") -> bytes:
    return b"".join(field(each) for each in (identifier, b"password", kind.encode(), service.encode()))


def file_of(*tokens: bytes) -> bytes:
    return b"HDTS\0" + number(len(tokens)) + b"".join(field(b"alias") + token for token in tokens) + b"\0"


def in_address(token: bytes) -> str:
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


@pytest.mark.parametrize("length", [0, 1, 127, 128, 255, 256, 70_000])
def test_tokens_are_read_whatever_their_length(length: int) -> None:
    token = written(NAMES, identifier=b"i" * length)
    (found,) = read(file_of(token))
    assert (found.service, found.text) == (NAMES, in_address(token))
    assert found.text not in repr(found)


def test_the_token_of_the_name_service_is_chosen_among_several() -> None:
    ours, others = written(NAMES), written("ha-hdfs:other")
    yarn = written("10.0.0.1:8032", kind="RM_DELEGATION_TOKEN")
    found = read(file_of(yarn, others, ours))
    assert [token.service for token in found] == ["ha-hdfs:other", NAMES]
    assert choose(found, "cluster") == in_address(ours)
    assert not choose(found, "third")


def test_the_only_token_is_taken_as_it_may_have_a_number_for_its_host() -> None:
    token = written("10.0.0.1:8020")
    assert choose(read(file_of(token)), "namenode:8020") == in_address(token)
    assert not choose([], "namenode:8020")


@pytest.mark.parametrize("data", [b"", b"HDTS\1..", file_of(written(NAMES))[:-20], b"HDTS\0" + number(5)])
def test_what_is_no_such_file_is_no_login(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_bytes(data)
    with pytest.raises(ValueError, match="file of tokens"):
        read(data)
    assert not token_of_process("cluster", {"HADOOP_TOKEN_FILE_LOCATION": str(tmp_path / "tokens")})
    assert not token_of_process("cluster", {"HADOOP_TOKEN_FILE_LOCATION": str(tmp_path / "absent")})
    assert not token_of_process("cluster", {})


@pytest.fixture
def double() -> Iterator[HdfsDouble]:
    yield from serve(HdfsDouble())


def test_a_container_without_a_keytab_asks_by_its_token_and_hears_when_it_has_ended(
    double: HdfsDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = written(NAMES)
    (tmp_path / "tokens").write_bytes(file_of(token))
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    monkeypatch.delenv("KRB5_CLIENT_KTNAME", raising=False)
    hadoop = Hadoop(
        {"hadoop.security.authentication": "kerberos", "dfs.namenode.http-address.cluster": double.host}
    )
    store = HdfsStore.at(parse("hdfs://cluster/chk"), hadoop)
    assert store.list_names("links/") == []
    assert double.token == in_address(token)
    assert not double.user
    for fault in (Fault("InvalidToken"), Fault(page=json.dumps({"RemoteException": ENDED}))):
        double.fault("OPEN", fault)
        with pytest.raises(ConfigurationError, match=r"any more.*KRB5_CLIENT_KTNAME") as caught:
            store.get("a")
        assert in_address(token) not in str(caught.value)


def test_a_keytab_wins_as_its_logins_do_not_end(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_bytes(file_of(written(NAMES)))
    told = {"HADOOP_TOKEN_FILE_LOCATION": str(tmp_path / "tokens")}
    assert token_of_process("cluster", told)
    assert not token_of_process("cluster", {**told, "KRB5_CLIENT_KTNAME": "job.keytab"})
