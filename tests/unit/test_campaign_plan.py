"""The same seed gives the same round; every fault has its turn; what cannot happen to a connector is not planned."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from onceonly import failpoints
from onceonly.model import Guarantee
from onceonly_proof.campaign import way
from onceonly_proof.campaign.faults import AtPoint, Pause
from onceonly_proof.campaign.kinds import KINDS, Kind
from onceonly_proof.campaign.plan import FAULTS_MAX, FAULTS_MIN, Blow, plan_round
from onceonly_proof.campaign.queries import QUERIES, WINDOW, is_possible
from onceonly_proof.campaign.run import CONNECTORS
from onceonly_proof.campaign.sources import SOURCES
from onceonly_proof.campaign.targets import SERVED, TARGETS

ROUNDS = range(1, 120)


@pytest.mark.parametrize("connector", CONNECTORS)
def test_the_same_seed_gives_the_same_round(connector: str) -> None:
    assert plan_round(7, 3, connector) == plan_round(7, 3, connector)
    assert plan_round(7, 3, connector) != plan_round(7, 4, connector)
    assert plan_round(7, 3, connector).blows != plan_round(8, 3, connector).blows


def test_a_round_has_a_bounded_number_of_faults_after_bounded_gaps() -> None:
    for number in ROUNDS:
        plan = plan_round(1, number, "kafka")
        assert FAULTS_MIN <= len(plan.blows) <= FAULTS_MAX
        assert all(0 <= blow.gap_s < 1 for blow in plan.blows)


@pytest.mark.parametrize("connector", CONNECTORS)
def test_a_campaign_kills_at_every_point(connector: str) -> None:
    names = Counter(blow.fault.name for number in ROUNDS for blow in plan_round(1, number, connector).blows)

    for point in failpoints.EVERYWHERE:
        dies_alone = connector != "kafka+files" or point.startswith("slot.")
        assert (f"kill {point}" in names) == dies_alone
        assert f"kill driver at {point}" in names
    between = "kill driver at commit.after_handle[files]"
    assert (between in names) == (connector == "kafka+files")
    for name in ("kill worker at a random moment", "freeze worker", "kill driver at a random moment"):
        assert name in names
    assert {"stop broker", "kill broker at commit.before_handle"} <= names.keys()


def test_some_rounds_limit_their_epochs_far_above_what_these_take() -> None:
    for connector in CONNECTORS:
        limits = Counter(plan_round(1, number, connector).limit_s for number in ROUNDS)
        assert limits.keys() == {None, 120.0, 600.0}
        assert limits[None] > len(ROUNDS) / 3


def test_what_a_query_does_is_drawn_and_leaves_the_rest_of_a_round_as_it_was() -> None:
    for connector in CONNECTORS:
        drawn = Counter(plan_round(1, number, connector).query for number in ROUNDS)
        possible = {query for query in QUERIES if is_possible(query, connector)}
        assert drawn.keys() == possible - {WINDOW}
        assert drawn["unchanged"] > len(ROUNDS) / 3
        for number in ROUNDS:
            plan = plan_round(1, number, connector)
            plain = plan_round(1, number, connector, query="unchanged")
            assert plan.query == "letters" or plan.blows == plain.blows
            assert plan.blows[:FAULTS_MIN] == plain.blows[:FAULTS_MIN]
            assert replace(plan.workload, bytes_max=0, repeated=0) == replace(plain.workload, bytes_max=0)
    assert plan_round(1, 2, "kafka", guarantee=Guarantee.AT_MOST_ONCE).query == "unchanged"
    assert is_possible("letters", "kafka+files")
    assert not is_possible("letters", "files")


def test_where_rows_are_refused_workers_die_at_the_points_of_letters() -> None:
    plans = [plan_round(1, number, "kafka", query="letters") for number in ROUNDS]
    names = {blow.fault.name for plan in plans for blow in plan.blows}
    assert {f"kill {point}" for point in failpoints.OF_LETTERS} <= names
    others = [plan_round(1, number, "kafka", query="hdfs") for number in ROUNDS]
    assert not [blow for plan in others for blow in plan.blows if "letters" in blow.fault.name]


def test_a_recorded_round_has_the_workload_and_the_faults_that_it_had() -> None:
    # As drawn before epochs had limits: whoever runs a round of the record again gets that round.
    plan = plan_round(1, 3, "kafka+files")
    assert plan.workload.seed == 3659014394
    assert [blow.fault.name for blow in plan.blows[:3]] == [
        "raise link.before_check",
        "kill broker at link.after_put",
        "kill slot.after_prepare",
    ]
    assert len(plan.blows) == 15
    assert plan.blows[-1] == Blow(0.01972017227120396, AtPoint(point="slot.after_prepare"))


def test_a_kind_that_came_later_leaves_the_recorded_rounds_as_they_began() -> None:
    former = {name: kind for name, kind in KINDS.items() if not kind.later}
    for connector in CONNECTORS:
        for number in ROUNDS:
            recorded = plan_round(1, number, connector, kinds=former).blows
            assert plan_round(1, number, connector).blows[: len(recorded)] == recorded


def test_of_one_kind_every_point_is_dealt_before_one_comes_again() -> None:
    kinds = {
        "kill": Kind(
            draw=lambda _, point: AtPoint(point=point), weight=1, points=lambda _: failpoints.EVERYWHERE
        )
    }
    blows = plan_round(1, 1, "kafka", kinds=kinds).blows
    dealt = [blow.fault.name for blow in blows[: len(failpoints.EVERYWHERE)]]

    assert len(set(dealt)) == len(dealt)


def test_without_handles_nothing_is_armed_where_handles_are_committed() -> None:
    plans = [plan_round(1, number, "kafka", guarantee=Guarantee.AT_LEAST_ONCE) for number in ROUNDS]
    names = {blow.fault.name for plan in plans for blow in plan.blows}

    assert not [name for name in names if name.endswith(("recommit", "_handle", "complete.before"))]
    assert "kill link.after_put" in names


def test_servers_of_targets_die_where_a_sink_writes_to_one() -> None:
    def names(connector: str) -> set[str]:
        return {blow.fault.name for number in ROUNDS for blow in plan_round(1, number, connector).blows}

    kills = {
        f"kill target at {point}" for point in ("link.before_put", "commit.before_handle", "sweep.before")
    }
    cut = "cut connection after commit"
    for connector in ("mysql", "postgres", "kafka+postgres+mysql", *SERVED):
        assert kills | {cut} <= names(connector)
    for connector in (*CONNECTORS, "sqlite", "delta"):
        assert not (kills | {cut}) & names(connector)


def test_rows_that_wait_are_removed_and_workers_wake_up_late_where_a_target_is_no_kafka_and_no_files() -> (
    None
):
    def names(connector: str, *, served: bool = False) -> set[str]:
        plans = [plan_round(1, number, connector, served=served) for number in ROUNDS]
        return {blow.fault.name for plan in plans for blow in plan.blows}

    removed = {f"remove waiting rows at {point}" for point in ("link.before_put", "link.after_put")}
    late = {f"wake late at slot.{step}" for step in ("during_write", "before_prepare", "after_prepare")}
    for connector in (*TARGETS, "kafka+postgres+opensearch+delta"):
        assert removed | late <= names(connector)
        assert not removed & names(connector, served=True)
    for connector in CONNECTORS:
        assert not (removed | late) & names(connector)


def test_under_the_decision_of_many_sinks_the_driver_dies_at_every_step_of_every_round() -> None:
    sinks = ("kafka", "postgres", "opensearch", "delta")
    between = [f"commit.{when}_handle[{sink}]" for when in ("before", "after") for sink in sinks]
    for number in (1, 2):
        names = {blow.fault.name for blow in plan_round(1, number, "+".join(sinks)).blows}
        assert {f"kill driver at {point}" for point in (*failpoints.EVERYWHERE, *between)} <= names


def test_executors_die_where_they_are_processes_of_their_own() -> None:
    def names(source: str, *, executors: bool) -> set[str]:
        plans = [plan_round(1, number, "files", source=source, executors=executors) for number in ROUNDS]
        return {blow.fault.name for plan in plans for blow in plan.blows if "executor" in blow.fault.name}

    slots = {f"kill executor at {name}" for name in failpoints.EVERYWHERE if name.startswith("slot.")}
    ranges = {f"kill executor at {name}" for name in failpoints.OF_RANGES}
    for source in ("kafka", "rabbitmq-stream", "kinesis"):
        assert names(source, executors=False) == set()
        assert names(source, executors=True) == slots | (ranges if source == "kinesis" else set())


def test_within_thirty_crashes_executors_have_died_at_each_of_their_points() -> None:
    for source in ("kafka", *SOURCES):
        points = [name for name in failpoints.EVERYWHERE if name.startswith("slot.")]
        points += failpoints.OF_RANGES if source in way.RANGED else ()
        for number in ROUNDS:
            found, crashes = set[str](), 0
            for blow in plan_round(1, number, "files", source=source, executors=True).blows:
                crashes += blow.fault.crashes + (blow.fault.opener.crashes if blow.fault.opener else 0)
                if crashes > 30:
                    break
                found.add(blow.fault.name)
            assert {f"kill executor at {point}" for point in points} <= found


def test_tasks_are_held_where_spark_starts_second_attempts_of_them() -> None:
    def held(source: str, *, speculation: bool) -> set[str]:
        plans = [
            plan_round(1, number, "files", source=source, executors=True, speculation=speculation)
            for number in ROUNDS
        ]
        faults = [blow.fault for plan in plans for blow in plan.blows]
        return {each.name for each in faults if isinstance(each, Pause) and each.seconds > 1.5}

    slots = {f"pause {name}" for name in failpoints.EVERYWHERE if name.startswith("slot.")}
    ranges = {f"pause {name}" for name in failpoints.OF_RANGES}
    for source in ("kafka", "rabbitmq-stream", "kinesis"):
        assert held(source, speculation=False) == set()
        assert held(source, speculation=True) == slots | (ranges if source == "kinesis" else set())


def test_one_of_each_kind_is_one_of_each_kind() -> None:
    for number in ROUNDS:
        plan = plan_round(1, number, "kafka+files", each=True)
        blows = plan.blows
        assert len(blows) == sum(
            1
            for kind in KINDS.values()
            if kind.query in {"", plan.query}
            and not (kind.served or kind.sources or kind.executors)
            and kind.points("kafka+files")
        )
        names = {blow.fault.name for blow in blows}
        assert {"kill driver at a random moment", "kill worker at a random moment", "stop broker"} <= names


def test_without_the_dear_ones_no_driver_and_no_broker_dies() -> None:
    names = {
        blow.fault.name for number in ROUNDS for blow in plan_round(1, number, "files", dear=False).blows
    }

    assert not [name for name in names if "driver" in name or "broker" in name]
    assert any(name.startswith("kill ") for name in names)


def test_the_docs_name_every_fault() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "campaign.md").read_text(encoding="utf-8")
    connectors = ("kafka", "files", "kafka+postgres+opensearch+delta")
    plans = [
        plan_round(1, number, each, each=True, executors=True) for number in ROUNDS for each in connectors
    ]
    for plan in plans:
        for blow in plan.blows:
            name = re.sub(r"[a-z]+\.[a-z_]+(\[[a-z]+\])?$", "POINT", blow.fault.name)
            assert re.search(rf"^\| [^|]*`{re.escape(name)}`[^|]* \|", page, re.MULTILINE)


def test_names_say_what_is_done_where() -> None:
    assert AtPoint(point="link.after_put").name == "kill link.after_put"
    assert AtPoint(point="link.after_put", action="raise").name == "raise link.after_put"
    assert Pause(point="sweep.before", nth=1, seconds=1).name == "pause sweep.before"


def test_only_a_round_with_files_has_a_consumer_that_takes_them() -> None:
    kinds = {"take files at": KINDS["take files at"], "kill worker": KINDS["kill worker"]}
    names = {
        connector: {blow.fault.name for blow in plan_round(1, 1, connector, kinds=kinds, each=True).blows}
        for connector in ("kafka", "files", "kafka+files")
    }
    assert names["kafka"] == {"kill worker at a random moment"}
    assert all(len(names[each]) == 2 for each in ("files", "kafka+files"))
