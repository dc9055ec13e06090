"""A flame graph is drawn from folded stacks, without the threads that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from benchmarks.flame import draw, main, own, read, working

if TYPE_CHECKING:
    from pathlib import Path

FOLDED = """\
run (worker.py:10);write (onceonly/sinks/kafka/writer.py:47);rd_kafka_produce_batch (/usr/lib/librdkafka-1a.so.1) 30
run (worker.py:10);write (onceonly/sinks/kafka/writer.py:52);rd_kafka_produce_batch (/usr/lib/librdkafka-1a.so.1) 20
process 12:"python -m daemon";run (worker.py:11);add (onceonly/rows/checksum.py:61);0x7f01 (/usr/lib/libc.so.6) 10
process 12:"python -m daemon";run (worker.py:12);__libc_recv (libc.so.6) 400
wait (threading.py:7);pthread_cond_timedwait@@GLIBC_2.3.2 (libc.so.6);0x7fd7520a3f16 (libc.so.6) 100
send (row_producer.py:9);rd_kafka_poll (librdkafka-1a.so.1) 5
"""


def test_lines_of_one_function_are_one_frame_and_a_library_is_named_without_its_folder() -> None:
    stacks = read(FOLDED)

    writes = (
        "run (worker.py)",
        "write (onceonly/sinks/kafka/writer.py)",
        "rd_kafka_produce_batch (librdkafka-1a.so.1)",
    )
    assert stacks[writes] == 50


def test_threads_that_wait_are_left_out_and_what_polls_for_work_is_not() -> None:
    stacks = working(read(FOLDED))

    assert sum(stacks.values()) == 65
    assert own(stacks) == {
        "rd_kafka_produce_batch (librdkafka-1a.so.1)": 50, "? (libc.so.6)": 10, "rd_kafka_poll (librdkafka-1a.so.1)": 5,
    }  # fmt: skip
    assert ("run (worker.py)", "add (onceonly/rows/checksum.py)", "? (libc.so.6)") in stacks


def test_a_frame_is_as_wide_as_its_share_and_lies_upon_its_caller() -> None:
    picture = ET.fromstring(draw(working(read(FOLDED)), "A worker"))  # noqa: S314  our own picture

    places = {}
    for group in picture.iter("{http://www.w3.org/2000/svg}g"):
        title, rect = group[0].text or "", group[1]
        places[title.partition(" (")[0].partition(":")[0]] = {
            k: float(rect.get(k, 0)) for k in ("x", "y", "width")
        }
    assert places["write"]["width"] / places["all"]["width"] == pytest.approx(50 / 65, abs=0.001)
    assert places["run"]["y"] - places["write"]["y"] == 17
    assert places["run"]["x"] <= places["write"]["x"]
    assert (
        places["write"]["x"] + places["write"]["width"] <= places["run"]["x"] + places["run"]["width"] + 0.1
    )


def test_the_command_draws_and_lists_where_samples_ended(tmp_path: Path) -> None:
    (tmp_path / "stacks.txt").write_text(FOLDED)
    picture = tmp_path / "new" / "flame.svg"

    result = CliRunner().invoke(main, [str(tmp_path / "stacks.txt"), "--svg", str(picture), "--top", "1"])

    assert result.exit_code == 0
    assert result.output.strip() == "76.9%  rd_kafka_produce_batch (librdkafka-1a.so.1)"
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("text", "told"),
    [("not a stack\n", "line 1 is no folded stack"), ("poll (libc.so.6) 3\n", "has no stack that works")],
)
def test_a_file_that_shows_nothing_is_refused_by_its_name(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "stacks.txt").write_text(text)

    result = CliRunner().invoke(main, [str(tmp_path / "stacks.txt"), "--svg", str(tmp_path / "x.svg")])

    assert result.exit_code == 1
    assert told in result.output
    assert "stacks.txt" in result.output
