"""How libraries that open a store themselves are told of it: as our own client is, and nothing beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly.errors import ConfigurationError
from onceonly.sinks.delta.place import read_place
from onceonly.sinks.iceberg.login import login
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.texts import texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE = "s3a://bucket/t"
TOKEN = {"session_token": "T"}
KEYS = {"fs.s3a.access.key": "key", "fs.s3a.secret.key": "SECRET"}
_OURS = ("AWS_", "AZURE_", "GOOGLE_")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    import os

    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    opened.tell(Hadoop())


def told(**more: str) -> dict[str, str]:
    opened.tell(
        Hadoop({**KEYS, **{f"fs.s3a.{name.replace('_', '.')}": value for name, value in more.items()}})
    )
    return texts(parse(TABLE))


def test_keys_endpoint_and_style_are_those_of_the_job() -> None:
    found = told(endpoint="http://127.0.0.1:9000", endpoint_region="eu", **TOKEN)
    assert {name: found[name] for name in ("access_key_id", "secret_access_key", "session_token", "region")} == {
        "access_key_id": "key", "secret_access_key": "SECRET", "session_token": "T", "region": "eu",
    }  # fmt: skip
    assert (found["endpoint"], found["allow_http"]) == ("http://127.0.0.1:9000", "true")
    assert found["virtual_hosted_style_request"] == "false"


def test_a_token_of_the_environment_is_not_put_beside_the_jobs_own_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
    with pytest.raises(ConfigurationError, match="AWS_SESSION_TOKEN is in the environment") as raised:
        told()
    assert "SECRET" not in str(raised.value)
    assert told(**TOKEN)["session_token"] == TOKEN["session_token"]


def test_where_the_job_gives_nothing_the_machines_profile_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id=P\naws_secret_access_key=Q\nregion=eu-west-1\n", encoding="utf-8"
    )
    opened.tell(Hadoop())
    found = texts(parse(TABLE))
    assert (found["access_key_id"], found["secret_access_key"], found["region"]) == ("P", "Q", "eu-west-1")
    assert "session_token" not in found
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:1")
    found = texts(parse(TABLE))
    assert (found["endpoint"], found["allow_http"], found["virtual_hosted_style_request"]) == (
        "http://localhost:1", "true", "false",
    )  # fmt: skip


def test_a_version_is_put_with_a_condition_and_no_lock_of_the_environment_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened.tell(Hadoop(KEYS))
    place = read_place(TABLE)
    found = place.told()
    assert found is not None
    assert (found["aws_conditional_put"], found["aws_s3_allow_unsafe_rename"]) == ("etag", "false")
    assert "SECRET" not in repr(place)
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
    with pytest.raises(ConfigurationError, match="would be written under a lock in a database"):
        place.told()


def test_a_table_on_azure_is_told_the_accounts_key() -> None:
    place = "abfss://c@account.dfs.core.windows.net/t"
    opened.tell(Hadoop({"fs.azure.account.key.account.dfs.core.windows.net": "a2V5"}))
    found = read_place(place).told()
    assert found is not None
    assert (found["account_name"], found["account_key"]) == ("account", "a2V5")
    assert read_place(place).uri == place


def test_pyiceberg_is_told_the_same_in_its_own_words_unless_it_was_told_itself() -> None:
    opened.tell(Hadoop({**KEYS, "fs.s3a.endpoint": "https://s3.example.org", "fs.s3a.endpoint.region": "eu"}))
    found = login({"warehouse": "s3://bucket/w"})
    assert found == {
        "s3.access-key-id": "key", "s3.secret-access-key": "SECRET", "s3.region": "eu",
        "s3.endpoint": "https://s3.example.org", "s3.force-virtual-addressing": "true",
    }  # fmt: skip
    assert login({"warehouse": "s3://bucket/w", "s3.region": "us"}) == {}
    assert login({"warehouse": "file:///w"}) == {}
    assert login({"uri": "https://catalogue"}) == {}
