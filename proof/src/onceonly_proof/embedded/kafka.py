"""A real Kafka broker on loopback: no Docker, no fixed ports, gone with the process.

::

    with EmbeddedKafka() as kafka:
        kafka.create_topic("events", partitions=3)
        ...  # kafka.bootstrap_servers
        kafka.kill()  # SIGKILL, as in a power cut
        kafka.start()  # the same data on the same port
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import SetupError
from onceonly.jars.java import find_java
from onceonly_proof.embedded import kafka_settings as settings
from onceonly_proof.embedded.jars import broker_classpath, broker_release
from onceonly_proof.embedded.process import Embedded, GuardedProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka.admin import AdminClient, TopicMetadata

_START_ATTEMPTS_MAX = 3
_POLL_S = 0.1
_TOPIC_POLL_S = 0.01  # it is there after a few milliseconds, if not at once
_STOP_TIMEOUT_S = 30.0
_REQUEST_TIMEOUT_S = 30.0
_LOG_LINES_SHOWN = 15
_PORT_TAKEN = ("Address already in use", "BindException")


class EmbeddedKafka(Embedded):
    """One KRaft broker in a folder of its own. Not thread-safe; use it from one thread.

    Args:
        directory: where data, settings and log stay. Without it, a temporary folder is used and
            removed at the end.
        properties: settings of the broker (``server.properties``) over those chosen here. The
            listeners are called ``BROKER`` and ``CONTROLLER``.
        client_properties: what librdkafka needs to talk to this broker, where ``properties``
            ask for authentication.
        ready_timeout_s: how long a start may take until the broker answers.
        ports: of clients and of the controller; free ones are chosen without them.
        cluster_id: of the cluster that it belongs to; drawn without it.
        release: which Kafka, of ``jars.RELEASES``; without it what ``ONCEONLY_BROKER`` says, or the newest.
    """

    # One that lives for minutes would not earn back what the second compiler takes of its start: a third and more.
    _compiler: ClassVar[tuple[str, ...]] = ("-XX:TieredStopAtLevel=1",)

    def __init__(
        self,
        directory: Path | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        client_properties: Mapping[str, str] | None = None,
        ready_timeout_s: float = 60.0,
        ports: tuple[int, int] | None = None,
        cluster_id: str | None = None,
        release: str | None = None,
    ) -> None:
        self.release = release or broker_release()
        self._is_temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="onceonly-kafka-"))
        self._properties = dict(properties or {})
        self._client_properties = dict(client_properties or {})
        self._ready_timeout_s = ready_timeout_s
        self._process: GuardedProcess | None = None
        self._ports = ports
        self._is_formatted = False
        known = settings.cluster_id_in(self.directory / "data")
        self._cluster_id = known or cluster_id or settings.new_cluster_id()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, the same through restarts. Known once the broker was started."""
        if self._ports is None:
            raise RuntimeError("The embedded broker was not started yet.")
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def log_file(self) -> Path:
        """What the broker wrote, all its lives in one file."""
        return self.directory / "broker.log"

    @property
    def pid(self) -> int | None:
        """The broker's process id, or None while it is down."""
        if self._process is None or self._process.has_ended():
            return None
        return self._process.pid

    def start(self) -> None:
        """Start the broker and wait until it answers; after a stop or kill, on the same port.

        Idempotent while it runs. The first start formats the folder and chooses the ports.

        Raises:
            SetupError: no Java, no jars, or the broker did not come up; shows its last log lines.
        """
        if self.pid is not None:
            return
        for attempt in range(1, _START_ATTEMPTS_MAX + 1):
            is_first_life = self._ports is None
            log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
            self.launch()
            try:
                self.wait_ready()
            except SetupError:
                self.kill()
                # Between choosing a free port and binding it, another process may have taken it.
                if attempt == _START_ATTEMPTS_MAX or not self._lost_its_port(log_start):
                    raise
                if is_first_life:
                    self._ports, self._is_formatted = None, False
            else:
                return

    def launch(self) -> None:
        """Start the broker without waiting for it, as one of several must be. See ``wait_ready``."""
        if not self._is_formatted:
            ports = self._ports or settings.free_ports()
            self._format(*ports)
            self._ports, self._is_formatted = ports, True
        self._process = GuardedProcess([*self._java(), "kafka.Kafka", self._settings], self.log_file)

    def wait_ready(self) -> None:
        """Wait until this broker, and no other on its port, answers a metadata request.

        Raises:
            SetupError: it ended, or did not answer within ``ready_timeout_s``.
        """
        from confluent_kafka import KafkaException

        admin = self.admin()
        deadline = time.monotonic() + self._ready_timeout_s
        while time.monotonic() < deadline:
            if self._process is None or self._process.has_ended(_POLL_S):
                raise self._failure("ended while it was starting")
            with contextlib.suppress(KafkaException):  # not there yet; the deadline bounds it
                metadata = admin.list_topics(timeout=1)
                if metadata.brokers and metadata.cluster_id == self._cluster_id:
                    return
        raise self._failure(f"did not answer within {self._ready_timeout_s:g} s")

    def kill(self) -> None:
        """End the broker with SIGKILL; its data stay. Idempotent."""
        if self._process:
            self._process.kill()
            self._process = None

    def stop(self) -> None:
        """Let the broker shut down in order; its data stay. Idempotent; bounded by 30 s."""
        if self._process:
            self._process.stop(_STOP_TIMEOUT_S)
            self._process = None

    def close(self) -> None:
        """End the broker and remove its folder, unless that was given. Idempotent."""
        if self._is_temporary:
            self.kill()  # nobody will read these data again
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            self.stop()

    def admin(self) -> AdminClient:
        """Return a new administration client of this broker."""
        from confluent_kafka.admin import AdminClient

        quiet = {"log_level": 0}  # a refused connection is expected while a broker starts or is down
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, **quiet, **self._client_properties})

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        replicas: int = 1,
    ) -> None:
        """Create a topic and wait until the broker has it.

        Raises:
            confluent_kafka.KafkaException: the broker refused, for example as it exists.
            SetupError: as of ``wait_for_topic``.
        """
        from confluent_kafka.admin import NewTopic

        topic = NewTopic(
            name, num_partitions=partitions, replication_factor=replicas, config=dict(configs or {})
        )
        admin = self.admin()  # a name of its own: the answer needs the client alive
        answers = admin.create_topics([topic], operation_timeout=_REQUEST_TIMEOUT_S)
        answers[name].result(_REQUEST_TIMEOUT_S)
        self.wait_for_topic(name, partitions)

    def wait_for_topic(self, name: str, partitions: int) -> None:
        """Wait until this broker says where a topic is that the controller has: that reaches the broker a little later.

        Raises:
            SetupError: it did not within 30 s.
        """
        admin = self.admin()
        deadline = time.monotonic() + _REQUEST_TIMEOUT_S
        while not _has_leaders(admin.list_topics(timeout=_REQUEST_TIMEOUT_S).topics.get(name), partitions):
            if time.monotonic() > deadline:
                raise self._failure(f"did not hear of topic {name} within {_REQUEST_TIMEOUT_S:g} s")
            time.sleep(_TOPIC_POLL_S)

    @property
    def _settings(self) -> str:
        return str(self.directory / "server.properties")

    def _java(self) -> list[str]:
        files = resources.files("onceonly_proof.embedded")
        return [
            find_java(),
            *("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData", *self._compiler),
            f"-Dlog4j2.configurationFile={files.joinpath('log4j2.properties')}",
            f"-Dlog4j.configuration=file:{files.joinpath('log4j.properties')}",  # before 4.0
            f"-Djava.io.tmpdir={self.directory}",
            *("-cp", ":".join(map(str, broker_classpath(release=self.release)))),
        ]

    def _format(self, port: int, controller_port: int) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        data = self.directory / "data"
        Path(self._settings).write_text(
            settings.server_properties(port, controller_port, data, self._properties)
        )
        # Data that are there already, of an earlier life in a given directory, stay.
        command = [*self._java(), "kafka.tools.StorageTool", "format", "--ignore-formatted"]
        with self.log_file.open("ab") as log:
            try:
                subprocess.run(
                    [*command, "-t", self._cluster_id, "-c", self._settings],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=self._ready_timeout_s,
                    check=True,
                )
            except subprocess.SubprocessError as error:
                raise self._failure("could not format its folder") from error

    def _lost_its_port(self, log_start: int) -> bool:
        with self.log_file.open("rb") as log:
            log.seek(log_start)
            text = log.read().decode(errors="replace")
        return any(sign in text for sign in _PORT_TAKEN)

    def _failure(self, what: str) -> SetupError:
        log = self.log_file
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        last = "\n  ".join(lines[-_LOG_LINES_SHOWN:])
        return SetupError(
            f"The embedded Kafka broker in {self.directory} {what}. Its last words:\n  {last}\n",
            next_step="read them; usual are a wrong setting, too little memory and a full disk",
        )


class MeasuredKafka(EmbeddedKafka):
    """A broker that becomes as fast as it can, for measurements."""

    _compiler = ()


def _has_leaders(topic: TopicMetadata | None, partitions: int) -> bool:
    """Say whether a broker that knows this of a topic can be written to. Pure."""
    known = topic.partitions.values() if topic is not None and topic.error is None else ()
    return len(known) == partitions and all(each.leader >= 0 for each in known)
