"""``savepoint restore`` and ``fork`` look whether sources have what is read again, if it is said where they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.journal_bench import opened, rows
from tests.unit.operator_bench import BOX, QueryCoordinator, run

from onceonly import savepoints
from onceonly.errors import ConfigurationError
from onceonly.operations import sources_left
from onceonly.sources.journal.place import Journal
from onceonly.sources.journal.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

KAFKA = '{"orders":{"0":7}}'
KINESIS = '{"version":1,"reader":"r","number":3,"made":"1.000","start":{},"done":[],"groups":[],"until":null}'
RABBITMQ = '{"version":1,"offset":4,"mark":"ab","is_read":true}'
JOURNAL = '{"journal":"j","reader":"r","segment":4}'


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            KAFKA,
            "topics of Kafka, and nobody has looked whether it still has what is read again: --source kafka.boot",
        ),
        (KINESIS, "a stream of Kinesis, and nobody has looked"),
        (RABBITMQ, "a stream of RabbitMQ, and nobody has looked"),
        (
            JOURNAL,
            "a journal, and nobody has looked whether it still has what is read again: --source journal=PLACE",
        ),
    ],
)
def test_what_nobody_could_ask_is_told_with_what_has_it_done(line: str, told: str) -> None:
    (sentence,) = sources_left.refuse_missing((line,), {}, {}, epoch=3)
    assert told in sentence


@pytest.mark.parametrize("line", ['{"logOffset":7}', "7", "-", '{"count":3}', "[1]"])
def test_other_sources_have_nothing_to_lose_or_are_looked_at_elsewhere(line: str) -> None:
    assert sources_left.refuse_missing((line,), {}, {}, epoch=3) == []


def test_an_option_of_no_source_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="by the option uri"):
        sources_left.refuse_missing((KAFKA,), {"uri": "amqp://x"}, {}, epoch=3)
    with pytest.raises(ConfigurationError, match="form NAME=VALUE") as caught:
        sources_left.given(["hunter2"], None)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("kafka.bootsrap.servers", "kafka.bootstrap.servers"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("kafka.sasl.mechanisms", "kafka.sasl.mechanism"),
    ],
)
def test_a_misspelt_option_of_a_source_is_one_of_the_source_with_the_nearest_to_type(
    slip: str, meant: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sources_left.refuse_missing((KAFKA,), {slip: "h:1"}, {}, epoch=3)
    assert f"no source of this query is reached by the option {slip}" in caught.value.what
    assert caught.value.next_step == f"did you mean --source {meant}=…?"


@pytest.mark.parametrize(
    ("line", "options", "typed"),
    [
        (KAFKA, {"kafka.security.protocol": "SSL"}, "--source kafka.bootstrap.servers=HOST:PORT"),
        (RABBITMQ, {"stream": "s"}, "--source uri=URI --source stream=NAME"),
        (KINESIS, {"region": "r"}, "--source stream=NAME --source onceonly.ranges=PLACE"),
    ],
)
def test_what_an_option_lacks_is_said_as_it_is_typed(line: str, options: dict[str, str], typed: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be reached") as caught:
        sources_left.refuse_missing((line,), options, {}, epoch=3)
    assert caught.value.next_step == f"give {typed}"


def test_a_wrong_value_of_an_option_is_said_of_the_source() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "kafka.enable.idempotence": "maybe"}
    with pytest.raises(ConfigurationError) as caught:
        sources_left.refuse_missing((KAFKA,), given, {}, epoch=3)
    assert "sink" not in str(caught.value)


def test_a_journal_that_has_deleted_what_follows_is_refused_and_one_that_has_it_is_not(
    tmp_path: Path,
) -> None:
    place = tmp_path / "journal"
    with opened(place) as writer:
        for name in "abc":
            writer.append(rows(name))
        reader = Reader(Journal.at(str(place)))
        start = reader.initial().offset

        def look(**change: object) -> list[str]:
            offset = json.dumps({**start, **change})
            return sources_left.refuse_missing((offset,), {"journal": str(place)}, {}, epoch=3)

        assert look(segment=1) == []
        reader.commit(2)
        assert look(segment=1) == []
        reader.commit(3)
        assert look(segment=2) == []
        # What was read for good stands still, until whoever writes the journal tidies up.
        with pytest.raises(
            ConfigurationError, match="was read up to segment 2 for good, and the query goes on after 1"
        ):
            look(segment=1)
        writer.tidy(now=True)
        assert look(segment=2) == []
        with pytest.raises(ConfigurationError, match="what lies between is deleted, or will be"):
            look(segment=1)
        with pytest.raises(ConfigurationError, match="it was made anew"):
            look(segment=2, journal="another")
        with pytest.raises(ConfigurationError, match="is read by another query now"):
            look(segment=2, reader="another")
        (place / "reading").unlink()  # as `onceonly journal drop --reader` does
        assert look(segment=2) == []
        with pytest.raises(
            ConfigurationError, match="keeps no segments before 3, and the query goes on after 1"
        ):
            look(segment=1)
        reader.close()


@pytest.mark.parametrize("command", [("restore", "--sink", f"box={BOX}"), ("fork",)])
def test_restore_and_fork_tell_it_and_refuse_before_anything_is_made(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    query = QueryCoordinator(tmp_path / "query")
    query.complete(0, 1)
    savepoints.create(str(query.path), str(tmp_path / "place"))
    arguments: tuple[str | Path, ...] = ("savepoint", *command, tmp_path / "place", "--to", tmp_path / "to")
    done = run(*arguments, "--source", "uri=amqp://nowhere")
    assert (done.returncode, "by the option uri" in done.stderr) == (64, True)
    assert not (tmp_path / "to").exists()
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert "nobody has looked" in json.loads(done.stdout)["told"][0]
