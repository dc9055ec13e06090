"""``onceonly verify unaligned``: what it prints, and its exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly import cli
from onceonly_proof.campaign.unaligned import Series, Window
from onceonly_proof.campaign.unaligned_audit import Counted, Shown, conclude
from onceonly_proof.campaign.unaligned_plan import draw_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly_proof.campaign.unaligned_run import ShownOptions


def counted(name: str, again: int) -> Counted:
    window = Window(name="00:30", expected=1_000, counted=1_000 + again, killed=True)
    return Counted(
        windows=Series(name=name, windows=(window,)),
        again={3: again} if again else {},
        differing=0,
        anomalies={"lost": 0, "duplicated": again},
        examples=(),
    )


def patch(monkeypatch: pytest.MonkeyPatch, again: int) -> list[ShownOptions]:
    asked: list[ShownOptions] = []

    def run(options: ShownOptions, say: Callable[[str], None]) -> Shown:
        asked.append(options)
        say("life 1: read the rest")
        plan = draw_plan(options.seed, epochs=6, kills=2)
        return conclude(plan, counted("aligned", 0), counted("unaligned", again), seconds=1.5)

    monkeypatch.setattr("onceonly_proof.campaign.unaligned_run.run_shown", run)
    monkeypatch.setattr("onceonly_proof.cli.verify.signal.signal", lambda *_: None)
    return asked


def test_both_statements_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = patch(monkeypatch, again=24)
    assert cli.run(["verify", "unaligned", "--seed", "7"]) == 0
    assert asked[0].seed == 7
    shown = capsys.readouterr()
    assert shown.out.split("\n")[4].split() == ["00:30", "1,000", "1,000", "1,024", "+24", "killed"]
    assert "life 1: read the rest" in shown.err
    assert "unaligned: 24 rows counted again, 0 missing" in shown.err


def test_a_run_that_shows_nothing_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    patch(monkeypatch, again=0)
    assert cli.run(["verify", "unaligned"]) == 2
    assert "not shown: unaligned, no row was counted again" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [("unaligned", "--html", "x"), ("unaligned", "--sink", "kafka"), ("unaligned", "--each"), ("--picture", "x")],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not patch(monkeypatch, again=1)
    assert cli.run(["verify", *arguments]) == 64
