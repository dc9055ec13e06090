"""A journal on a disk that is really full: the kernel refuses a write in the middle, and nothing is lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.hard_disks import in_namespace

if TYPE_CHECKING:
    from pathlib import Path

BENCH = """
import os
from tests.unit.journal_bench import held, opened, read_upto, reader_of, rows
from onceonly.sources.journal import Journal
from onceonly.sources.journal.writer import Writer

place = disk / "journal"

def fill(but=0):
    with (disk / "ballast").open("ab", buffering=0) as ballast:
        try:
            while ballast.write(bytes(512)):
                pass
        except OSError:
            pass
        ballast.truncate(max(ballast.tell() - but, 0))

def free():
    (disk / "ballast").unlink()

def files():
    return sorted(str(each.relative_to(place)) for each in (place / "segments").iterdir())
"""


def test_a_disk_that_fills_while_a_segment_is_put_leaves_none_and_the_next_writer_takes_it_once(
    tmp_path: Path,
) -> None:
    """Another process fills it behind our look at how much is free."""
    said = in_namespace(
        tmp_path,
        BENCH
        + """
writer = opened(place)
writer.append(rows("a"))
real, Writer._require_space = Writer._require_space, lambda *_: fill()
print(refused(lambda: writer.append(rows(*map(str, range(2000))))))
print(files(), held(place))
writer.close()
Writer._require_space = real
print(refused(lambda: opened(place).lacks_space()))
free()
with opened(place) as writer:
    print(writer.lacks_space(), writer.append(rows("a", *map(str, range(2000)))), len(set(held(place))))
""",
    )
    assert said[0].startswith("UnavailableError")
    assert "ENOSPC" in said[0]
    assert said[1] == "['segments/00000000000000000001'] ['a']"
    assert said[2].startswith("UnavailableError")
    assert said[3] == "False 2000 2001"


def test_a_query_that_cannot_note_what_it_has_read_stops_and_its_rows_stay(tmp_path: Path) -> None:
    """And what a writer cannot fold it does not delete."""
    said = in_namespace(
        tmp_path,
        BENCH
        + """
with opened(place) as writer:
    for each in "abcd":
        writer.append(rows(each))
    read_upto(place, 2)
    reader = reader_of(place)
    fill()
    print(refused(lambda: reader.commit(3)))
    print(refused(lambda: writer.tidy(now=True)))
    print(held(place))
    free()
    reader.commit(3)
    reader.commit(4)
    writer.tidy(now=True)
    print(held(place))
""",
    )
    assert said[0].startswith("UnavailableError")
    assert said[1].startswith("UnavailableError")
    assert said[2] == "['a', 'b', 'c', 'd']"
    assert said[3] == "['d']"


def test_a_receiver_on_a_full_disk_takes_nothing_until_the_query_or_its_operator_has_made_room(
    tmp_path: Path,
) -> None:
    """It is told once, and its server is not even asked; then each row is there once.

    Where there is no room at all, a start stops: it cannot even make durable what is there.
    """
    said = in_namespace(
        tmp_path,
        BENCH
        + """
import logging
import time
from tests.unit.scripted_server import LINES, STALL, ScriptedServer
from onceonly.sources.asked import ask
from onceonly.sources.journal.receiver import Receiver

logging.basicConfig(stream=sys.stdout, format="%(message)s")

def until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)

def received():
    return [] if Journal.at(str(place)).identity() is None else held(place)

lines = [b'{"id": %d}\\n' % number for number in range(5)]
with ScriptedServer([LINES, *lines[:2]], [LINES, *lines[1:], STALL], http=True) as server:
    url = f"http://127.0.0.1:{server.port}/"
    given = {"url": url, "id": "id", "resume": "header:Last-Event-ID", "journal": str(place), "linger": "0 ms"}
    asked = ask("http", {**given, "segmentBytes": "64k", "backlogBytes": "200k"})

    def begin():
        receiver = Receiver(asked.feed, asked.journal, asked.limits, wait_s=0)
        receiver.start()
        return receiver

    receiver = begin()
    until(lambda: len(received()) == 2)
    receiver.stop()
    asked_before = server.connections
    fill()
    receiver = begin()
    print(refused(lambda: receiver.opened()), server.connections - asked_before)
    free()
    fill(but=100_000)
    receiver = begin()
    receiver.rest(10)
    print(server.connections - asked_before, received())
    free()
    until(lambda: len(received()) == 5)
    receiver.stop()
    print(received())
""",
    )
    [refusal] = (line for line in said if line.startswith("UnavailableError"))
    assert "No space left on device (ENOSPC)" in refusal
    assert refusal.endswith(" 0")
    assert sum("is full (disk): nothing is taken from" in line for line in said) == 1
    assert "0 ['0', '1']" in said
    assert said[-1] == "['0', '1', '2', '3', '4']"
