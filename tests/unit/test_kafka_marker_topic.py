"""Which topic markers name: one of their own, or the next best, which is told. No broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace as Answer
from typing import Any

import pytest
from tests.unit.test_kafka_outcomes import Coordinators

from onceonly.errors import ConfigurationError
from onceonly.sinks.kafka.checks.marker_topic import choose, name_of
from onceonly.sinks.kafka.options import KafkaOptions

UNKNOWN, FORBIDDEN, EXISTS, NO_RIGHT = 3, 29, 36, 31
READ = 1 << 3


@dataclass
class Cluster(Coordinators):
    """Has the topics ``there``; ``answers`` one that is to be made."""

    there: dict[str, int] = field(default_factory=dict)
    answers: int = 0
    look: int = 0
    made: list[tuple[str, int, int]] = field(default_factory=list)

    def patiently(self, seconds: float, thing: str, attempt: Any) -> Any:  # noqa: ANN401
        try:
            return attempt()
        except Exception:  # noqa: BLE001  once more
            return attempt()

    def send(self, request: Any, node: int | None = None) -> Any:  # noqa: ANN401
        if type(request).__name__ == "CreateTopicsRequest":
            (wanted,) = request.topics
            self.made.append((wanted.name, wanted.num_partitions, wanted.replication_factor))
            if self.answers in {0, EXISTS}:
                self.there[wanted.name] = READ
            return Answer(topics=[Answer(error_code=self.answers, error_message="because")])
        if not request.topics:
            return Answer(controller_id=1)
        name = request.topics[0].name
        code = self.look or (0 if name in self.there else UNKNOWN)
        return Answer(topics=[Answer(error_code=code, authorized_operations=self.there.get(name, 0))])


def options(**more: str) -> KafkaOptions:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return KafkaOptions.parse({"kafka.bootstrap.servers": "nowhere:9", **named})


@pytest.mark.parametrize("answers", [0, EXISTS])
def test_it_is_made_with_one_partition_where_it_is_not_there(answers: int) -> None:
    cluster = Cluster(answers=answers)
    assert choose(cluster, options(topic="t")) == "onceonly.markers"
    assert cluster.made == [("onceonly.markers", 1, -1)]
    assert choose(cluster, options()) == "onceonly.markers", "rows may carry their topics"
    assert len(cluster.made) == 1


def test_what_the_user_names_is_taken() -> None:
    cluster = Cluster()
    assert choose(cluster, options(topic="t", onceonly_marker_topic="mine")) == "mine"
    assert cluster.made == []


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster(answers=FORBIDDEN),
        Cluster(answers=NO_RIGHT),
        Cluster(look=FORBIDDEN),
        Cluster(there={"onceonly.markers": 1 << 4}),
    ],
    ids=["not made", "not in this cluster", "not seen", "not read"],
)
def test_where_it_is_refused_the_topic_of_the_rows_does_and_it_is_told(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose(cluster, options(topic="t")) == "t"
    assert "monitors of lag" in caplog.text
    with pytest.raises(ConfigurationError, match=r"onceonly\.markers cannot be had") as caught:
        choose(cluster, options())
    assert "onceonly.marker.topic" in caught.value.next_step


def test_its_name_is_one_that_kafka_takes() -> None:
    assert name_of("team a/é") == "team_a__.markers"
    assert len(name_of("x" * 400)) == 249
