"""Runs a job under kills and asks the targets for the result, with readers that know nothing of the sinks."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from doc_blocks import extract

import onceonly
from onceonly.failpoints import fired
from onceonly_proof.auditor import query_id
from onceonly_proof.campaign.classes import ClassArchive
from onceonly_proof.campaign.machine import machine
from onceonly_proof.embedded.kafka_settings import FEEDER
from onceonly_proof.process import members

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onceonly_proof.embedded.kafka import EmbeddedKafka

HERE = Path(__file__).parent
JOB = HERE / "job.py"
TIMEOUT_S = 180.0
TEXTS = ["--column", "string(key) as key", "--column", "string(value) as value"]
"""Arguments of a job whose rows are compared where bytes would not come out as texts: in JSON, they are base64."""


@dataclass
class Bench:
    """One job with its own topics and checkpoint on a shared broker."""

    kafka: EmbeddedKafka
    folder: Path
    args: list[str] = field(default_factory=list)
    partitions: int = 2
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")

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

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def database(self) -> Path:
        return self.folder / "results.db"

    def with_all_sinks(self) -> list[str]:
        """Make the target of the docs' sink, and its module; give the job's arguments for files and database."""
        code = extract("docs/how-to/write-a-sink.md", "sink")
        (self.folder / "docs_sink.py").write_text(code, encoding="utf-8")
        with closing(sqlite3.connect(self.database)) as db:
            db.execute("CREATE TABLE results (key TEXT, value TEXT)")
        return ["--files", str(self.files), "--database", str(self.database)]

    def feed(
        self, rows: Sequence[tuple[str, str]], *, topic: str | None = None, partitions: int | None = None
    ) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, **FEEDER})
        for number, (key, value) in enumerate(rows):
            partition = number % (partitions or self.partitions)
            producer.produce(topic or self.source, key=key, value=value, partition=partition)
        assert producer.flush(30) == 0

    # --- the job ------------------------------------------------------------------------------------------

    def start(self, failpoints: str = "", env: dict[str, str] | None = None) -> Run:
        told = [
            *("--servers", self.kafka.bootstrap_servers, "--source", self.source, "--target", self.target),
            *("--checkpoint", str(self.checkpoint), *self.args),
        ]
        own = {"PYTHONPATH": python_path(self.folder), "ONCEONLY_EVENTS": str(self.events)}
        return start(str(JOB), self.folder, *told, failpoints=failpoints, env={**own, **(env or {})})

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

    def run_to_an_error(self) -> str:
        """Run the job that must stop by a user's mistake, and give the message it shows."""
        run = self.start()
        try:
            assert run.wait() == 3, run.tail()
        finally:
            run.kill_tree()
        path = Path(f"{self.checkpoint}.error")
        message = path.read_text(encoding="utf-8")
        path.unlink()
        assert "Traceback" not in message
        assert "[next: " in message
        return message

    def seen_events(self, kind: str) -> list[dict[str, object]]:
        lines = [
            json.loads(line)
            for path in self.events.glob("*.jsonl")
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        return [line for line in lines if line["kind"] == kind]

    def rows_of(self, epoch: int) -> int:
        """Count the rows of an epoch by the offsets that Spark wrote: its barrier, and the one before."""
        return self._barrier(epoch) - (self._barrier(epoch - 1) if epoch else 0)

    def _barrier(self, epoch: int) -> int:
        text = (self.checkpoint / "offsets" / str(epoch)).read_text(encoding="utf-8")
        return sum(json.loads(text.splitlines()[-1])[self.source].values())

    # --- the auditor --------------------------------------------------------------------------------------

    def read(self, topic: str | None = None) -> list[tuple[str, str]]:
        """Read all that is committed, as any consumer would."""
        return read_committed(self.kafka.bootstrap_servers, topic or self.target)

    def read_files(self) -> list[tuple[str, str]]:
        """Read every file that anybody can see."""
        rows = (
            json.loads(line) for path in visible_files(self.files) for line in path.read_bytes().splitlines()
        )
        return [(row["key"], row["value"]) for row in rows]

    def read_database(self) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(self.database)) as db:
            return db.execute("SELECT key, value FROM results").fetchall()

    def rows_in(self, sink: str) -> list[tuple[str, str]]:
        return {"kafka": self.read, "files": self.read_files, "results": self.read_database}[sink]()

    def assert_exactly_once(self, expected: Sequence[tuple[str, str]], *sinks: str) -> None:
        """See that every row is there once, in each of the sinks (default: Kafka)."""
        wanted = Counter(expected)
        for sink in sinks or ("kafka",):
            seen = Counter(self.rows_in(sink))
            missing, extra = wanted - seen, seen - wanted
            assert not missing, f"{sink}: {missing.total()} rows are missing, e.g. {missing.most_common(3)}"
            assert not extra, (
                f"{sink}: {extra.total()} rows are there twice or foreign: {extra.most_common(3)}"
            )

    def assert_nothing_left_open(self, *sinks: str) -> None:
        """See that nothing of the job is open, staged or half written in any of the sinks (default: Kafka)."""
        if not sinks or "kafka" in sinks:
            assert open_transactions(self.kafka.bootstrap_servers, self.query_id()) == []
        if "files" in sinks:
            hidden = [
                path
                for path in self.files.rglob("*")
                if path.is_file() and path not in visible_files(self.files)
            ]
            assert [
                path for path in hidden if path.suffix in {".json", ".staged"} and "staging" in path.parts
            ] == []
        if "results" in sinks:
            staged = (self.checkpoint / "onceonly" / "staged").rglob("*")
            assert [path for path in staged if path.is_file()] == []

    def query_id(self) -> str:
        return self.query_id_of("checkpoint")

    def query_id_of(self, checkpoint: str) -> str:
        return query_id(self.folder / checkpoint)


def python_path(*folders: str | Path) -> str:
    """Return where another process finds modules: beside the tests, in folders, and where this one does."""
    return os.pathsep.join(filter(None, map(str, (HERE, *folders, os.environ.get("PYTHONPATH", "")))))


@cache
def archive() -> ClassArchive:
    """Return the archive of classes that all jobs share with campaigns: a quarter of a life's time."""
    return ClassArchive.of(str(machine()["java"]))


def java_options() -> dict[str, str]:
    """Return the variable by which the JVM of a job is told of the archive, if there is one by now."""
    if not archive().path.exists():
        return {}
    # Where it does not fit, Java goes on without it, and says so.
    told = f"-XX:SharedArchiveFile={archive().path} -Xlog:cds=off -Xlog:cds+dynamic=off"
    return {"SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {told}".lstrip()}


def start(
    script: str, folder: Path, *told: str, failpoints: str = "", env: Mapping[str, str] | None = None
) -> Run:
    """Start the next life of a job that is a script, in its folder, with crash points armed."""
    number = len(list(folder.glob("fired-*"))) + 1
    fired, log = folder / f"fired-{number}", folder / f"job-{number}.log"
    fired.mkdir()
    environment = {
        **os.environ,
        "ONCEONLY_FAILPOINTS": failpoints,
        "ONCEONLY_FAILPOINTS_DIR": str(fired),
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
        **java_options(),
        **(env or {}),
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", script, *told],
            stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip
    return Run(process, log, fired)


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

    def until(
        self,
        condition: Callable[[], object],
        what: str,
        timeout_s: float = TIMEOUT_S,
        *,
        poll_s: float = 0.01,
    ) -> None:
        """Wait for a condition while the job runs."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, f"the job ended before {what}\n{self.tail()}"
            assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}\n{self.tail()}"
            time.sleep(poll_s)

    def points_fired(self) -> list[str]:
        return fired(self.fired)

    def members(self) -> list[psutil.Process]:
        """List what runs of it, also where a parent has ended."""
        return members(self.process.pid)

    def tree(self) -> list[psutil.Process]:
        """Return the job's processes, parents first, each stopped so that none can fork away."""
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


def visible_files(folder: Path) -> list[Path]:
    """List what any reader of a folder sees: nothing whose name, or whose folder's, begins with a dot or ``_``."""
    found: list[Path] = []
    for base, folders, names in os.walk(folder):
        # Not even looked into: a living job takes its own folders away.
        folders[:] = [name for name in folders if name[0] not in "._"]
        found += [Path(base, name) for name in names if name[0] not in "._"]
    return found


class Watcher:
    """Reads the files all the time, as a downstream job would, and keeps what must never be seen."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._seen: dict[Path, bytes] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher")
        self.wrong: list[str] = []
        self.looks = 0
        self.epochs: set[int] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            if len(self.wrong) < 10:
                self._look()

    def _look(self) -> None:
        if not self._bench.files.exists():
            return
        self.looks += 1
        for path in visible_files(self._bench.files):
            data = path.read_bytes()
            if self._seen.setdefault(path, data) != data:
                self.wrong.append(f"{path.name} was {len(self._seen[path])} bytes and is {len(data)}")
            if not data.endswith(b"\n"):
                self.wrong.append(f"{path.name} is seen in part: {len(data)} bytes")
        for epoch in onceonly.files.committed(str(self._bench.files)) if self._seen else []:
            files = [self._bench.files / file.path for file in epoch.files]
            rows = sum(path.read_bytes().count(b"\n") for path in files)
            wanted = self._bench.rows_of(epoch.epoch)
            if rows != wanted:
                self.wrong.append(f"chk-{epoch.epoch} is seen in part: {rows} of {wanted} rows")
            self.epochs.add(epoch.epoch)


def read_committed(servers: str, topic: str) -> list[tuple[str, str]]:
    """Read a topic to its end, partition after partition: which of them a consumer has first is chance."""
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
        rows: dict[int | None, list[tuple[str, str]]] = {number: [] for number in sorted(partitions)}
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
            rows[message.partition()].append((key.decode() if key else "", value.decode() if value else ""))
        return [row for found in rows.values() for row in found]
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
