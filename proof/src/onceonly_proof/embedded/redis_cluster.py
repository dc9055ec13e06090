"""A real cluster of three Redis-compatible servers on loopback, each of which can be killed while the others go on.

::

    with EmbeddedRedisCluster() as cluster:
        ...  # cluster.url
        cluster.nodes[1].kill()
        cluster.nodes[1].start()
        cluster.wait_ready()
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import SetupError
from onceonly_proof.embedded.process import Embedded
from onceonly_proof.embedded.redis import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SLOTS = 16384
_NODES = 3
_READY_S = 30.0
_POLL_S = 0.05
_BUS = 10_000


class EmbeddedRedisCluster(Embedded):
    """Three primaries without replicas, each with a third of the slots. They keep keys and slots through a SIGKILL.

    ``settings`` are lines of the configuration of each. Not shared between threads.
    """

    def __init__(self, directory: Path | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        self._is_temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="onceonly-redis-cluster-"))
        # A node that is down is known to the others after this time, in ms.
        own = {"cluster-enabled": "yes", "cluster-node-timeout": "1000"}
        self.nodes = [
            EmbeddedRedis(self.directory / str(number), settings={**own, **(settings or {})})
            for number in range(_NODES)
        ]

    @property
    def url(self) -> str:
        """The address for the sink's option ``url``: that of the first node."""
        return self.nodes[0].url

    def announce(self, ports: Sequence[int]) -> None:
        """Let clients be told these ports in place of the nodes' own."""
        for node, port in zip(self.nodes, ports, strict=True):
            self.call(node, "CONFIG", "SET", "cluster-announce-port", str(port))
            node.settings["cluster-announce-port"] = str(port)

    def call(self, node: EmbeddedRedis, *command: str) -> Any:  # noqa: ANN401  whatever it answers
        """Send a command to one node, as redis-cli does. Raises what the client raises."""
        import redis

        password = node.settings.get("requirepass")
        made: Any = redis.Redis(port=node.port, password=password, socket_timeout=10, protocol=2)
        with closing(made) as client:
            return client.execute_command(*command)

    def start(self) -> None:
        """Start all that do not run, and wait until every slot is served. Idempotent while they run."""
        with ExitStack() as on_error:
            on_error.callback(self.kill)
            for node in self.nodes:
                node.start()
            if not self._is_made():
                self._make()
            self.wait_ready()
            on_error.pop_all()

    def wait_ready(self) -> None:
        """Wait until each node says that every slot is served. Raises ``SetupError``."""
        deadline = time.monotonic() + _READY_S
        while not all(self._serves(node) for node in self.nodes):
            if time.monotonic() > deadline:
                raise SetupError(
                    f"the Redis cluster in {self.directory} did not come up", next_step="read the logs there"
                )
            time.sleep(_POLL_S)

    def move(self, slot: int, to: EmbeddedRedis, *, until: Callable[[], None] | None = None) -> None:
        """Move a slot with its keys to another node, as redis-cli does; call ``until`` when half of them are there."""
        ids = {node.port: self.call(node, "CLUSTER", "MYID").decode() for node in self.nodes}
        mine = next(node for node in self.nodes if self._has(node, slot, ids[node.port]))
        self.call(to, "CLUSTER", "SETSLOT", str(slot), "IMPORTING", ids[mine.port])
        self.call(mine, "CLUSTER", "SETSLOT", str(slot), "MIGRATING", ids[to.port])
        keys = self.call(mine, "CLUSTER", "GETKEYSINSLOT", str(slot), "100000")
        half = (len(keys) + 1) // 2
        for some in (keys[:half], keys[half:]):
            if some:
                self.call(mine, "MIGRATE", "127.0.0.1", str(to.port), "", "0", "10000", "KEYS", *some)
            if until is not None:
                until()
                until = None
        for node in (to, mine, *self.nodes):
            self.call(node, "CLUSTER", "SETSLOT", str(slot), "NODE", ids[to.port])

    def _has(self, node: EmbeddedRedis, slot: int, own: str) -> bool:
        told = self.call(node, "CLUSTER", "SLOTS")
        return any(first <= slot <= last and who[2].decode() == own for first, last, who, *_ in told)

    def kill(self) -> None:
        """End all with SIGKILL; their data stay. Idempotent."""
        for node in self.nodes:
            node.kill()

    def close(self) -> None:
        """End all, and remove their folder, unless that was given. Idempotent."""
        self.kill()
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _is_made(self) -> bool:
        return b"cluster_slots_assigned:0" not in self.call(self.nodes[0], "CLUSTER", "INFO")

    def _make(self) -> None:
        bounds = [SLOTS * number // _NODES for number in range(_NODES + 1)]
        for node, first, last in zip(self.nodes, bounds, bounds[1:], strict=False):
            self.call(node, "CLUSTER", "ADDSLOTSRANGE", str(first), str(last - 1))
        for node in self.nodes[1:]:
            self.call(self.nodes[0], "CLUSTER", "MEET", "127.0.0.1", str(node.port), str(node.port + _BUS))

    def _serves(self, node: EmbeddedRedis) -> bool:
        import redis

        try:
            told: bytes = self.call(node, "CLUSTER", "INFO")
        except redis.exceptions.ConnectionError:  # it loads
            return False
        return b"cluster_state:ok" in told and f"cluster_known_nodes:{_NODES}".encode() in told
