"""Runs a job under kills and asks the broker for the result, with a consumer that knows nothing of the sink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from onceonly.failpoints import fired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.embedded.kafka import EmbeddedKafka

JOB = Path(__file__).with_name("job.py")
TIMEOUT_S = 180.0


@dataclass
class Bench:
    """One job with its own topics and checkpoint on a shared broker."""

    kafka: EmbeddedKafka
    folder: Path
    args: list[str] = field(default_factory=list)
    partitions: int = 2
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")
    runs: int = 0

    def __post_init__(self) -> None:
        self.kafka.create_topic(self.source, partitions=self.partitions)
        self.kafka.create_topic(self.target, partitions=self.partitions)

    @property
    def source(self) -> str:
        return f"{self.name}-in"

    @property
    def target(self) -> str:
        return f"{self.name}-out"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def events(self) -> Path:
        return self.folder / "events"

    def feed(self, rows: Sequence[tuple[str, str]]) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "enable.idempotence": True})
        for number, (key, value) in enumerate(rows):
            producer.produce(self.source, key=key, value=value, partition=number % self.partitions)
        assert producer.flush(30) == 0

    # --- the job ------------------------------------------------------------------------------------------

    def start(self, failpoints: str = "", env: dict[str, str] | None = None) -> Run:
        self.runs += 1
        fired = self.folder / f"fired-{self.runs}"
        fired.mkdir()
        log = self.folder / f"job-{self.runs}.log"
        command = [
            *(sys.executable, "-W", "ignore", str(JOB)),
            *("--servers", self.kafka.bootstrap_servers, "--source", self.source, "--target", self.target),
            *("--checkpoint", str(self.checkpoint), *self.args),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": str(JOB.parent),
            "ONCEONLY_FAILPOINTS": failpoints,
            "ONCEONLY_FAILPOINTS_DIR": str(fired),
            "ONCEONLY_EVENTS": str(self.events),
            "SPARK_LOCAL_DIRS": str(self.folder / "spark"),
            **(env or {}),
        }
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip
        return Run(process, log, fired)

    def run(self, failpoints: str = "", env: dict[str, str] | None = None) -> Run:
        """Run to the end."""
        run = self.start(failpoints, env)
        try:
            assert run.wait() == 0, run.tail()
        finally:
            run.kill_tree()
        return run

    def run_and_kill_at(self, point: str, nth: int = 1) -> None:
        """Run until the crash point is passed for the n-th time, and SIGKILL the whole tree while it stands there."""
        run = self.start(f"{point}=pause@{nth}")
        try:
            run.wait_for(point)
        finally:
            run.kill_tree()

    def seen_events(self, kind: str) -> list[dict[str, object]]:
        lines = [
            json.loads(line)
            for path in self.events.glob("*.jsonl")
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        return [line for line in lines if line["kind"] == kind]

    # --- the auditor --------------------------------------------------------------------------------------

    def read(self, topic: str | None = None) -> list[tuple[str, str]]:
        """Read all that is committed, as any consumer would."""
        return read_committed(self.kafka.bootstrap_servers, topic or self.target)

    def assert_exactly_once(self, expected: Sequence[tuple[str, str]]) -> None:
        seen, wanted = Counter(self.read()), Counter(expected)
        missing, extra = wanted - seen, seen - wanted
        assert not missing, f"{missing.total()} rows are missing, e.g. {missing.most_common(3)}"
        assert not extra, f"{extra.total()} rows are there twice or foreign, e.g. {extra.most_common(3)}"

    def assert_nothing_left_open(self) -> None:
        assert open_transactions(self.kafka.bootstrap_servers, self.query_id()) == []

    def query_id(self) -> str:
        return self.query_id_of("checkpoint")

    def query_id_of(self, checkpoint: str) -> str:
        return str(json.loads((self.folder / checkpoint / "metadata").read_text(encoding="utf-8"))["id"])


@dataclass
class Run:
    process: subprocess.Popen[bytes]
    log: Path
    fired: Path

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end within {timeout_s} s\n{self.tail()}") from None

    def wait_for(self, point: str, timeout_s: float = TIMEOUT_S) -> int:
        """Wait until the crash point was passed; give the pid that stands there."""
        path = self.fired / f"{point}.fired"
        deadline = time.monotonic() + timeout_s
        while not (path.exists() and path.read_text(encoding="utf-8")):
            assert self.process.poll() is None, f"the job ended without passing {point}\n{self.tail()}"
            assert time.monotonic() < deadline, f"{point} was not passed within {timeout_s} s\n{self.tail()}"
            time.sleep(0.01)
        return int(path.read_text(encoding="utf-8"))

    def points_fired(self) -> list[str]:
        return fired(self.fired)

    def tree(self) -> list[psutil.Process]:
        """Give the job's processes, parents first, each stopped so that none can fork away."""
        found: list[psutil.Process] = []
        queue = [psutil.Process(self.process.pid)] if psutil.pid_exists(self.process.pid) else []
        while queue:
            process = queue.pop(0)
            try:
                process.suspend()
                queue.extend(process.children())
            except psutil.NoSuchProcess:
                continue
            found.append(process)
        return found

    def kill_tree(self) -> None:
        tree = self.tree()
        for process in tree:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait(10)
        psutil.wait_procs(tree, timeout=10)

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def read_committed(servers: str, topic: str) -> list[tuple[str, str]]:
    consumer = Consumer({
        "bootstrap.servers": servers,
        "group.id": f"audit-{uuid.uuid4().hex}",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    })  # fmt: skip
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        rows: list[tuple[str, str]] = []
        ended: set[int | None] = set()
        deadline = time.monotonic() + TIMEOUT_S
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"{topic} could not be read to its end"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            key, value = message.key(), message.value()
            rows.append((key.decode() if key else "", value.decode() if value else ""))
        return rows
    finally:
        consumer.close()


def open_transactions(servers: str, query: str) -> list[str]:
    """Ask the broker which transactions of this query are open."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        brokers = admin.list_transactions(state_filters=["Ongoing"]).values()
        return [
            entry.transactional_id for found in brokers for entry in found if query in entry.transactional_id
        ]
    finally:
        admin.close()
