"""A campaign goes on where its report ends, stops when it holds what was asked for, and cleans up."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, cast

import pytest
from rich.console import Console

from onceonly import cli
from onceonly.errors import ConfigurationError
from onceonly_proof.campaign import result, run
from onceonly_proof.campaign.faults import Pause
from onceonly_proof.campaign.result import Round
from onceonly_proof.campaign.run import CampaignOptions, run_campaign
from onceonly_proof.campaign.targets import KEYED, SERVED, TARGETS
from onceonly_proof.cli import verify as cli_verify

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.model import Guarantee
    from onceonly_proof.campaign.broker import BrokerKind
    from onceonly_proof.campaign.plan import Plan
    from onceonly_proof.campaign.scene import Arena

CONSOLE = Console(quiet=True)


class NoBroker:
    """Stands in for the broker, which no test here needs."""

    def __init__(self, directory: Path, kind: BrokerKind) -> None:
        self.directory, self.kind = directory, kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def kill(self) -> None: ...


@dataclass
class Rounds:
    """Stands in for real rounds: what was run, and what each gives."""

    crashes: int = 10
    replays: int = 0
    anomalies: int = 0
    unfired: int = 0
    interrupt_at: int = 0
    kept: bool = False
    run: list[tuple[int, int, str]] = field(default_factory=list)
    wanted: list[int | None] = field(default_factory=list)
    traced: list[bool] = field(default_factory=list)
    executors: list[tuple[int, int, bool]] = field(default_factory=list)
    speculating: list[tuple[bool, bool, bool]] = field(default_factory=list)

    def __call__(
        self, arena: Arena, plan: Plan, guarantee: Guarantee, *, crashes_max: int | None
    ) -> tuple[Round, Path | None]:
        self.run.append((plan.seed, plan.number, plan.connector))
        self.wanted.append(crashes_max)
        self.traced.append(arena.trace)
        die = any("executor" in blow.fault.name for blow in plan.blows)
        self.executors.append((arena.executors, arena.lives.executors, die))
        held = any(isinstance(blow.fault, Pause) and blow.fault.seconds > 1.5 for blow in plan.blows)
        self.speculating.append((arena.speculation, arena.lives.speculation, held))
        folder = arena.folder / f"round-{plan.number}"
        folder.mkdir()
        if len(self.run) == self.interrupt_at:
            raise KeyboardInterrupt
        if self.kept:
            arena.kept.append(folder)
        return Round(
            seed=plan.seed,
            number=plan.number,
            connector=plan.connector,
            guarantee=guarantee.value,
            started=f"2026-11-21T19:{plan.number:02}:00Z",
            seconds=1.0,
            rows=100,
            epochs=5,
            crashes=self.crashes,
            replays=self.replays,
            armed={"kill link.after_put": self.crashes},
            faults={"kill link.after_put": self.crashes - self.unfired},
            anomalies=result.split({"lost": self.anomalies}, guarantee.value)[0],
        ), folder if self.kept else None


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rounds:
    rounds = Rounds()
    monkeypatch.setattr(run, "Broker", NoBroker)
    monkeypatch.setattr(run, "ensure_jars", lambda _: None)
    monkeypatch.setattr(run, "run_round", rounds)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(work))
    return rounds


def test_rounds_are_run_until_the_report_holds_the_crashes(rounds: Rounds) -> None:
    found = run_campaign(CampaignOptions(crashes=25, seed=7), CONSOLE)

    assert rounds.run == [(7, 1, "kafka"), (7, 2, "files"), (7, 3, "kafka+files")]
    assert rounds.wanted == [25, 15, 5]
    assert (found.crashes, found.verdict) == (30, "clean")


def test_rounds_are_run_until_the_report_holds_the_replays_too(rounds: Rounds) -> None:
    rounds.replays = 4
    found = run_campaign(CampaignOptions(crashes=35, replays=9), CONSOLE)
    # While replays are wanted, a round does all that it has planned; then it ends with the last crash.
    assert rounds.wanted == [None, None, None, 5]
    assert (found.crashes, sum(each.replays for each in found.rounds)) == (40, 16)

    rounds.wanted.clear()
    run_campaign(CampaignOptions(crashes=5, replays=9), CONSOLE)
    run_campaign(CampaignOptions(replays=5), CONSOLE)
    assert rounds.wanted == [None] * 5


def test_an_interrupted_campaign_goes_on_with_the_round_that_was_not_done(
    rounds: Rounds, tmp_path: Path
) -> None:
    options = CampaignOptions(crashes=40, seed=7, json=tmp_path / "report.json")
    rounds.interrupt_at = 3
    with pytest.raises(KeyboardInterrupt):
        run_campaign(options, CONSOLE)
    assert [each.number for each in result.read(tmp_path / "report.json").rounds] == [1, 2]

    found = run_campaign(options, CONSOLE)

    assert [number for _, number, _ in rounds.run] == [1, 2, 3, 3, 4]
    assert found.crashes == 40
    assert list((tmp_path / "work").iterdir()) == []


def test_a_report_that_holds_enough_needs_no_round(rounds: Rounds, tmp_path: Path) -> None:
    options = CampaignOptions(crashes=10, json=tmp_path / "report.json")
    run_campaign(options, CONSOLE)
    found = run_campaign(options, CONSOLE)

    assert len(rounds.run) == 1
    assert found.crashes == 10


def test_minutes_are_those_of_this_invocation(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 30.0, 59.0, 61.0])
    monkeypatch.setattr(run, "monotonic", lambda: next(clock))
    run_campaign(CampaignOptions(minutes=1.0), CONSOLE)

    assert rounds.wanted[:1] == [None]
    assert len(rounds.run) == 2


def test_jobs_have_the_executors_that_are_asked_for(rounds: Rounds) -> None:
    for count in (0, 2):
        run_campaign(CampaignOptions(crashes=1, executors=count, connectors=("files",)), CONSOLE)
    assert rounds.executors == [(0, 0, False), (2, 2, True)]


def test_tasks_have_second_attempts_where_that_is_asked(rounds: Rounds) -> None:
    for asked in (False, True):
        options = CampaignOptions(crashes=1, executors=2, speculation=asked, connectors=("files",))
        run_campaign(options, CONSOLE)
    assert rounds.speculating == [(False, False, False), (True, True, True)]
    for count in (0, 1):
        with pytest.raises(ConfigurationError, match="no second attempt of a task on the host") as refused:
            run_campaign(CampaignOptions(crashes=1, executors=count, speculation=True), CONSOLE)
        assert "--executors 2" in refused.value.next_step


def test_one_round_can_be_run_again_alone(rounds: Rounds) -> None:
    run_campaign(CampaignOptions(connectors=("files",), seed=3, number=17), CONSOLE)

    assert rounds.run == [(3, 17, "files")]


@pytest.mark.parametrize("asked", [True, False])
def test_traces_are_held_against_the_model_where_that_is_asked(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    monkeypatch.setattr(run, "checker_jar", lambda _: None)
    run_campaign(CampaignOptions(crashes=1, trace=asked), CONSOLE)

    assert rounds.traced == [asked]


def test_traces_of_another_guarantee_are_refused_before_the_first_round(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly_proof.cli.verify.signal.signal", lambda *_: None)

    assert cli.run(["verify", "--crashes", "1", "--guarantee", "at-least-once", "--trace"]) == 64
    assert rounds.run == []


def test_what_was_kept_stays_and_the_rest_goes(rounds: Rounds, tmp_path: Path) -> None:
    rounds.kept = True
    run_campaign(CampaignOptions(crashes=1), CONSOLE)
    (work,) = (tmp_path / "work").iterdir()

    assert [path.name for path in work.iterdir()] == ["round-1"]


def test_what_a_killed_campaign_has_left_goes_but_for_what_it_had_kept(
    rounds: Rounds, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    dead, dirty, alive = (
        work / f"onceonly-verify-{name}" for name in (f"{ended.pid}-a", f"{ended.pid}-b", f"{os.getpid()}-c")
    )
    for folder in (dead / "kafka", dead / "round-1", dirty / "kafka", dirty / "round-2", alive / "kafka"):
        folder.mkdir(parents=True)
    (dirty / "round-2" / "world.jsonl").touch()
    run_campaign(CampaignOptions(crashes=1), CONSOLE)

    assert sorted(work.iterdir()) == sorted([dirty, alive])
    assert list(dirty.iterdir()) == [dirty / "round-2"]


def test_the_page_is_written_too(rounds: Rounds, tmp_path: Path) -> None:
    run_campaign(CampaignOptions(crashes=1, html=tmp_path / "report.html"), CONSOLE)

    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_without_an_end_nothing_is_begun(rounds: Rounds) -> None:
    with pytest.raises(ConfigurationError, match="how long"):
        run_campaign(CampaignOptions(), CONSOLE)


@pytest.mark.parametrize(
    ("given", "status"),
    [(Rounds(), 0), (Rounds(anomalies=1), 1), (Rounds(unfired=1), 2), (Rounds(anomalies=1, unfired=1), 1)],
)
def test_the_exit_status_tells_the_verdict(
    given: Rounds,
    status: int,
    rounds: Rounds,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run, "run_round", given)
    monkeypatch.setattr("onceonly_proof.cli.verify.signal.signal", lambda *_: None)

    assert cli.run(["verify", "--crashes", "1", "--sink", "kafka"]) == status
    shown = capsys.readouterr().out
    assert f"{['CLEAN', 'ANOMALIES', 'INCONCLUSIVE'][status]} · 10 crashes · 1 round" in shown
    assert ("armed 10 times, fired 9" in shown) == bool(given.unfired)
    assert f"kill link.after_put 10 {10 - given.unfired}" in " ".join(shown.split())


def test_the_command_takes_every_sink_that_there_is_a_target_for() -> None:
    assert set(cli_verify._SINKS) == {"kafka", "files", *TARGETS}
    assert set(cli_verify._BY_KEY) >= KEYED
    assert TARGETS.keys() >= SERVED


def test_rows_are_seen_early_only_by_key(rounds: Rounds) -> None:
    with pytest.raises(
        ConfigurationError, match="rows of postgres cannot be shown early: only those of keyed stores"
    ):
        run_campaign(CampaignOptions(crashes=1, early=True, connectors=("postgres",)), CONSOLE)
    assert cast("list[object]", rounds.run) == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--crashes", "0"],
        ["--sink", "ftp", "--crashes", "1"],
        ["--sink", "kafka+ftp", "--crashes", "1"],
        ["--sink", "redis+files+redis-cluster", "--crashes", "1"],
        ["--sink", "files+files", "--crashes", "1"],
    ],
)
def test_wrong_usage_is_status_64(arguments: list[str], rounds: Rounds) -> None:
    assert cli.run(["verify", *arguments]) == 64
    assert cast("list[object]", rounds.run) == []


@pytest.mark.parametrize(
    ("mode", "module"),
    [
        (["--crashes", "1"], "run"),
        (["like-kafka"], "shape_run"),
        (["recovery"], "recovery_run"),
        (["unaligned"], "unaligned_run"),
    ],
)
def test_a_package_that_is_missing_is_named_in_every_mode(
    mode: list[str], module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("onceonly_proof.cli.verify.signal.signal", lambda *_: None)
    # None in place of a module is how Python says that there is none.
    monkeypatch.setitem(sys.modules, f"onceonly_proof.campaign.{module}", None)

    assert cli.run(["verify", *mode]) == 2
    said = capsys.readouterr().err
    assert f"the campaign needs the package onceonly_proof.campaign.{module}" in said
    assert "pip install 'onceonly[proof]'" in said
