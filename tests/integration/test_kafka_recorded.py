"""Kafka worlds that older code left in the middle of an epoch, years ago: today's code opens them and goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from recorded_kafka import LAST, LEFT_BY, PROPERTIES, TOPIC, KafkaWorld
from tests.archives import unpack
from tests.unit.disk_bench import SLOTS
from tests.unit.test_log_golden import at_home

from onceonly.errors import ConfigurationError, InDoubtError
from onceonly_proof.embedded.kafka import EmbeddedKafka
from onceonly_proof.embedded.kafka_settings import cluster_id_in

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
GOLDEN = Path(__file__).parent / "golden_kafka"
RECORDED = sorted(path for path in GOLDEN.iterdir() if path.is_dir())
DECIDED = [path for path in RECORDED if path.name.endswith("-decided")]


def copied(recorded: Path, place: Path) -> KafkaWorld:
    """Copy a world to a new home, and its broker's data to ``place / "kafka"``."""
    shutil.copytree(recorded, place / "world")
    archive = place / "world" / "broker.tar.xz"
    unpack(archive, place / "kafka")
    archive.unlink()
    at_home(place / "world")
    return KafkaWorld(place / "world", last=LAST)


@pytest.fixture(params=RECORDED, ids=lambda path: path.name)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[KafkaWorld, EmbeddedKafka]]:
    world = copied(request.param, tmp_path)
    with EmbeddedKafka(tmp_path / "kafka", properties=PROPERTIES) as kafka:
        world.servers = kafka.bootstrap_servers
        yield world, kafka


def test_the_oldest_supported_code_has_left_a_world_of_each_kind() -> None:
    assert {f"40b8f96-{how}" for how in LEFT_BY} <= {path.name for path in RECORDED}


def test_a_world_that_was_left_in_an_epoch_is_recovered_by_its_broker_and_gone_on_with(
    opened: tuple[KafkaWorld, EmbeddedKafka],
) -> None:
    world, _ = opened
    (chain,) = [chain for epoch, chain in world.chains().items() if epoch == LAST + 1]
    is_decided = chain[-1]["kind"] == "GLOBAL_COMMIT"
    seen = world.wanted(*range(world.first, LAST + 1))
    assert world.receipt(LAST + 1) is None
    if is_decided:
        seen.update(world.ids(LAST + 1, 0))
    assert world.rows() == seen
    world.live(LAST + 1, run="run-5")
    assert world.rows() == world.wanted(*range(world.first, LAST + 2)), "each once, by one life"
    last = world.chains()[LAST + 1][-1]
    assert last["kind"] == "GLOBAL_COMMIT"
    # What the marker proves is kept; what has expired is written again.
    assert [vote["slot"] for vote in last["carried"]] == ([0] if is_decided else [])
    assert len(last["votes"]) + len(last["carried"]) == SLOTS
    world.live(LAST + 3, run="run-6")
    assert world.rows() == world.wanted(*range(world.first, LAST + 4))
    assert world.receipt(LAST + 3) is not None


def forget_markers(kafka: EmbeddedKafka) -> None:
    """Do what a cluster does to the offsets of groups after some days."""
    admin = kafka.admin()
    groups = [each.group_id for each in admin.list_consumer_groups().result().valid]
    ours = [group for group in groups if group.startswith("onceonly.")]
    assert ours
    for deleted in admin.delete_consumer_groups(ours).values():
        deleted.result()


@pytest.mark.parametrize("opened", DECIDED, ids=lambda path: path.name, indirect=True)
def test_where_the_markers_have_expired_too_nothing_is_concluded(
    opened: tuple[KafkaWorld, EmbeddedKafka],
) -> None:
    """Written again, the rows that were committed would be there twice."""
    world, kafka = opened
    seen = world.rows()
    forget_markers(kafka)
    for run in ("run-5", "run-6"):
        with pytest.raises(InDoubtError, match="no marker"):
            world.live(LAST + 1, run=run)
        assert world.rows() == seen


@pytest.mark.parametrize("recorded", DECIDED, ids=lambda path: path.name)
def test_on_another_cluster_nothing_is_touched_and_both_are_named(recorded: Path, tmp_path: Path) -> None:
    world = copied(recorded, tmp_path)
    former = cluster_id_in(tmp_path / "kafka" / "data")
    with EmbeddedKafka(properties=PROPERTIES) as other:
        other.create_topic(TOPIC, partitions=2)
        world.servers = other.bootstrap_servers
        with pytest.raises(
            ConfigurationError, match=f"pending for another target; none was touched.*{former}"
        ):
            world.live(LAST + 1, run="run-5")
        assert not world.rows()
