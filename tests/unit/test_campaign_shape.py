"""The campaign in the shape of Kafka's transactions_test: its plan, its verdict, its command."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from onceonly import cli
from onceonly.model import LinkKind
from onceonly_proof.auditor import Decision, Slot
from onceonly_proof.campaign.result import encode
from onceonly_proof.campaign.shape import (
    KINDS,
    MESSAGES,
    TRANSACTION,
    Bounced,
    Shape,
    conclude,
    plan_bounces,
    sizes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly_proof.campaign.shape_run import ShapeOptions


def run(**changes: Any) -> Shape:  # noqa: ANN401  any of the arguments
    messages = changes.get("messages", 6_000)
    told: dict[str, Any] = {
        "seed": 1,
        "messages": messages,
        "transaction": 100,
        "started": "2026-11-21T20:00:00Z",
        "seconds": 50.04,
        "done": tuple(
            Bounced(kind=each.kind, at_rows=each.at_rows, seconds=4.0) for each in plan_bounces(messages, 1)
        ),
        "rows": messages,
        "seen_meanwhile": messages,
        "epochs": 30,
        "transactions": {100: 60},
        "anomalies": {"lost": 0, "duplicated": 0},
        **changes,
    }
    return conclude(**told)


# ---------------------------------------------------------------------------------------- the plan
@pytest.mark.parametrize(("messages", "each"), [(1, 1), (6_000, 1), (50_000, 2), (MESSAGES, 5)])
def test_every_kind_is_bounced_equally_often(messages: int, each: int) -> None:
    plan = plan_bounces(messages, 1)
    assert Counter(bounce.kind for bounce in plan) == dict.fromkeys(KINDS, each)


def test_bounces_are_hard_and_clean_in_turn_and_leave_messages_behind_the_last() -> None:
    plan = plan_bounces(MESSAGES, 1)
    hard = [bounce.kind.startswith("hard") for bounce in plan]
    assert all(one is not other for one, other in pairwise(hard))
    places = [bounce.at_rows for bounce in plan]
    assert places == sorted(set(places))
    assert places[0] > 0
    assert places[-1] <= MESSAGES - 4 * TRANSACTION


def test_a_seed_gives_its_plan_again_and_another_one_another() -> None:
    assert plan_bounces(MESSAGES, 1) == plan_bounces(MESSAGES, 1) != plan_bounces(MESSAGES, 2)


def test_committed_transactions_are_counted_by_their_size() -> None:
    slots = (Slot("kafka", 0, 750, "a"), Slot("kafka", 1, 750, "b"))
    decisions = [
        Decision(epoch=0, kind=LinkKind.COMMIT, slots=slots),
        Decision(epoch=1, kind=LinkKind.ABORT, slots=(Slot("kafka", 0, 9, "c"),)),
        Decision(epoch=2, kind=LinkKind.COMMIT, slots=(Slot("kafka", 0, 500, "d"), Slot("kafka", 1, 0))),
        Decision(epoch=3, kind=LinkKind.COMMIT, slots=(Slot("kafka", -1, 1_500),)),
    ]
    assert sizes(decisions) == {750: 2, 500: 1}


# ---------------------------------------------------------------------------------------- the verdict
def test_what_was_done_whole_and_shows_nothing_is_clean() -> None:
    found = run()
    assert (found.verdict, found.why) == ("clean", ())
    assert found.bounces == dict.fromkeys(KINDS, 1)
    assert msgspec.json.decode(encode(found), type=Shape) == found


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"done": ()}, "1 bounces were planned of kind hard broker, 0 were done"),
        ({"seen_meanwhile": 5_999}, "has seen 5,999 messages"),
        ({"transactions": {99: 60}}, "largest transaction carried 99"),
        ({"transactions": {}}, "largest transaction carried 0"),
        ({"trouble": ["the job ended by itself: killed"]}, "ended by itself"),
    ],
)
def test_what_was_not_done_whole_is_inconclusive(changes: dict[str, Any], why: str) -> None:
    found = run(**changes)
    assert found.verdict == "inconclusive"
    assert why in " ".join(found.why)


def test_an_anomaly_outweighs_a_doubt() -> None:
    found = run(anomalies={"lost": 2, "duplicated": 0}, done=())
    assert found.verdict == "anomalies"
    assert found.why[0] == "2 lost"


# ---------------------------------------------------------------------------------------- the command
def patch(monkeypatch: pytest.MonkeyPatch, found: Shape) -> list[ShapeOptions]:
    asked: list[ShapeOptions] = []

    def fake(options: ShapeOptions, say: Callable[[str], None]) -> Shape:
        asked.append(options)
        say("hard job bounced")
        return found

    monkeypatch.setattr("onceonly_proof.campaign.shape_run.run_shape", fake)
    monkeypatch.setattr("onceonly_proof.cli.verify.signal.signal", lambda *_: None)
    return asked


def test_the_command_prints_the_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = patch(monkeypatch, run())
    assert cli.run(["verify", "like-kafka", "--seed", "3"]) == 0
    assert (asked[0].messages, asked[0].transaction, asked[0].seed) == (MESSAGES, TRANSACTION, 3)
    shown = capsys.readouterr()
    assert ["bounces,", "hard", "job", "1"] in [line.split() for line in shown.out.splitlines()]
    assert "hard job bounced" in shown.err


@pytest.mark.parametrize(
    ("found", "status"), [(run(anomalies={"lost": 1}), 1), (run(done=()), 2)], ids=["anomaly", "doubt"]
)
def test_the_command_fails_with_what_was_found(
    found: Shape, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    patch(monkeypatch, found)
    assert cli.run(["verify", "like-kafka", "--messages", "6000", "--transaction", "100"]) == status
    assert found.why[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("like-kafka", "--sink", "kafka"),
        ("like-kafka", "--kills", "3"),
        ("like-kafka", "recovery"),
        ("like-kafka", "unaligned"),
        ("--messages", "100", "--crashes", "1"),
        ("--transaction", "100", "--crashes", "1"),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = patch(monkeypatch, run())
    assert cli.run(["verify", *arguments]) == 64
    assert not asked


def test_a_file_with_another_field_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(encode(run()).replace(b'"epochs"', b'"epoch"'), type=Shape)
