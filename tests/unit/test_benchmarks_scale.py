"""Growth: the models find what is there, and the page shows what the record has."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from benchmarks.scale import folders, links, page, samples
from benchmarks.scale.brokers import live_bytes
from benchmarks.scale.fit import CONSTANT, fit
from benchmarks.scale.links import point
from benchmarks.scale.values import VERSION, Scale, decode
from benchmarks.values import encode
from onceonly.log import files
from onceonly.model import Link

if TYPE_CHECKING:
    from benchmarks.scale.values import Point

ROOT = Path(__file__).parents[2]


def points() -> list[Point]:
    """Return points that lie on known lines."""
    found: list[Point] = []
    for sinks, slots in links.SIZES:
        at = {"sinks": sinks, "handles": sinks * slots}
        found.append(point("link_bytes", at, [600.0 + 300 * sinks + 500 * at["handles"]]))
        found += [point(name, at, [2.0 + 0.01 * at["handles"]]) for name in ("link_put_ms", "link_read_ms")]
    for sinks in (1, 3):
        for epochs in folders.EPOCHS:
            at = {"sinks": sinks, "slots": 3, "epochs": epochs}
            found.append(point("history_bytes", at, [1_000.0 + 80 * epochs + 30 * epochs * sinks]))
            found += [point(name, at, [1.0]) for name in ("log_files", "log_bytes", "start_ms")]
    for count in (1, 4, 16, 64, 256):
        found += [
            point(name, {"transactions": count}, [9.0, 10.0 + count, 1e6])
            for name in ("commits_ms", "decide_ms")
        ]
    for count in (0, 2_000, 10_000):
        found += [
            point(f"heap_{kind}_bytes", {kind: count}, [1e7 + 900 * count]) for kind in ("ids", "groups")
        ]
    return found


def scale() -> Scale:
    return Scale(
        version=VERSION, started="2026-11-22T00:00:00+00:00", seconds=600, load_before=0.4, load_after=1.2,
        machine={"cores": 2, "memory_gib": 23, "system": "Linux 6.8, x86_64"}, versions={"python": "3.11"},
        points=tuple(points()),
    )  # fmt: skip


def test_the_published_page_is_what_the_record_gives() -> None:
    found = decode((ROOT / page.RECORD).read_bytes())
    assert (ROOT / page.PAGE).read_text(encoding="utf-8") == page.page(found)
    assert (ROOT / page.PICTURE).read_text(encoding="utf-8") == page.picture(found)


def test_a_line_that_is_there_is_found() -> None:
    models = page.fitted(points())
    assert models["link_bytes"].coefficients == pytest.approx({CONSTANT: 600, "sinks": 300, "handles": 500})
    assert models["history_bytes"].coefficients == pytest.approx(
        {CONSTANT: 1_000, "epochs": 80, "epochs x sinks": 30}
    )
    assert models["decide_ms"](transactions=10_000) == pytest.approx(10_010)
    assert models["heap_ids_bytes"](ids=20_000) == pytest.approx(2.8e7)


def test_too_few_points_give_no_line() -> None:
    with pytest.raises(ValueError, match="too few"):
        fit("heap_ids_bytes", ("ids",), points()[:2])


def test_points_models_residuals_and_extrapolation_are_on_the_page() -> None:
    text = page.page(scale())
    assert (
        "- `link_bytes`: 600 + 300 · sinks + 500 · handles "
        "(5,003,600 at 10 sinks, 10,000 handles; off by 0% to 0%)" in text
    )
    assert "| 3 | 3 | 3,000 | 1.0 | 1.0 | 1.0 |" in text
    assert f"(../proof/{page.PICTURE.name})" in text
    assert (
        "| 10,000 slots, 1 sink | 10,000 | 5.0 MB | 102 ms | 102 ms | 611.1 MB | 121.0 MB | 10.0 s | 20,000 |"
        in text
    )
    assert "**Extrapolated, not measured**" in text


def test_writing_publishes_record_page_and_picture(tmp_path: Path) -> None:
    page.write(tmp_path, scale())
    page.write(tmp_path, scale())
    assert decode((tmp_path / page.RECORD).read_bytes()) == scale()
    assert encode(scale()) == (tmp_path / page.RECORD).read_bytes()
    assert (tmp_path / page.PAGE).read_text() == page.page(scale())
    assert ET.fromstring((tmp_path / page.PICTURE).read_text()).tag.endswith("svg")  # noqa: S314  drawn here


def test_a_sample_is_a_decision_that_the_log_reads_back() -> None:
    link = samples.link(7, sinks=2, slots=3)
    assert files.decode(files.encode("link", link), kind="link", into=Link, where="here") == link
    assert len({vote.handle.transaction for vote in link.votes if vote.handle}) == 6


def test_links_are_measured_at_every_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "SIZES", ((1, 1), (2, 3)))
    found = {(each.figure, each.at["handles"]): each for each in links.measure(tmp_path, 2)}
    assert {figure for figure, _ in found} == {"link_bytes", "link_put_ms", "link_read_ms"}
    assert found["link_bytes", 6].median > found["link_bytes", 1].median > 0
    assert found["link_put_ms", 6].repeats == 2
    assert found["link_put_ms", 6].least > 0


def test_the_heap_is_the_total_of_the_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "   1:   10   240  [B (java.base@17)\nTotal         55554        3199864\n"

    def ran(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, stdout=told)

    monkeypatch.setattr(subprocess, "run", ran)
    assert live_bytes(1) == 3_199_864
    told = "no such process"
    with pytest.raises(RuntimeError, match="no such process"):
        live_bytes(1)
