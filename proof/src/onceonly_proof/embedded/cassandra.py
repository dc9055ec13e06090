"""A real Cassandra on loopback, one node: gone with the process. Needs Java.

::

    with EmbeddedCassandra() as cassandra:
        ...  # cassandra.hosts
        cassandra.kill()  # SIGKILL
        cassandra.start()  # the same rows at the same address
"""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from onceonly.jars.java import find_java
from onceonly.jars.locked import ensure_jars
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_READY_S = 180.0
_CALL_S = 5.0
_CLIENT_S = 30.0
_POLL_S = 0.1
# The native protocol, version 4: a request for what the server can, and the word of the frame that says it.
_ASKED, _ANSWER, _SUPPORTED = b"\x04\x00\x00\x00\x05\x00\x00\x00\x00", 9, 6
_SETTINGS: dict[str, Any] = {
    "cluster_name": "onceonly",
    "num_tokens": 1,
    "initial_token": "0",
    "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
    "endpoint_snitch": "SimpleSnitch",
    "listen_address": "127.0.0.1",
    "rpc_address": "127.0.0.1",
    "start_native_transport": True,
    # What was acknowledged is on disk.
    "commitlog_sync": "batch",
    "commitlog_disk_access_mode": "legacy",
    "disk_access_mode": "mmap_index_only",
    "auto_snapshot": False,
    "hinted_handoff_enabled": False,
    "memtable_heap_space": "64MiB",
    "memtable_offheap_space": "32MiB",
    "key_cache_size": "0MiB",
    "file_cache_size": "32MiB",
    "concurrent_reads": 4,
    "concurrent_writes": 4,
    "concurrent_compactors": 1,
    "native_transport_max_threads": 8,
    # A busy machine is slow, and no reason to give up.
    **{
        f"{kind}_timeout": "30s"
        for kind in ("read_request", "range_request", "write_request", "cas_contention", "request")
    },
}
_LOGGING = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %d{HH:mm:ss.SSS} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="out"/></root>
</configuration>
"""
_JAVA = (
    "-Xms384m", "-Xmx384m", "-Xss256k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError", "-Djdk.attach.allowAttachSelf=true", "-Dcassandra-foreground=yes",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=0",
    "-Dcassandra.superuser_setup_delay_ms=0", "-Djava.rmi.server.hostname=127.0.0.1",
    "-Dio.netty.transport.estimateSizeOnSubmit=false",
)  # fmt: skip
# As the server's own jvm17-server.options have them.
_OPENS = (
    "java.base/java.io", "java.base/java.lang", "java.base/java.lang.module", "java.base/java.lang.reflect",
    "java.base/java.math", "java.base/java.net", "java.base/java.nio", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math", "java.base/jdk.internal.misc", "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref", "java.base/jdk.internal.reflect", "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch", "java.rmi/sun.rmi.transport.tcp", "jdk.management/com.sun.management.internal",
)  # fmt: skip
_EXPORTS = (
    "java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/java.lang.ref",
    "java.base/java.lang.reflect", "java.base/sun.nio.ch", "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server", "java.rmi/sun.rmi.transport.tcp", "java.sql/java.sql",
    "java.management/com.sun.jmx.remote.security", "jdk.unsupported/sun.misc",
    "jdk.naming.dns/com.sun.jndi.dns",
)  # fmt: skip


class EmbeddedCassandra(EmbeddedServer):
    """One node that keeps its rows through a SIGKILL. Not shared between threads.

    ``settings`` are of its own configuration, such as ``{"authenticator": "PasswordAuthenticator"}``.
    """

    title = "the Cassandra server"

    def __init__(self, directory: Path | None = None, *, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(directory, prefix="cassandra")
        self.settings = {**_SETTINGS, **(settings or {})}
        self._ports: list[int] = []

    @property
    def port(self) -> int:
        """Where clients come, the same through restarts. Known once it was started."""
        return self._ports[0]

    @property
    def hosts(self) -> str:
        """The address for the sink's option ``hosts``."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers; after a kill, with the same rows. Idempotent while it runs.

        Raises:
            SetupError: no Java, no jars, or it did not come up; shows its last words.
        """
        if self._process is not None:
            return
        jars = ensure_jars(used_by="cassandra-5.0")
        if not self._ports:
            self._ports = free_ports(3)
            self._configure()
        data, conf = self.directory / "data", self.directory / "conf"
        agent = next(jar for jar in jars if jar.name.startswith("jamm-"))
        command = [
            find_java(),
            *_JAVA,
            *(part for name in _OPENS for part in ("--add-opens", f"{name}=ALL-UNNAMED")),
            *(part for name in _EXPORTS for part in ("--add-exports", f"{name}=ALL-UNNAMED")),
            f"-javaagent:{agent}",
            f"-Dcassandra.config=file://{conf}/cassandra.yaml",
            f"-Dcassandra.storagedir={data}",
            f"-Dcassandra.logdir={data}",
            f"-Dlogback.configurationFile={conf}/logback.xml",
            f"-Dcassandra.jmx.local.port={self._ports[2]}",
            f"-Djava.io.tmpdir={data}",
            *("-cp", ":".join(map(str, (conf, *jars)))),
            "org.apache.cassandra.service.CassandraDaemon",
        ]
        self._process = self._launch(command)
        self._await(self._answers, within_s=_READY_S, poll_s=_POLL_S)

    @contextmanager
    def session(self, *, user: str = "", password: str = "") -> Iterator[Any]:
        """Give a session of Cassandra's own client, for the length of a ``with``."""
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import RoundRobinPolicy

        login = PlainTextAuthProvider(user, password) if user else None
        cluster = Cluster(
            [("127.0.0.1", self.port)],
            port=self.port,
            protocol_version=4,
            auth_provider=login,
            connect_timeout=_CLIENT_S,
            control_connection_timeout=_CLIENT_S,
            execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(RoundRobinPolicy())},
        )
        try:
            yield cluster.connect()
        finally:
            cluster.shutdown()

    def cql(self, *statements: str) -> None:
        """Run statements, one after the other."""
        with self.session() as session:
            for statement in statements:
                session.execute(statement)

    def _configure(self) -> None:
        data, conf = self.directory / "data", self.directory / "conf"
        for folder in (data, conf):
            folder.mkdir(parents=True)
        own = {
            "native_transport_port": self._ports[0],
            "storage_port": self._ports[1],
            "data_file_directories": [f"{data}/rows"],
            **{
                f"{name}_directory": f"{data}/{name}"
                for name in ("commitlog", "hints", "saved_caches", "cdc_raw")
            },
            "seed_provider": [
                {
                    "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                    "parameters": [{"seeds": f"127.0.0.1:{self._ports[1]}"}],
                }
            ],
        }
        (conf / "cassandra.yaml").write_text(json.dumps({**self.settings, **own}))  # every JSON is YAML, too
        (conf / "logback.xml").write_text(_LOGGING)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=_CALL_S) as connection:
                connection.sendall(_ASKED)
                head = connection.recv(_ANSWER)
                return len(head) == _ANSWER and head[4] == _SUPPORTED
        except OSError:
            return False
