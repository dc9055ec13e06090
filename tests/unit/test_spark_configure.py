"""The settings that make epochs short: put in before all others, and only where they are right."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from onceonly import configure
from onceonly.spark import configure as configuring
from onceonly.spark.configure import CHANGELOG, PROVIDER, RAW_FILES, SETTINGS

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


class Builder:
    """Keeps what it is given, as Spark's own does."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self._options: dict[str, str] = {}

    def config(self, name: str, value: str) -> Builder:
        self.given[name] = value
        return self


def configured(builder: Builder, **choices: bool) -> dict[str, str]:
    return cast("Builder", configure(cast("SparkSession.Builder", builder), **choices)).given


def settings(*but: str) -> dict[str, str]:
    return {setting.name: setting.value_here() for setting in SETTINGS if setting.only_for not in but}


def test_every_setting_is_put_in_that_is_right_for_most() -> None:
    assert configured(Builder()) == settings("an idle driver")


def test_what_is_for_a_driver_without_many_rows_is_asked_for() -> None:
    given = configured(Builder(), idle_driver=True)
    assert given == settings()
    java = given["spark.driver.extraJavaOptions"].split()
    assert "-XX:TieredStopAtLevel=1" in java
    # Java starts no process at all by a way that its system does not have.
    assert ("-Djdk.lang.Process.launchMechanism=VFORK" in java) == (sys.platform == "linux")


def test_what_is_for_local_checkpoints_can_be_left_out() -> None:
    given = configured(Builder(), local_checkpoints=False)
    assert given == settings("an idle driver", "local checkpoints", "local checkpoints without RocksDB")
    assert given


def test_what_rocksdb_cannot_be_stored_by_is_left_out_where_it_is_asked_for_or_set() -> None:
    asked, given = configured(Builder(), rocksdb=True), Builder()
    given._options = {PROVIDER: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
    assert asked == configured(given) == settings("an idle driver", "local checkpoints without RocksDB")
    assert RAW_FILES[0] not in asked
    assert configured(Builder())[RAW_FILES[0]] == RAW_FILES[1]


def test_state_with_a_changelog_is_one_word_and_goes_without_what_rocksdb_cannot_be_stored_by() -> None:
    given = configured(Builder(), changelog=True)
    assert given.items() >= CHANGELOG.items()
    assert {name: value for name, value in given.items() if name not in CHANGELOG} == configured(
        Builder(), rocksdb=True
    )


def test_batches_of_large_rows_stay_bounded_by_their_bytes() -> None:
    given = configured(Builder(), large_rows=True)
    assert given == settings("an idle driver", "small rows")
    assert not [name for name in given if "arrow" in name]


def test_what_is_set_afterwards_wins() -> None:
    name = SETTINGS[0].name
    builder = Builder()
    configured(builder)
    assert builder.config(name, "theirs").given[name] == "theirs"


def test_a_class_has_the_name_that_the_installed_spark_gives_it_and_is_left_out_where_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "spark.sql.streaming.checkpointFileManagerClass"
    newer, older = (
        f"org.apache.spark.sql.execution.streaming{package}.FileSystemBasedCheckpointFileManager"
        for package in (".checkpointing", "")
    )
    for there, expected in (([newer, older], newer), ([older], older), ([], None)):
        monkeypatch.setattr(configuring, "has_class", there.__contains__)
        given = configured(Builder())
        assert given.get(name) == expected
        assert given.keys() | {name} == settings("an idle driver").keys() | {name}
