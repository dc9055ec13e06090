"""Whether a figure grows; the page of the recorded soak."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from benchmarks.soak import watch
from benchmarks.soak.page import MARKS, PAGE, RECORD, figures, read
from benchmarks.soak.trend import trend
from benchmarks.soak.values import Series, Soak
from onceonly_proof.campaign.marks import NONE, placed

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


def series(value: Callable[[float], float], *, unit: str = "MiB", count: int = 120) -> Series:
    at = tuple(float(5 * number) for number in range(count))
    return Series(name="jvm: resident", unit=unit, at_s=at, values=tuple(value(each) for each in at))


def noise(size: float) -> Callable[[float], float]:
    draw = random.Random(7)
    return lambda _: draw.uniform(-size, size)


def test_noise_without_a_trend_is_flat() -> None:
    jitter = noise(30)
    assert trend(series(lambda at: 500 + jitter(at))).verdict == "flat"


def test_a_leak_under_noise_grows() -> None:
    jitter = noise(30)
    told = trend(series(lambda at: 500 + 0.2 * at + jitter(at)))
    assert told.verdict == "grows"
    assert told.per_hour == pytest.approx(720, rel=0.2)


def test_what_is_taken_while_it_warms_up_is_no_leak() -> None:
    assert trend(series(lambda at: min(900, 100 + 10 * at))).verdict == "flat"


def test_a_saw_is_flat_and_one_that_climbs_grows() -> None:
    assert trend(series(lambda at: 100 + at % 60, unit="count")).verdict == "flat"
    assert trend(series(lambda at: 100 + at % 60 + at / 4, unit="count")).verdict == "grows"


def test_a_step_up_by_a_descriptor_or_two_is_flat() -> None:
    assert trend(series(lambda at: 40 + (at > 300) + (at > 500), unit="count")).verdict == "flat"


def test_what_shrinks_is_flat() -> None:
    assert trend(series(lambda at: 900 - at)).verdict == "flat"


def test_few_samples_tell_nothing() -> None:
    assert trend(series(lambda at: at, count=5)).verdict == "short"
    assert trend(series(lambda at: at, count=0)).verdict == "short"


def test_the_live_heap_is_read_off_what_jcmd_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = " num     #instances         #bytes  class name\n   1:  5  96  [B\nTotal        200542       12345678\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=said))
    assert watch.live_heap(7) == 12345678

    def missing(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("jcmd", 1)

    monkeypatch.setattr(subprocess, "run", missing)
    assert watch.live_heap(7) is None


def test_the_page_is_that_of_the_record() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert placed(page, figures(read(ROOT / RECORD)), name=MARKS, where=str(PAGE)) == page


def test_rows_that_are_missing_are_said() -> None:
    assert figures(None) == NONE
    found = Soak(
        version=1, started="2026-11-26", seconds=60, interval_ms=200, rate=200, epochs=300, rows_in=5, rows_out=4,
        load_before=1, load_after=2, machine={}, versions={}, series=(series(lambda _: 5),),
    )  # fmt: skip
    assert "**rows are missing or doubled**" in figures(found)
    assert "1 of 1 are flat" in figures(found)
    assert "| | resident, MiB |\n|---|--:|\n| jvm | 5 to 5 |" in figures(found)
