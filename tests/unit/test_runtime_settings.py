"""What the user writes on the query: options, names of sinks, Spark's checkpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.errors import ConfigurationError, LogError, SetupError
from onceonly.families import behind
from onceonly.model import Guarantee, Visible
from onceonly.options import Option
from onceonly.ports import TwoPhaseCommitSink
from onceonly.settings import registry
from onceonly.settings.query import (
    _QUERY,
    _SINK,
    CHECKPOINT,
    JOB,
    QuerySettings,
    SinkSettings,
    parse,
    with_checkpoint,
)


def test_defaults_and_what_remains_for_the_sink() -> None:
    settings = parse({"checkpointLocation": "/c", "kafka.Acks": "all"}, default_name="kafka")
    assert settings.query == QuerySettings(checkpoint="/c", adopt=False, history=100, commit_timeout_s=60.0)
    assert settings.sink == SinkSettings(
        name="kafka", guarantee=Guarantee.EXACTLY_ONCE, options={"kafka.acks": "all"}
    )


def test_a_sink_of_several_names_no_checkpoint() -> None:
    settings = parse({"topic": "t", "onceonly.adopt": "true"}, default_name="kafka")
    assert settings.query is None
    assert settings.of_query == ("onceonly.adopt",)


def test_the_name_of_the_query_is_no_option_of_the_sink() -> None:
    assert parse({"checkpointLocation": "/c", "queryName": "orders"}, default_name="kafka").sink.options == {}


def test_every_runtime_option_is_read() -> None:
    options = {
        "checkpointlocation": "/c",
        "onceonly.guarantee": "At-Least-Once",
        "onceonly.sink": "orders-2",
        "onceonly.adopt": "TRUE",
        "onceonly.history": "7",
        "onceonly.commit.timeout": "1.5",
        "Onceonly.Epoch.Timeout": "90",
        "onceonly.note": "x",
    }
    settings = parse(options, default_name="kafka", claimed=("onceonly.Note",))
    assert settings.query == QuerySettings(
        checkpoint="/c", adopt=True, history=7, commit_timeout_s=1.5, epoch_timeout_s=90.0
    )
    assert settings.sink == SinkSettings(
        name="orders-2", guarantee=Guarantee.AT_LEAST_ONCE, options={"onceonly.note": "x"}
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("onceonly.guarante", "x", "did you mean onceonly.guarantee?"),
        ("onceonly.zzz", "x", "It knows onceonly.adopt"),
        ("onceonly.guarantee", "exactly once", "exactly-once, at-least-once, at-most-once"),
        ("onceonly.visible", "now", "decided, early"),
        ("onceonly.sink", "a.b", "letters, digits"),
        ("onceonly.sink", "x" * 33, "up to 32"),
        ("onceonly.adopt", "yes", "true or false"),
        ("onceonly.history", "0", "at least 1"),
        ("onceonly.history", "1.5", "a whole number"),
        ("onceonly.commit.timeout", "nan", "a number of seconds"),
        ("onceonly.commit.timeout", "inf", "a number of seconds"),
        ("onceonly.epoch.timeout", "0", "a number of seconds"),
        ("onceonly.epoch.timeout", "", "a number of seconds"),
        ("onceonly.epoch.timeout", "1e10", "seconds, or none"),
        ("checkpointLocation", "", "checkpointLocation"),
    ],
)
def test_a_wrong_option_is_named_with_its_cure(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse({"checkpointLocation": "/c", name: value}, default_name="kafka")
    assert said in str(caught.value)


def test_when_rows_are_seen_is_a_choice_of_exactly_once_alone() -> None:
    def visible(**given: str) -> Visible:
        options = {
            "checkpointLocation": "/c",
            **{name.replace("_", "."): text for name, text in given.items()},
        }
        return parse(options, default_name="x").sink.visible

    assert visible() is Visible.DECIDED
    assert visible(onceonly_visible="Early") is Visible.EARLY
    assert visible(onceonly_visible="decided", onceonly_guarantee="exactly-once") is Visible.DECIDED
    for guarantee, shown in (("at-least-once", "early, and twice"), ("at-most-once", "when decided")):
        assert visible(onceonly_guarantee=guarantee) is Visible.DECIDED
        with pytest.raises(ConfigurationError, match=shown) as caught:
            visible(onceonly_visible="early", onceonly_guarantee=guarantee)
        assert "leave it out" in caught.value.next_step


def test_rows_that_have_no_keys_are_not_seen_early() -> None:
    given = {"checkpointLocation": "/c", "path": "/data/out", "onceonly.visible": "early"}
    settings = registry.settings_of(given, "files", registry.BUILT_IN["files"]).sink
    with pytest.raises(ConfigurationError, match="cannot show rows early") as caught:
        registry.build(settings, registry.BUILT_IN["files"])
    assert "leave onceonly.visible out; or set onceonly.guarantee=at-least-once" in caught.value.next_step


def test_an_epoch_may_take_as_long_as_it_takes_unless_its_user_says_otherwise() -> None:
    settings = parse({"checkpointLocation": "/c"}, default_name="kafka")
    assert settings.query is not None
    assert settings.query.epoch_timeout_s is None


def test_every_option_of_a_query_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "query-options.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w[\w.]*)`", page, re.MULTILINE)
    known = {CHECKPOINT, JOB, *_QUERY, *_SINK, behind.OPTION}
    assert {row.lower() for row in rows} == known


def test_settings_do_not_show_secrets() -> None:
    settings = parse({"checkpointLocation": "/c", "kafka.sasl.password": "canary"}, default_name="kafka")
    assert "canary" not in repr(settings)
    assert "canary" not in str(settings)


class NamelessSink(TwoPhaseCommitSink[None]):
    """Abstract, and without a name."""


def test_what_is_no_sink_is_refused() -> None:
    for wrong in (object(), dict, NamelessSink):
        with pytest.raises(ConfigurationError, match=r"TwoPhaseCommitSink|no usable name"):
            registry.find(wrong)
    with pytest.raises(ConfigurationError, match=r"did you mean 'onceonly\.kafka'"):
        registry.find("onceonly.kafak")
    taken = type("Mine", (NamelessSink,), {"name": "kafka"})
    with pytest.raises(ConfigurationError, match="onceonly uses itself"):
        registry.remember(taken)


def test_a_sink_is_found_by_both_names_and_by_class() -> None:
    declared = (Option(name="onceonly.mine", doc=""), Option(name="path", doc=""))
    mine = type("Mine", (NamelessSink,), {"name": "mine", "declared": declared})
    assert registry.find(mine) == ("mine", mine)
    assert registry.find("mine") == registry.find("onceonly.mine") == ("mine", mine)
    assert registry.claimed(mine) == ("onceonly.mine",)


def test_a_missing_client_library_is_named() -> None:
    with pytest.raises(SetupError, match=r"onceonly\[absent\]"):
        registry.load("onceonly.sinks.absent:Sink")


def checkpoint(folder: Path) -> SparkCheckpoint:
    (folder / "offsets").mkdir()
    (folder / "commits").mkdir()
    (folder / "metadata").write_text(json.dumps({"id": "q-1"}))
    lines = ["v1", '{"batchWatermarkMs":0}', '{"t":{"0":7}}', "-"]
    for epoch in (9, 10):
        (folder / "offsets" / str(epoch)).write_text("\n".join(lines))
    (folder / "offsets" / ".10.crc").touch()
    (folder / "offsets" / ".11.abc.tmp").touch()
    (folder / "commits" / "9").write_text("v1\n{}")
    return SparkCheckpoint.at(str(folder))


def test_the_checkpoint_is_read_as_spark_writes_it(tmp_path: Path) -> None:
    found = checkpoint(tmp_path)
    assert found.query() == "q-1"
    assert found.epoch() == 10  # the newest by number, not by name
    assert found.barrier(10) == ('{"t":{"0":7}}', "-")
    assert found.committed() == {9}


def test_a_checkpoint_that_is_none_is_said_to_be_none(tmp_path: Path) -> None:
    found = SparkCheckpoint.at(str(tmp_path))
    with pytest.raises(ConfigurationError, match="no streaming query"):
        found.query()
    with pytest.raises(LogError, match="no offsets"):
        found.epoch()
    with pytest.raises(LogError, match="chk-3"):
        found.barrier(3)
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(LogError, match="query id"):
        found.query()


LETTERS = {
    "checkpointLocation": "/c",
    "onceonly.refused": "deadletter",
    "onceonly.deadletter.format": "onceonly.files",
}


def test_options_of_dead_letters_are_theirs_and_no_options_of_the_sink() -> None:
    given = {
        **LETTERS,
        "topic": "t",
        "onceonly.deadletter.option.path": "/d",
        "onceonly.deadletter.limit": "5",
    }
    sink = parse(given, default_name="kafka").sink
    assert sink.options == {"topic": "t"}
    assert sink.letters is not None
    assert (sink.letters.format, sink.letters.limit, sink.letters.options) == (
        "onceonly.files",
        5,
        {"path": "/d"},
    )
    assert sink.of_letters is not None
    assert (sink.of_letters.name, sink.of_letters.guarantee) == ("kafka.letters", sink.guarantee)
    assert sink.key != parse({**given, "onceonly.deadletter.limit": "6"}, default_name="kafka").sink.key
    assert "/d" not in repr(sink)


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"onceonly.refused": "ignore"}, "stop or deadletter"),
        ({"onceonly.refused": "stop"}, "nothing would go there"),
        ({"onceonly.deadletter.format": ""}, "onceonly.deadletter.format"),
        ({"onceonly.deadletter.limit": "0"}, "onceonly.deadletter.limit"),
        ({"onceonly.deadletter.frmat": "x"}, "did you mean onceonly.deadletter.format"),
    ],
)
def test_options_of_dead_letters_that_would_have_no_effect_are_refused(
    changed: dict[str, str], names: str
) -> None:
    with pytest.raises(ConfigurationError, match=names):
        parse({**LETTERS, **changed}, default_name="kafka")


def test_a_refused_row_stops_unless_its_user_says_otherwise() -> None:
    assert parse({"checkpointLocation": "/c"}, default_name="kafka").sink.letters is None


@pytest.mark.parametrize("session", ["/c", "/c/", "file:///c"])
def test_a_named_query_lies_in_the_folder_of_its_name_where_the_session_puts_checkpoints(
    session: str,
) -> None:
    found = with_checkpoint({"queryName": "orders", "topic": "t"}, session)
    assert found == {
        "queryName": "orders",
        "topic": "t",
        "checkpointlocation": session.rstrip("/") + "/orders",
    }


def test_a_checkpoint_of_the_querys_own_goes_before_the_sessions() -> None:
    options = {"checkpointLocation": "/own", "queryname": "orders"}
    assert with_checkpoint(options, "/c") == options
    assert with_checkpoint({"queryname": "orders"}, None) == {"queryname": "orders"}


def test_a_query_without_a_name_is_told_that_its_checkpoint_would_never_be_found_again() -> None:
    with pytest.raises(ConfigurationError, match="no name") as caught:
        with_checkpoint({"topic": "t"}, "/c")
    assert "queryName" in caught.value.next_step
