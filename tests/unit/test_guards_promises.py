"""The promise from end to end: the weakest of sources and sinks, and the table that the reference shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceonly.guards import promises
from onceonly.guards.source import FILES, KAFKA, Source
from onceonly.model import Guarantee
from onceonly.settings.registry import BUILT_IN, strongest

EXACTLY, AT_LEAST, AT_MOST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE
LOSSY = Source(KAFKA, {"failondataloss": "False"})


@pytest.mark.parametrize(
    ("sources", "sinks", "promise"),
    [
        ([Source(KAFKA)], [EXACTLY], "exactly-once"),
        ([Source(KAFKA), Source(FILES)], [EXACTLY, EXACTLY], "exactly-once"),
        ([Source(KAFKA)], [EXACTLY, AT_LEAST], "at-least-once"),
        ([LOSSY], [EXACTLY], "at-most-once"),
        ([Source("socket")], [EXACTLY], "at-most-once"),
        ([Source("socket")], [AT_LEAST], "none"),
        ([Source("onceonly.socket")], [EXACTLY], "at-most-once"),
        ([Source("onceonly.http")], [EXACTLY], "at-most-once"),
        ([Source("onceonly.http", {"resume": "query:after"})], [EXACTLY], "exactly-once"),
        ([Source("onceonly.rabbitmq")], [EXACTLY], "exactly-once"),
        ([Source("onceonly.rabbitmq", {"id": "none"})], [EXACTLY], "at-least-once"),
        ([Source("onceonly.rabbitmq", {"onceonly.guarantee": "at-most-once"})], [EXACTLY], "at-most-once"),
        ([Source("onceonly.socket", {"onceonly.guarantee": "at-most-once"})], [EXACTLY], "at-most-once"),
        ([Source(FILES)], [AT_LEAST, AT_MOST], "none"),
        ([Source("theirs"), Source(KAFKA)], [EXACTLY], "not known"),
        ([], [EXACTLY], "not known"),
    ],
)
def test_a_query_promises_what_the_weakest_of_its_parts_does(
    sources: list[Source], sinks: list[Guarantee], promise: str
) -> None:
    assert promises.end_to_end(sources, sinks) == promise


def test_the_table_has_every_sink_and_a_cell_is_never_stronger_than_its_sides() -> None:
    head, *rows = promises.table()
    assert head[2:] == tuple(BUILT_IN)
    assert [row[0] for row in rows] == list(promises.SOURCES)
    strengths = {"none": 0, "at-most-once": 1, "at-least-once": 1, "exactly-once": 2}
    for row in rows:
        source = strengths[promises.SOURCES[row[0]].guarantee]
        for name, cell in zip(head[2:], row[2:], strict=True):
            sink = strengths[strongest(BUILT_IN[name])]
            assert strengths[cell] <= min(source, sink)
    by_name = {row[0]: dict(zip(head[2:], row[2:], strict=True)) for row in rows}
    assert by_name["kafka"]["kafka"] == "exactly-once"
    assert by_name["socket"]["console"] == "none"


def test_the_reference_shows_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "end-to-end.md"
    assert "```{onceonly-promises}" in page.read_text(encoding="utf-8")
