from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata, ConfigResource

from onceonly.errors import SetupError
from onceonly_proof.embedded import kafka_settings
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

START_AND_WAIT = """
import sys
from pathlib import Path
from onceonly_proof.embedded.kafka import EmbeddedKafka
with EmbeddedKafka(Path(sys.argv[1])) as kafka:
    print(kafka.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def mortal() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties={"transaction.max.timeout.ms": "12345"}, ready_timeout_s=240) as broker:
        yield broker


@pytest.fixture
def own_kafka(mortal: EmbeddedKafka) -> EmbeddedKafka:
    """A broker that the test may kill."""
    mortal.start()
    return mortal


def write(kafka: EmbeddedKafka, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def read_first(kafka: EmbeddedKafka, topic: str) -> bytes | str | None:
    settings = {"group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        return message.value()
    finally:
        consumer.close()


def setting(kafka: EmbeddedKafka, name: str) -> str:
    admin = kafka.admin()
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    return str(admin.describe_configs([resource])[resource].result(30)[name].value)


def test_a_record_written_is_read_back(kafka: EmbeddedKafka) -> None:
    kafka.create_topic("broker-hello", partitions=2)
    write(kafka, "broker-hello", b"hello")
    assert read_first(kafka, "broker-hello") == b"hello"


def test_a_topic_has_the_partitions_and_settings_asked_for(kafka: EmbeddedKafka) -> None:
    kafka.create_topic("broker-settings", 3, {"cleanup.policy": "compact"})
    admin = kafka.admin()
    assert len(admin.list_topics("broker-settings", 30).topics["broker-settings"].partitions) == 3
    resource = ConfigResource(ConfigResource.Type.TOPIC, "broker-settings")
    assert admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == ("compact")


def test_a_topic_is_made_once_the_broker_itself_knows_its_leaders(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller answers before the broker has heard of the topic: a sink that asked at once would not find it."""
    name = "broker-heard-later"
    answers: list[ClusterMetadata] = []

    def list_topics(self: AdminClient, **said: float) -> ClusterMetadata:
        answers.append(AdminClient.list_topics(self, **said))
        found = answers[-1].topics
        if len(answers) == 1:
            found.pop(name, None)
        elif len(answers) == 2:
            found[name].partitions.popitem()
        elif len(answers) == 3:
            found[name].partitions[1].leader = -1
        return answers[-1]

    late = type("Late", (AdminClient,), {"list_topics": list_topics})
    monkeypatch.setattr(kafka, "admin", lambda: late({"bootstrap.servers": kafka.bootstrap_servers}))
    kafka.create_topic(name, partitions=2)
    assert len(answers) == 4


def test_the_newest_transaction_protocol_is_finalised(kafka: EmbeddedKafka) -> None:
    """Version 2 is what the sink's commits from another process were measured with."""
    cluster = subprocess.run(
        [
            *(*kafka._java(), "org.apache.kafka.tools.FeatureCommand"),
            *("--bootstrap-server", kafka.bootstrap_servers, "describe"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [line for line in cluster.stdout.splitlines() if "transaction.version" in line]
    assert "FinalizedVersionLevel: 2" in lines[0]


def test_records_survive_a_sigkill_and_the_address_stays(own_kafka: EmbeddedKafka) -> None:
    address = own_kafka.bootstrap_servers
    own_kafka.create_topic("kept")
    write(own_kafka, "kept", b"still here")
    own_kafka.kill()
    assert own_kafka.pid is None
    own_kafka.start()
    assert own_kafka.bootstrap_servers == address
    assert read_first(own_kafka, "kept") == b"still here"


def test_a_broker_that_died_by_itself_can_be_started_again(own_kafka: EmbeddedKafka) -> None:
    assert own_kafka.pid is not None
    broker = psutil.Process(own_kafka.pid)
    broker.kill()
    broker.wait(30)
    own_kafka.start()
    assert own_kafka.admin().list_topics(timeout=30).brokers


def test_data_of_a_given_folder_survive_a_port_taken_meanwhile(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedKafka(tmp_path) as first:
        first.create_topic("kept")
    choices = iter([kafka._ports, kafka_settings.free_ports()])
    monkeypatch.setattr(kafka_settings, "free_ports", lambda: next(choices))
    with EmbeddedKafka(tmp_path) as second:
        assert "kept" in second.admin().list_topics(timeout=30).topics


def test_a_stop_is_in_order_and_can_be_followed_by_a_start(own_kafka: EmbeddedKafka) -> None:
    own_kafka.stop()
    assert "shut down completed" in own_kafka.log_file.read_text()
    own_kafka.start()
    assert own_kafka.admin().list_topics(timeout=30).brokers


def test_properties_given_go_before_the_own_ones(own_kafka: EmbeddedKafka) -> None:
    assert setting(own_kafka, "transaction.max.timeout.ms") == "12345"


def test_a_port_taken_by_another_broker_is_given_up(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = kafka._ports
    choices = iter([taken, kafka_settings.free_ports()])
    monkeypatch.setattr(kafka_settings, "free_ports", lambda: next(choices))
    with EmbeddedKafka() as second:
        assert second.bootstrap_servers != kafka.bootstrap_servers


def test_a_broker_that_cannot_start_shows_its_last_words(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path, properties={"log.segment.bytes": "many"})
    with pytest.raises(SetupError, match=r"(?s)could not format.*Invalid value many"):
        kafka.start()
    assert kafka.pid is None


def test_a_temporary_folder_is_removed_and_a_given_one_kept(tmp_path: Path) -> None:
    with EmbeddedKafka() as temporary, EmbeddedKafka(tmp_path) as given:
        given.create_topic("kept")
        assert temporary.directory.exists()
    assert not temporary.directory.exists()
    assert (tmp_path / "data" / "kept-0").is_dir()


def test_no_broker_outlives_a_killed_parent(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        broker = psutil.Process(int(parent.stdout.readline()))
        assert broker.is_running()
        os.kill(parent.pid, signal.SIGKILL)
    gone, alive = psutil.wait_procs([broker], timeout=30)
    assert gone
    assert not alive


def test_a_broker_outlives_the_thread_that_started_it() -> None:
    kafka = EmbeddedKafka()
    try:
        thread = threading.Thread(target=kafka.start)
        thread.start()
        thread.join()
        assert kafka.admin().list_topics(timeout=30).brokers
    finally:
        kafka.close()
