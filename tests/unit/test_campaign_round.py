"""What a round counts: what was armed, what fired, who died, and how long it took until rows were seen again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from subprocess import PIPE
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console

from onceonly.errors import UnavailableError
from onceonly.model import Guarantee, LinkKind
from onceonly_proof import traces
from onceonly_proof.auditor import Anomaly, Decision, Input, Seen, Slot, World, judge
from onceonly_proof.campaign import making
from onceonly_proof.campaign import round as rounds
from onceonly_proof.campaign import scene as scenes
from onceonly_proof.campaign import watch as watches
from onceonly_proof.campaign.display import Display
from onceonly_proof.campaign.plan import Blow, plan_round
from onceonly_proof.campaign.points import Points
from onceonly_proof.campaign.scene import Arena, Scene
from onceonly_proof.campaign.targets import duckdb as duckdbs
from onceonly_proof.campaign.targets.duckdb import DuckDb
from onceonly_proof.campaign.task import Task
from onceonly_proof.campaign.watch import Watch
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.campaign.fault import Stage
    from onceonly_proof.campaign.result import Round


@dataclass
class FakeProcess:
    exit_code: int | None = None


@dataclass
class FakeLife:
    process: FakeProcess = field(default_factory=FakeProcess)
    killed: bool = False
    spared: int | None = None

    def kill(self, *, spared: int | None = None) -> None:
        self.killed, self.spared = True, spared

    def stop(self) -> bool:
        return True

    def error(self) -> str:
        return "why"


@dataclass
class FakeLives:
    given: list[FakeLife] = field(default_factory=list)
    warmed: int = 0

    def next(self, task: Task) -> FakeLife:
        self.given.append(FakeLife())
        return self.given[-1]

    def warm(self) -> None:
        self.warmed += 1


@dataclass
class FakeWatch:
    """Shows a new row a while after each moment."""

    after_s: float | None = 0.4
    shows: bool = True

    def first_after(self, moment: float) -> float | None:
        return None if self.after_s is None else moment + self.after_s

    counts: bool = True

    def least(self) -> int | None:
        return 7 if self.counts else None

    def newest(self) -> int:
        return 0

    def holds(self, count: int) -> bool:
        return self.shows

    unread: list[str] = field(default_factory=list)

    def look_now(self) -> list[str]:
        return self.unread


@dataclass
class FakeFlow:
    """Its end is told by Spark's offsets, or not."""

    ahead_of: int = 0
    distinct: int = 1
    fed: int = 10
    is_told: bool = True
    is_ordered: bool = True
    ends_of: None = None
    came_again: dict[bytes, list[int]] = field(default_factory=dict)

    def start(self) -> None: ...

    def stop(self) -> int:
        return self.fed

    def is_read(self, offsets: str) -> bool | None:
        return self.rows_until(offsets) >= self.fed if self.is_told else None

    def inputs(self) -> list[Input]:
        return []

    def rows_until(self, offsets: str) -> int:
        return sum(json.loads(offsets.splitlines()[-1])["in"].values())

    def close(self) -> None: ...


@dataclass(frozen=True)
class FakeFault:
    fires: bool = True
    kills_driver: bool = False
    measured: bool = True
    crashes: int = 1
    name: str = "kill something"
    opener: FakeFault | None = None

    def arm(self, stage: Stage) -> str:
        return str(stage.now())

    def fired(self, stage: Stage, arming: str) -> float | None:
        return float(arming) if self.fires else None

    def heal(self, stage: Stage, arming: str) -> None:
        if self.kills_driver:
            stage.kill_driver()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(scenes, "_FIRE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(scenes, "_RECOVER_TIMEOUT_S", 0.05)
    monkeypatch.setattr(scenes, "_LOOK_S", 0.0)
    task = Task(
        servers="", source="in", target="out", files="", checkpoint=str(tmp_path / "checkpoint"),
        connector="kafka", guarantee="exactly-once", per_epoch=10,
    )  # fmt: skip
    arena = Arena(
        tmp_path, cast("Any", None), Points(tmp_path / "points"), cast("Any", FakeLives()),
        Display(Console(quiet=True), 0),
    )  # fmt: skip
    life = cast("Any", FakeLife())
    return Scene(
        arena, plan_round(1, 1, "kafka"), Guarantee.EXACTLY_ONCE, task, cast("Any", FakeWatch()),
        cast("Any", FakeFlow()), life, [life],
    )  # fmt: skip


def strike(scene: Scene, fault: FakeFault) -> None:
    scene.strike(Blow(0.0, fault))


def test_a_fault_that_fires_is_counted_with_its_deaths(scene: Scene) -> None:
    strike(scene, FakeFault())
    strike(scene, FakeFault(crashes=2))

    assert (scene.armed, scene.fired, scene.crashes) == ({FakeFault.name: 2}, {FakeFault.name: 2}, 3)
    assert scene.recovery_s == [pytest.approx(0.6)] * 2
    assert cast("FakeLives", scene.arena.lives).warmed == 2


def test_a_fault_that_does_not_fire_is_armed_and_no_more(scene: Scene) -> None:
    strike(scene, FakeFault(fires=False))

    assert (scene.armed, scene.fired, scene.crashes) == ({FakeFault.name: 1}, {}, 0)
    assert scene.recovery_s == []


@pytest.mark.parametrize("fires", [True, False])
def test_what_leads_to_a_fault_is_a_fault_and_a_death_of_its_own(scene: Scene, *, fires: bool) -> None:
    strike(scene, FakeFault(opener=FakeFault(name="kill before"), fires=fires))

    assert scene.armed == {"kill before": 1, FakeFault.name: 1}
    assert scene.fired == {"kill before": 1, **({FakeFault.name: 1} if fires else {})}
    assert scene.crashes == 1 + fires


def test_what_was_to_lead_to_a_fault_is_not_missed_where_the_job_came_there_by_itself(scene: Scene) -> None:
    strike(scene, FakeFault(opener=FakeFault(name="kill before", fires=False)))

    assert (scene.armed, scene.fired, scene.crashes) == ({FakeFault.name: 1}, {FakeFault.name: 1}, 1)


def test_what_leads_to_a_fault_that_did_not_fire_either_is_missed(scene: Scene) -> None:
    strike(scene, FakeFault(opener=FakeFault(name="kill before", fires=False), fires=False))

    assert (scene.armed, scene.fired) == ({"kill before": 1, FakeFault.name: 1}, {})


def test_the_time_without_a_death_and_a_broker_start_are_no_recoveries(scene: Scene) -> None:
    strike(scene, FakeFault(crashes=0))
    strike(scene, FakeFault(measured=False))

    assert scene.recovery_s == []


def test_a_driver_is_recovered_from_its_death_on_by_another_life(scene: Scene) -> None:
    first = cast("FakeLife", scene.life)
    before = time.time()
    strike(scene, FakeFault(kills_driver=True))

    assert first.killed
    assert len(scene.lives) == 2
    assert scene.died >= before


def test_what_could_not_be_read_while_the_job_was_down_is_said(scene: Scene) -> None:
    cast("FakeWatch", scene.watch).unread = ["duckdb"]
    strike(scene, FakeFault(kills_driver=True))
    scene.strand(4711)

    assert scene.trouble == ["duckdb could not be read while the job was down"] * 2


def test_what_shows_nothing_new_is_said(scene: Scene) -> None:
    cast("FakeWatch", scene.watch).after_s = None
    strike(scene, FakeFault())

    assert scene.recovery_s == []
    assert "nothing new was visible" in scene.trouble[0]


def test_a_round_that_shows_nothing_before_its_first_fault_is_said(scene: Scene) -> None:
    scene.begin()
    assert scene.trouble == []
    cast("FakeWatch", scene.watch).shows = False
    scene.begin()

    assert "nothing was visible" in scene.trouble[0]


def complete(scene: Scene, epoch: int, rows: int) -> None:
    for name in ("offsets", "commits"):
        folder = scene.arena.folder / "checkpoint" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(epoch)).write_text(f'v1\n{{}}\n{{"in":{{"0":{rows}}}}}', encoding="utf-8")


def test_a_worker_is_left_alone_until_two_epochs_more_are_complete(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cast("FakeLife", scene.life)
    complete(scene, 3, 10)
    scene.strand(4711)
    assert first.spared == 4711
    assert len(scene.lives) == 2
    monkeypatch.setattr(Scene, "_look", lambda self: complete(self, 5, 20))
    scene.await_epochs(2)
    assert scene.trouble == []
    monkeypatch.setattr(Scene, "_look", lambda self: complete(self, 6, 30))
    scene.await_epochs(2)
    assert "chk-7 was not complete" in scene.trouble[0]


def test_a_worker_that_does_not_end_is_said(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenes, "_END_TIMEOUT_S", 0.05)
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    scene.await_end(int(gone.stdout))
    assert scene.trouble == []
    scene.await_end(os.getpid())
    assert "woke up late still ran" in scene.trouble[0]


def test_rows_that_wait_are_removed_or_it_is_said_that_none_did(scene: Scene, tmp_path: Path) -> None:
    staged = tmp_path / "checkpoint" / "onceonly" / "staged" / "query" / "sink"
    staged.mkdir(parents=True)
    (staged / "0.0.arrow").touch()
    scene.remove_waiting()
    assert list(staged.iterdir()) == []
    assert scene.trouble == []
    scene.remove_waiting()
    assert "no row waited" in scene.trouble[0]


def test_where_rows_replace_others_what_is_fed_goes_by_what_spark_has_noted(scene: Scene) -> None:
    cast("FakeWatch", scene.watch).counts = False
    complete(scene, 4, 10)
    scene.until(lambda: False, 0.02)
    assert cast("FakeFlow", scene.flow).ahead_of == 10


@dataclass
class FakeWatcher:
    rows: int
    trouble: str = ""

    def seen(self) -> list[Seen]:
        return [row("kafka")] * self.rows


def row(sink: str) -> Seen:
    return Seen(sink, None, b"")


def test_a_reader_that_watched_blindly_is_said() -> None:
    def blind(kafka: FakeWatcher, files: FakeWatcher) -> list[str]:
        watch = Watch({"kafka": cast("Any", kafka), "files": cast("Any", files)})
        return watch.blind([row("kafka")] * 3 + [row("files")] * 2)

    assert blind(FakeWatcher(3, "an error that was made good"), FakeWatcher(4)) == []
    assert blind(FakeWatcher(2, "KafkaError: no"), FakeWatcher(2)) == [
        "the reader that watched kafka saw 2 rows, 3 were there in the end: KafkaError: no"
    ]
    (nothing,) = Watch({"files": cast("Any", FakeWatcher(0))}).blind([])
    assert "files saw 0 rows" in nothing


def test_readers_that_find_files_by_a_pattern_watch_too_and_what_they_get_is_judged(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    task = Task(
        servers="", source="in", target="out", files=str(folder), checkpoint=str(tmp_path / "checkpoint"),
        connector="files", guarantee="exactly-once", per_epoch=10,
    )  # fmt: skip
    went_in = [Input(number, "in/0", number, b"k", b"%d" % number) for number in range(2)]
    decided, staged = (f'{{"key":"k","value":"{number}"}}\n' for number in range(2))
    watch = Watch.begin(task, {})
    with closing(watch):
        folder.mkdir()
        (folder / "part.json").write_text(decided)
        assert until(lambda: watch.holds(1), 10)
        # No reader that passes over such names gets it.
        (folder / ".part.json").write_text(staged)
        assert watch.globbing["glob"].wait_for(2, 10)
        (folder / ".part.json").unlink()
    assert watch.globbed() == {"glob": 2, "pyarrow": 1}
    at_end = [Seen("files", b"k", b"0", "part.json", 0)]
    assert watch.blind(at_end) == []
    world = World(sinks=("files",), inputs=went_in, at_end=at_end, during=watch.seen())
    assert judge(world).anomalies[Anomaly.ABORTED_READ] == 1


def test_a_reader_by_a_pattern_that_saw_less_than_there_was_is_said_and_waited_for() -> None:
    def watch(seen: int) -> Watch:
        def of(rows: int, trouble: str = "") -> Any:  # noqa: ANN401  stands for a watcher
            return SimpleNamespace(
                seen=lambda: [row("files")] * rows,
                wait_for=lambda wanted, _: rows >= wanted,
                trouble=trouble,
            )

        return Watch({"files": of(3)}, globbing={"glob": of(3), "pyarrow": of(seen, "OSError: no")})

    assert watch(3).blind([row("files")] * 3) == []
    assert watch(1).blind([row("files")] * 3) == [
        "the reader that watched files by pyarrow saw 1 row, 3 were there in the end: OSError: no"
    ]
    assert (watch(3).holds(3), watch(1).holds(3)) == (True, False)


def test_a_round_counts_what_readers_by_a_pattern_got(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watch, "globbed", lambda _: {"glob": 7})
    found, _ = run(scene, monkeypatch, FakeWatcher(2), shows=True)
    assert (found.globbed, found.verdict) == ({"glob": 7}, "clean")


def test_a_reader_that_a_job_shuts_out_looks_as_soon_as_it_may_and_says_how_often_that_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdbs, "_WAIT_S", 0.05)
    target = DuckDb(tmp_path / "duckdb")
    task = Task(
        servers="", source="in", target="t", files="", checkpoint=str(tmp_path / "checkpoint"),
        connector="duckdb", guarantee="exactly-once", per_epoch=10,
    )  # fmt: skip
    file = target.options("t")["url"].removeprefix("duckdb:///")
    holding = (
        # The reader may have the file open just then: a job asks for it again, too.
        "import duckdb, sys; db = None\n"
        "while db is None:\n"
        "    try: db = duckdb.connect(sys.argv[1])\n"
        "    except duckdb.IOException: pass\n"
        "db.execute(\"INSERT INTO t VALUES ('k', 'v'), (NULL, 'w')\"); print('has it', flush=True)\n"
        "input(); db.close(); print('gave it', flush=True)"
    )
    with closing(Watch.begin(task, {"duckdb": target})) as watch:
        assert watch.look_now() == []
        assert watch.seen() == []
        with subprocess.Popen(
            [sys.executable, "-c", holding, file], stdin=PIPE, stdout=PIPE, text=True
        ) as job:
            assert job.stdout
            assert job.stdin
            assert job.stdout.readline() == "has it\n"
            with monkeypatch.context() as patch:
                patch.setattr(watches, "_LOOK_TIMEOUT_S", 0.5)
                assert watch.look_now() == ["duckdb"]
            job.stdin.write("\n")
            job.stdin.flush()
            assert job.stdout.readline() == "gave it\n"
        assert watch.look_now() == []
        assert {(each.sink, each.key, each.value) for each in watch.seen()} == {
            ("duckdb", b"k", b"v"),
            ("duckdb", None, b"w"),
        }
        assert watch.holds(2)
    assert 1 < watch.looks()["duckdb"] < watch.asked()["duckdb"]


def test_a_round_counts_how_often_its_readers_could_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "looks", lambda _: {"duckdb": 7})
    monkeypatch.setattr(Watch, "asked", lambda _: {"duckdb": 9})
    found, _ = run(scene, monkeypatch, FakeWatcher(2), shows=True)
    assert (found.looks, found.asked, found.verdict) == ({"duckdb": 7}, {"duckdb": 9}, "clean")


def test_where_rows_replace_others_they_are_not_counted() -> None:
    def holds(rows: int, count: int) -> bool:
        watcher = SimpleNamespace(
            seen=lambda: [row("redis")] * rows, wait_for=lambda wanted, _: rows >= wanted
        )
        watch = Watch({"redis": cast("Any", watcher)}, replacing=frozenset({"redis"}))
        assert watch.least() is None
        return watch.holds(count)

    assert holds(1, 1_000)
    assert not holds(0, 1_000)
    assert holds(0, 0)


def run(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    watcher: FakeWatcher,
    *,
    shows: bool,
    verdict: object | None = SimpleNamespace(anomalies={}, examples=("what the audit says",)),
    world: object = SimpleNamespace(inputs=[1], at_end=[row("kafka")] * 2),
    drained: bool = True,
) -> tuple[Round, Path | None]:
    """Run a round without faults whose world holds two rows; without a verdict, it is judged as any."""
    watch = Watch({"kafka": cast("Any", watcher)})
    monkeypatch.setattr(Watch, "begin", lambda *_: watch)
    monkeypatch.setattr(Watch, "holds", lambda *_: shows)
    monkeypatch.setattr(
        "onceonly_proof.campaign.watch.world",
        lambda *_, drained: replace(world, drained=drained) if isinstance(world, World) else world,
    )
    monkeypatch.setattr(rounds, "make_task", lambda *_: (scene.task, scene.flow))
    if verdict is not None:
        monkeypatch.setattr(rounds, "judge", lambda *_: verdict)
    for name in ("keep", "remove"):
        monkeypatch.setattr(rounds, name, lambda *_: None)
    if drained:
        monkeypatch.setattr(Scene, "settle", lambda *_: None)
    else:
        monkeypatch.setattr(Scene, "until", lambda *_: False)
    return rounds.run_round(scene.arena, replace(scene.plan, blows=()), Guarantee.EXACTLY_ONCE)


def test_what_a_round_had_no_time_to_read_is_no_lost_row_and_what_it_had_decided_is(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome(given: list[Seen], *, drained: bool) -> Round:
        with monkeypatch.context() as patch:
            world = World(
                sinks=("kafka",),
                inputs=[Input(number, "in/0", number, None, b"%d" % number) for number in range(4)],
                at_end=given,
                decisions=[decided(0), decided(1, receipt=False)],
            )
            watcher = FakeWatcher(2)
            found, _ = run(scene, patch, watcher, shows=True, verdict=None, world=world, drained=drained)
        return found

    def decided(epoch: int, *, receipt: bool = True) -> Decision:
        return Decision(
            epoch=epoch,
            kind=LinkKind.COMMIT,
            ranges={"in/0": (epoch, epoch + 1)},
            slots=(Slot("kafka", 0, 1),),
            receipt=receipt,
            spark_commit=receipt,
        )

    first, second = (Seen("kafka", None, b"%d" % number, "out/0", number) for number in range(2))
    slow = outcome([first, second], drained=False)
    assert (slow.anomalies["lost"], slow.verdict) == (0, "inconclusive")
    assert "not drained" in slow.trouble[-1]

    assert outcome([], drained=False).anomalies["lost"] == 1
    assert outcome([first, second], drained=True).anomalies["lost"] == 2


def explained(count: int) -> traces.Verdict:
    return traces.Verdict(
        query="q", accepted=count == 9, events=9, explained=count, stuck_at={"kind": "swept"}
    )


@pytest.mark.parametrize(
    ("judged", "word", "verdict", "said"),
    [
        ([explained(9)], "accepted", "clean", "what the audit says"),
        ([explained(9), explained(4)], "rejected", "anomalies", "4 of 9 events are explained; not this one: kind=s"),
        (ValueError("no events"), "unknown", "inconclusive", "could not be held against the model: no events"),
        (TimeoutError("not within 600 s"), "unknown", "inconclusive", "model: not within 600 s"),
    ],
    ids=["accepted", "rejected", "no log", "too late"],
)  # fmt: skip
def test_the_event_log_of_a_round_is_held_against_the_model(
    judged: list[traces.Verdict] | Exception,
    word: str,
    verdict: str,
    said: str,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Path] = []

    def validate(folder: Path, *, timeout_s: float) -> list[traces.Verdict]:
        assert timeout_s > 0
        asked.append(folder)
        if isinstance(judged, Exception):
            raise judged
        return judged

    monkeypatch.setattr(traces, "validate", validate)
    scene.arena.trace = True
    found, _ = run(scene, monkeypatch, FakeWatcher(2), shows=True)

    assert asked == [scene.arena.folder / "round-1-1-kafka" / "events"]
    assert (found.trace, found.verdict) == (word, verdict)
    assert said in " ".join((*found.examples, *found.trouble))


def test_without_being_asked_for_no_event_log_is_judged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(traces, "validate")
    found, _ = run(scene, monkeypatch, FakeWatcher(2), shows=True)

    assert (found.trace, found.verdict) == ("", "clean")


def test_what_may_be_seen_early_is_counted_and_is_no_finding(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {Anomaly.VISIBLE_BEFORE_DECISION: 2}
    examples = ("visible_before_decision: redis id 1 was decided later", "another one")
    verdict = SimpleNamespace(anomalies=counts, examples=examples)
    decided, _ = run(scene, monkeypatch, FakeWatcher(2), shows=True, verdict=verdict)
    assert (decided.verdict, decided.examples) == ("anomalies", examples)

    scene.arena.visible = "early"
    early, _ = run(scene, monkeypatch, FakeWatcher(2), shows=True, verdict=verdict)
    assert (early.verdict, early.visible, early.allowed) == ("clean", "early", {"visible_before_decision": 2})
    assert early.examples == ("another one",)


def test_what_a_round_noted_is_in_its_verdict(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    found, kept = run(scene, monkeypatch, FakeWatcher(1, "KafkaError:\n no"), shows=False)

    assert found.verdict == "inconclusive"
    start, reader = found.trouble
    assert "nothing was visible 0.05 s after the start" in start
    assert reader.endswith("saw 1 row, 2 were there in the end: KafkaError: no")
    assert kept is not None


def test_a_job_that_ends_by_itself_is_said_and_started_again_until_it_is_too_often(scene: Scene) -> None:
    for count in range(3):
        cast("FakeLife", scene.life).process.exit_code = 3
        scene.until(lambda: False, 0.02)
        assert len(scene.lives) == count + 2
        assert scene.trouble[-1] == "the job ended by itself: why"
    cast("FakeLife", scene.life).process.exit_code = 3
    with pytest.raises(UnavailableError, match="again and again"):
        scene.until(lambda: False, 0.02)


def test_a_round_is_settled_when_spark_has_noted_the_epoch_of_the_last_row(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "_DRAIN_TIMEOUT_S", 0.05)
    checkpoint = tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "offsets" / "3").write_text('v1\n{}\n{"in":{"0":4,"1":6}}', encoding="utf-8")
    scene.settle()
    assert "not drained" in scene.trouble[0]

    (checkpoint / "commits" / "3").write_text("v1\n{}", encoding="utf-8")
    scene.settle()
    assert len(scene.trouble) == 1
    cast("FakeFlow", scene.flow).fed = 11
    scene.settle()
    assert len(scene.trouble) == 2


def test_where_offsets_tell_nothing_a_round_is_settled_when_all_is_seen_or_nothing_comes_any_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "_DRAIN_TIMEOUT_S", 1.0)
    monkeypatch.setattr(scenes, "_VISIBLE_TIMEOUT_S", 0.0)
    cast("FakeFlow", scene.flow).is_told = False
    complete(scene, 3, 10)
    scene.settle()
    assert scene.trouble == []

    cast("FakeWatch", scene.watch).shows = False
    scene.settle()
    assert "not drained" in scene.trouble[0]

    monkeypatch.setattr(scenes, "_QUIET_S", 0.05)
    scene.settle()
    assert len(scene.trouble) == 1


def test_windows_may_all_be_shown_before_the_last_row_is_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "_DRAIN_TIMEOUT_S", 0.2)
    monkeypatch.setattr(scenes, "_VISIBLE_TIMEOUT_S", 0.0)
    monkeypatch.setattr(Scene, "_due", lambda _: 1)
    cast("FakeFlow", scene.flow).is_told = False
    complete(scene, 3, 10)
    scene.task = msgspec.structs.replace(scene.task, query="window")
    scene.settle()
    assert "not drained" in scene.trouble[0]
    monkeypatch.setattr(scenes, "_LOSSY_QUIET_S", 0.05)
    scene.settle()
    assert len(scene.trouble) == 1


def test_every_fault_leaves_a_line_for_whoever_reads_a_kept_round(scene: Scene, tmp_path: Path) -> None:
    strike(scene, FakeFault())
    (line,) = (tmp_path / "faults.jsonl").read_text(encoding="utf-8").splitlines()

    assert json.loads(line)["fault"] == FakeFault.name


@dataclass
class LateBroker:
    """A broker whose first answers are late or none."""

    codes: list[int]
    created: list[str] = field(default_factory=list)
    started: int = 0

    def start(self) -> None:
        self.started += 1

    def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        assert configs == {}
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        self.created.append(f"{name}/{partitions}")


def test_a_topic_is_created_on_a_broker_that_is_late() -> None:
    broker = LateBroker([KafkaError._TIMED_OUT])
    making.create(cast("Any", broker), "out", 3, {})
    there = LateBroker([KafkaError._TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS])
    making.create(cast("Any", there), "out", 3, {})

    assert broker.created == ["out/3"]
    assert broker.started == 1
    assert there.created == []


def test_a_topic_that_cannot_be_created_is_one_sentence() -> None:
    with pytest.raises(UnavailableError, match="topic out could not be created"):
        making.create(cast("Any", LateBroker([KafkaError._TIMED_OUT] * 9)), "out", 3, {})
