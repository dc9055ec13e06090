"""``onceonly doctor`` of a checkpoint: what it knows of targets, clocks, drivers, sources and this machine."""

from __future__ import annotations

import json
import logging
import os
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.unit.doctor_bench import BOX, sick, well
from tests.unit.operator_bench import BoxSink, QueryCoordinator, run

from onceonly.coordinator.coordinator import Participant
from onceonly.errors import SetupError, TargetBehindError
from onceonly.families import behind
from onceonly.guards import known
from onceonly.guards.known import Known
from onceonly.jars.installed import Spark
from onceonly.log.files import encode
from onceonly.model import Guarantee, Receipt, SinkUse, Stamp
from onceonly.operations import (
    before_kafka,
    before_start,
    doctor,
    doctor_kafka,
    doctor_session,
    doctor_sources,
    doctor_targets,
    sinks,
)
from onceonly.operations.find import the_one
from onceonly.operations.given import Given
from onceonly.operations.probes import Health, Sick, Unasked
from onceonly.options import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from onceonly.model import Handle
    from onceonly.ports import Leftover, QueryContext


class Unlisted(BoxSink):
    """A sink that has no books, and cannot connect to list what is open."""

    def newest_epoch(self, context: QueryContext) -> None:
        return None

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        message = f"nobody answers for {context.query}"
        raise ConnectionError(message)


class Back(BoxSink):
    """A sink whose target was restored from a backup."""

    declared = (*BoxSink.declared, Option(name=behind.OPTION, doc="what becomes of the query"))

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        assert [each.transaction for each in handles] == [f"t{epoch}-0", f"t{epoch}-1"]
        raise TargetBehindError(f"it lacks chk-{epoch} of {context.query}", next_step="see to it")


class Doubtful(BoxSink):
    """A sink that cannot tell whether its target went back, and warns of that."""

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        logging.getLogger("onceonly").warning(
            "%s: chk-%d cannot be told of %d", context.sink, epoch, len(handles)
        )


@pytest.fixture
def coordinator(tmp_path: Path) -> QueryCoordinator:
    return well(tmp_path / "cp")


def link_file(coordinator: QueryCoordinator, epoch: int) -> Path:
    return coordinator.path / f"onceonly/links/{epoch:020d}.0.json"


# --- targets ------------------------------------------------------------------------------------------------


def test_a_target_that_went_back(coordinator: QueryCoordinator) -> None:
    assert sick(coordinator, box=f"{__name__}:Back") == {("targets", "hold what was committed")}
    # What a user has agreed to is told by each start, and is no alarm here.
    newest = coordinator.log.chain(24)[-1]
    use = replace(newest.uses["box"], options={**newest.uses["box"].options, behind.OPTION: behind.GO_ON})
    link_file(coordinator, 24).write_bytes(encode("link", replace(newest, uses={"box": use})))
    assert sick(coordinator, box=f"{__name__}:Back") == set()


def test_a_target_that_cannot_tell_whether_it_went_back_is_not_said_to_be_well(
    coordinator: QueryCoordinator,
) -> None:
    found = doctor.examine(str(coordinator.path), Given(classes={"box": f"{__name__}:Doubtful"}), within_s=10)
    [held] = [each for each in found if each.probe == "hold what was committed"]
    assert (held.health, held.told) == (Health.UNASKED, "box: chk-24 cannot be told of 2")
    assert f"onceonly audit {coordinator.path}" in held.next_step
    assert sick(coordinator, box=f"{__name__}:Doubtful") == set(), "it is no alarm"


def test_a_target_that_is_ahead_is_told_with_what_it_holds(coordinator: QueryCoordinator) -> None:
    (coordinator.box / "t27-0.done").touch()
    said = run("doctor", coordinator.path, "--sink", f"box={BOX}", "--only", "targets").stdout
    said = " ".join(said.split())
    assert "holds chk-27 of query" in said
    assert "its log ends at chk-24" in said
    assert f"onceonly audit {coordinator.path}" in said


def test_what_a_run_commits_meanwhile_is_not_ahead(coordinator: QueryCoordinator) -> None:
    class Committing(BoxSink):
        def newest_epoch(self, context: QueryContext) -> int | None:
            found = super().newest_epoch(context)
            coordinator.complete(1 + (found or 0))
            return 1 + (found or 0)

    made = {
        "box": Participant(
            sink=Committing({"folder": str(coordinator.box)}), guarantee=Guarantee.EXACTLY_ONCE
        )
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sinks, "participants", lambda *_: nullcontext(made))
        doctor_targets.not_ahead(the_one(coordinator.path), Given())


def test_a_target_of_which_the_newest_epochs_have_no_handles_is_asked(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    _without_rows(coordinator, 25, 26, 27)
    assert sick(coordinator) == set()
    assert sick(coordinator, box="tests.unit.test_operations_doctor:Silent") == {("targets", "answer")}
    other = QueryCoordinator(tmp_path / "other")
    _without_rows(other, 0, 1)
    assert sick(other) == set()
    assert sick(other, box=f"{__name__}:Unlisted") == {("targets", "answer")}


def _without_rows(coordinator: QueryCoordinator, *epochs: int) -> None:
    for epoch in epochs:
        coordinator.set_barrier(epoch)
        link = coordinator.link(epoch)
        coordinator.log.put_link(link)
        coordinator.settle(link)
        coordinator.note(epoch)


# --- clocks -------------------------------------------------------------------------------------------------


def ago(seconds: float, host: str = "spark-1") -> Stamp:
    at = datetime.now(UTC) - timedelta(seconds=seconds)
    return Stamp(at=at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), host=host, pid=1)


def stamped(
    coordinator: QueryCoordinator, epoch: int, link: Stamp, receipt: Stamp, *, plan_s: float | None = None,
    application: str = "a", planned: Stamp | None = None,
) -> None:  # fmt: skip
    """Complete an epoch at these moments."""
    coordinator.set_barrier(epoch)
    if plan_s is not None:
        at = round(1000 * (datetime.now(UTC).timestamp() - plan_s))
        text = f'v1\n{{"batchTimestampMs":{at}}}\n{coordinator.barrier(epoch)}'
        (coordinator.path / f"offsets/{epoch}").write_text(text, encoding="utf-8")
    decided = replace(
        coordinator.link(epoch, votes=[coordinator.vote(epoch)]), stamp=link, planned=planned,
        plan=f"{application}.0",
    )  # fmt: skip
    coordinator.log.put_link(decided)
    (coordinator.box / f"t{epoch}-0.done").touch()
    coordinator.log.put_receipt(Receipt(epoch=epoch, index=0, plan="p", stamp=receipt))
    coordinator.note(epoch)


def _set_back(coordinator: QueryCoordinator) -> None:
    stamped(coordinator, 25, ago(9), ago(8))
    stamped(coordinator, 26, ago(400, "spark-2"), ago(399, "spark-2"))


def _older_file(coordinator: QueryCoordinator) -> None:
    stamped(coordinator, 25, ago(9), ago(8))
    os.utime(link_file(coordinator, 25), (1.7e9, 1.7e9))


CLOCKS: dict[str, Callable[[QueryCoordinator], None]] = {
    "a receipt in the future": lambda each: stamped(each, 25, ago(9), ago(-500)),
    "a decision before the receipt of the epoch before": _set_back,
    "a decision before its plan by Spark": lambda each: stamped(each, 25, ago(400), ago(5), plan_s=9),
    "a file that is older than its stamp": _older_file,
}


@pytest.mark.parametrize("fault", sorted(CLOCKS))
def test_clocks_that_differ_are_told_and_nothing_else(coordinator: QueryCoordinator, fault: str) -> None:
    CLOCKS[fault](coordinator)
    assert sick(coordinator) == {("clocks", "stamps")}


def test_a_late_receipt_an_old_plan_and_a_copy_are_no_fault_of_clocks(coordinator: QueryCoordinator) -> None:
    stamped(coordinator, 25, ago(4000), ago(3000), plan_s=9000)
    stamped(coordinator, 26, ago(2000), ago(1000), plan_s=8000)  # an epoch that was run again
    os.utime(link_file(coordinator, 26))
    assert sick(coordinator) == set()


# --- drivers ------------------------------------------------------------------------------------------------


def test_two_drivers_that_take_turns_are_told_with_where_they_run(coordinator: QueryCoordinator) -> None:
    for epoch, name in enumerate("aabba", 25):  # started again elsewhere, and once more at home
        stamped(coordinator, epoch, ago(9, f"host-{name}"), ago(8), application=name)
    assert sick(coordinator) == set()
    stamped(coordinator, 30, ago(7, "host-b"), ago(6), application="b")
    assert sick(coordinator) == {("ids", "one driver decides")}
    told = run("doctor", coordinator.path, "--only", "ids").stdout
    assert "host host-a, process 1" in told
    assert "host host-b, process 1" in told


# --- sources ------------------------------------------------------------------------------------------------


def test_how_a_source_is_reached_is_asked_for_and_is_no_alarm(coordinator: QueryCoordinator) -> None:
    found = doctor.examine(str(coordinator.path), Given(classes={"box": BOX}), only=["source"], within_s=10)
    assert [each.health for each in found] == [Health.UNASKED]
    assert "--source kafka.bootstrap.servers=HOST:PORT" in found[0].next_step
    assert run("doctor", coordinator.path, "--only", "source").returncode == 0
    told = run(
        "doctor", coordinator.path, "--only", "source", "--source", "kafka.bootstrap.server=x:1"
    ).stdout
    assert "did you mean --source kafka.bootstrap.servers" in told


def test_a_file_that_is_read_next_and_is_gone(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    for epoch in (25, 26):
        end = json.dumps({"logOffset": epoch})
        link = replace(coordinator.link(epoch, votes=[coordinator.vote(epoch)]), barrier=(end,))
        (coordinator.path / f"offsets/{epoch}").write_text(f"v1\n{{}}\n{end}", encoding="utf-8")
        (tmp_path / f"{epoch}.json").touch()
        noted = coordinator.path / "sources/0" / str(epoch)
        noted.parent.mkdir(parents=True, exist_ok=True)
        entry = {"path": f"file://{tmp_path}/{epoch}.json", "timestamp": 1, "batchId": epoch}
        noted.write_text(f"v1\n{json.dumps(entry)}", encoding="utf-8")
        if epoch == 25:
            coordinator.log.put_link(link)
            coordinator.open("t25-0")
            coordinator.settle(link)
            coordinator.note(epoch)
    assert sick(coordinator) == set()
    (tmp_path / "25.json").unlink()  # it was read, and is decided
    assert sick(coordinator) == set()
    (tmp_path / "26.json").unlink()
    assert sick(coordinator) == {("source", "has what follows")}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Let a source of Kafka answer what a test says: its topics' ids, what is gone, and how long rows are kept."""
    answers: dict[str, object] = {"ids": {"events": "id-1"}, "gone": "", "keeps": None}
    from onceonly.errors import SourceChangedError
    from onceonly.guards import kafka

    def gone_since(*_: object, **__: object) -> list[object]:
        if answers["gone"]:
            raise SourceChangedError(str(answers["gone"]), next_step="take a newer savepoint")
        return []

    monkeypatch.setattr(kafka, "gone_since", gone_since)
    monkeypatch.setattr(kafka, "keeps_s", lambda *_: answers["keeps"])
    monkeypatch.setattr(kafka, "ids_of", lambda *_: answers["ids"])
    return answers


def test_rows_that_are_gone_or_about_to_go_are_told(
    coordinator: QueryCoordinator, asked: dict[str, object]
) -> None:
    stamped(coordinator, 25, ago(3001), ago(3000))
    reached = {"kafka.bootstrap.servers": "host:1"}
    asked["keeps"] = ("the topic events", 4000.0)
    assert sick(coordinator, sources=reached) == set()
    asked["keeps"] = ("the topic events", 3500.0)
    assert sick(coordinator, sources=reached) == {("source", "keeps it until a start")}
    asked["gone"] = "Retention has passed"
    assert sick(coordinator, sources=reached) == {("source", "has what follows")}


def test_a_topic_is_looked_for_in_the_cluster_of_a_sink_by_its_id(
    coordinator: QueryCoordinator, asked: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked["gone"] = "Retention has passed"
    box = BoxSink({"folder": str(coordinator.box)})
    made = Participant(sink=box, guarantee=Guarantee.EXACTLY_ONCE, use=SinkUse(sink="kafka"))
    monkeypatch.setattr(sinks, "participants", lambda *_: nullcontext({"box": made}))
    monkeypatch.setattr(sinks, "options_of", lambda *_: {"kafka.bootstrap.servers": "h:1", "topic": "t"})
    checkpoint, given = the_one(coordinator.path), Given(classes={"box": BOX})
    with pytest.raises(Unasked):  # no start has noted the ids
        doctor_sources.kept(checkpoint, given, {})
    known.write(checkpoint.told.files, Known(formats=("kafka",), topics={"events": ("id-0", "id-1")}))
    with pytest.raises(Sick, match="Retention has passed: what follows chk-24 cannot be read"):
        doctor_sources.kept(checkpoint, given, {})
    asked["ids"] = {"events": "id-2"}  # another cluster's
    with pytest.raises(Unasked):
        doctor_sources.kept(checkpoint, given, {})


# --- this machine -------------------------------------------------------------------------------------------


def test_a_spark_that_is_too_old(coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before_start, "installed", lambda: Spark(version="3.4.1", scala="2.12"))
    assert sick(coordinator) == {("versions", "Spark")}


def test_where_there_is_no_spark_nothing_is_wrong(
    coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Spark:
        raise SetupError("There is no PySpark here.", next_step="install it")

    reads_kafka(coordinator)
    for module in (before_start, doctor_session):
        monkeypatch.setattr(module, "installed", missing)
    assert sick(coordinator) == set()


def reads_kafka(coordinator: QueryCoordinator) -> None:
    known.write(the_one(coordinator.path).told.files, Known(formats=("kafka, read_uncommitted",)))


@pytest.mark.parametrize("way", ["conf", "jars"])
def test_a_connector_of_another_spark(
    coordinator: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    for module in (before_start, doctor_session):
        monkeypatch.setattr(module, "installed", lambda: Spark(version="4.2.0", scala="2.13"))
    monkeypatch.setattr(doctor_session, "jars", lambda pattern: sorted(tmp_path.glob(pattern)))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    reads_kafka(coordinator)
    assert sick(coordinator) == set()  # which jars the session gets, nobody knows
    for version, wrong in (("4.2.0", set()), ("3.5.1", {("jars", "connector")})):
        if way == "conf":
            text = f"spark.jars.packages  org.apache.spark:spark-sql-kafka-0-10_2.13:{version}\n"
            (tmp_path / "spark-defaults.conf").write_text(text, encoding="utf-8")
        else:
            for former in tmp_path.glob("*.jar"):
                former.unlink()
            (tmp_path / f"spark-sql-kafka-0-10_2.13-{version}.jar").touch()
        assert sick(coordinator) == wrong


# --- Kafka's time-outs --------------------------------------------------------------------------------------


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Let a broker have these settings, and the box be a Kafka sink with the default time-out, 15 minutes."""
    settings = {before_kafka.MAX: "900000", before_kafka.OFFSETS: "10080"}
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    monkeypatch.setattr(before_kafka, "_settings", lambda _: settings)
    monkeypatch.setattr(doctor_kafka, "_transactional", lambda *_: [("box", options, Guarantee.EXACTLY_ONCE)])
    monkeypatch.setattr(doctor_kafka, "writes", lambda _: True)
    options["kafka.transaction.timeout.ms"] = "900000"
    return settings


def test_time_outs_that_are_long_enough_are_no_alarm(
    coordinator: QueryCoordinator, broker: dict[str, str]
) -> None:
    stamped(coordinator, 25, ago(100), ago(99), planned=ago(500))
    assert sick(coordinator) == set()
    assert broker


def test_an_epoch_that_took_half_of_what_its_transactions_live(
    coordinator: QueryCoordinator, broker: dict[str, str]
) -> None:
    stamped(coordinator, 25, ago(100), ago(99), planned=ago(600))
    assert sick(coordinator) == {("timeouts", "of transactions")}
    assert broker


def test_a_broker_that_allows_less_by_now(coordinator: QueryCoordinator, broker: dict[str, str]) -> None:
    broker[before_kafka.MAX] = "600000"
    assert sick(coordinator) == {("timeouts", "of transactions")}


def test_a_job_that_is_down_until_its_markers_expire(
    coordinator: QueryCoordinator, broker: dict[str, str]
) -> None:
    stamped(coordinator, 25, ago(3001), ago(3000))
    broker[before_kafka.OFFSETS] = "70"
    assert sick(coordinator) == set()
    broker[before_kafka.OFFSETS] = "60"
    assert sick(coordinator) == {("timeouts", "of markers")}
