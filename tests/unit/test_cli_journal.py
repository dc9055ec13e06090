"""``onceonly journal``: a receiver beside a job, a look at journals, and giving one up."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.unit.journal_bench import FEED, held, opened, rows
from tests.unit.scripted_server import STALL, ScriptedServer
from tests.unit.test_feeds import until

from onceonly.cli import EXIT_CANNOT_TELL, EXIT_USAGE, run
from onceonly.errors import JournalError
from onceonly.operations import journals
from onceonly.sources.journal import Journal, Reader
from onceonly.sources.journal.segments import SEGMENTS, name_of


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with opened(tmp_path / "journal") as writer:
        writer.append(rows("a", "b"))
        writer.append(rows("c"))
    return tmp_path / "journal"


def test_journals_are_shown_with_what_is_unread(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader = Reader(Journal.at(str(place)), wait_s=0)
    reader.initial()
    reader.commit(1)
    reader.commit(1)
    assert run(["journal", "list", str(place), "--json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)
    assert (seen["feed"], seen["of"], seen["segments"], seen["newest"]) == ("letters", "a test", 2, 2)
    assert (seen["unread"], seen["writer"]) == (1, "")
    assert seen["reader"].endswith(f"process {os.getpid()}")
    reader.close()
    assert run(["journal", "list", str(place)]) == 0
    assert "nobody" in capsys.readouterr().out


def test_one_that_is_damaged_is_named_and_hides_no_other(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(tmp_path / "other").close()
    segment = place / name_of(SEGMENTS, 2)
    segment.write_bytes(segment.read_bytes()[:-1])
    assert run(["journal", "list", str(place), str(tmp_path / "other"), "--json"]) == EXIT_CANNOT_TELL
    out, said = capsys.readouterr()
    assert [each["where"] for each in json.loads(out)] == [str(tmp_path / "other")]
    assert str(segment) in said.replace("\n", "")


def test_a_journal_is_shown_while_its_writer_takes_segments_away(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Journal.numbers

    def read_on(journal: Journal, folder: str) -> list[int]:
        found = listed(journal, folder)
        monkeypatch.setattr(Journal, "numbers", listed)
        reader = Reader(journal, wait_s=0)
        reader.initial()
        for _ in range(2):
            reader.commit(1)
        reader.close()
        with opened(place) as writer:
            writer.tidy(now=True)
        return found

    monkeypatch.setattr(Journal, "numbers", read_on)
    seen = journals.look(str(place))
    assert (seen.segments, seen.unread) == (1, 1)


def test_a_journal_in_use_is_not_dropped_and_one_at_rest_is(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(place):
        assert run(["journal", "drop", str(place), "--yes"]) == EXIT_USAGE
    assert "is in use" in capsys.readouterr().err
    assert held(place) == ["a", "b", "c"]
    assert run(["journal", "drop", str(place), "--yes"]) == 0
    assert not place.exists()
    assert run(["journal", "drop", str(place), "--yes"]) == EXIT_USAGE
    assert "there is no journal at" in capsys.readouterr().err


def test_what_lies_beside_a_journal_that_is_dropped_stays(place: Path) -> None:
    beside = [place / "notes.txt", place / SEGMENTS / "notes.txt", place / "other" / "journal"]
    beside[-1].parent.mkdir()
    for each in beside:
        each.write_text("of somebody else")
    assert run(["journal", "drop", str(place), "--yes"]) == 0
    assert sorted(each for each in place.rglob("*") if each.is_file()) == sorted(beside)


def test_another_query_may_read_a_journal_whose_reader_is_forgotten(place: Path) -> None:
    reader = Reader(Journal.at(str(place)), wait_s=0)
    before = reader.initial()
    reader.commit(1)
    reader.commit(1)
    reader.close()
    assert run(["journal", "drop", "--reader", str(place), "--yes"]) == 0
    reader = Reader(Journal.at(str(place)), wait_s=0)
    assert reader.initial().reader != before.reader
    reader.close()
    assert held(place) == ["a", "b", "c"]


def test_a_feed_at_another_address_goes_on_by_the_command_that_its_refusal_shows(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = "https://moved/it's here"
    reader = Reader(Journal.at(str(place)), wait_s=0)
    before = reader.initial()
    reader.close()
    with pytest.raises(JournalError, match="holds rows of letters a test, not of letters https") as refused:
        Journal.at(str(place)).make(FEED, of)
    command = shlex.split(refused.value.next_step.partition("another address: ")[2])
    assert command[:3] == ["onceonly", "journal", "accept-move"]
    with opened(place):
        assert run([*command[1:], "--yes"]) == EXIT_USAGE
    assert "is in use" in capsys.readouterr().err
    assert run(command[1:]) == EXIT_USAGE  # nobody can be asked
    for _ in range(2):
        assert run([*command[1:], "--yes", "--because", "it has TLS"]) == 0
    assert "it is recorded in" in capsys.readouterr().err
    found = Journal.at(str(place)).make(FEED, of)
    assert (found.of, found.journal) == (of, before.journal)
    assert held(place) == ["a", "b", "c"]
    reader = Reader(Journal.at(str(place)), wait_s=0)
    reader.require(before)
    reader.close()
    with pytest.raises(JournalError) as other:
        Journal.at(str(place)).make("another", of)
    assert "accept-move" not in other.value.next_step


def test_a_receiver_beside_a_job_writes_until_it_is_stopped_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    with ScriptedServer([b"a\nb\n", STALL], [b"c\n", STALL]) as server:
        options = ["host=127.0.0.1", f"port={server.port}", f"journal={place}", "linger=0 ms"]
        command = [sys.executable, "-m", "onceonly", "journal", "run", "socket"]
        command += [part for option in options for part in ("-o", option)]
        for count, end in ((2, signal.SIGKILL), (3, signal.SIGTERM)):
            process = subprocess.Popen(command)
            try:
                until(partial(_ended_or_has, process, place, count))
            finally:
                process.send_signal(end)
            assert process.wait(30) == (0 if end == signal.SIGTERM else -signal.SIGKILL)
    assert _rows(place) == 3


def _ended_or_has(process: subprocess.Popen[bytes], place: Path, count: int) -> bool:
    return process.poll() is not None or _rows(place) == count


def _rows(place: Path) -> int:
    journal = Journal.at(str(place))
    identity = journal.identity()
    if identity is None:
        return 0
    return sum(journal.read(n, identity.journal)[1].num_rows for n in journal.numbers(SEGMENTS))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["socket", "-o", "host"], "the option 'host' has no value"),
        (
            ["socket", "-o", "host=h", "-o", "port=1", "-o", "journal=/j", "-o", "receiver=inside"],
            "is for a query",
        ),
        (["sockets"], "there is no feed named 'sockets'"),
        (["socket", "-o", "host=h"], "is missing"),
        (["socket", "-o", "host=h"], "options are given with -o NAME=VALUE"),
    ],
)
def test_wrong_usage_is_told_in_one_sentence(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["journal", "run", *arguments]) == EXIT_USAGE
    assert says in capsys.readouterr().err.replace("\n", " ")


def test_the_reference_names_the_commands() -> None:
    reference = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
    for command in ("run", "list", "drop"):
        assert f"onceonly journal {command}" in reference
