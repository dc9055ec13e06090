"""Redis: a cluster of three."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from onceonly_proof.auditor import RedisReader
from onceonly_proof.campaign.cutting import CuttingProxy
from onceonly_proof.campaign.targets.keyed import KEYED
from onceonly_proof.embedded.redis_cluster import EmbeddedRedisCluster

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.auditor import Reader


class RedisCluster:
    """Keys of a cluster, by their prefix, each node behind a proxy. A kill ends one primary, the next one each time."""

    has_server = True
    replaces = True
    shows_whole_epochs = False
    shuts_out = False

    def __init__(self, folder: Path) -> None:
        self._cluster = EmbeddedRedisCluster(folder, settings={"appendfsync": "always"})
        self._cluster.start()
        # It commits by scripts.
        self._proxies = [CuttingProxy(node.port, b"EVALSHA") for node in self._cluster.nodes]
        self._cluster.announce([proxy.port for proxy in self._proxies])
        self._victims = cycle(self._cluster.nodes)

    def options(self, name: str) -> dict[str, str]:
        url = "redis://" + ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._proxies)
        return {"url": url, "prefix": f"{name}:", **KEYED}

    def reader(self, sink: str, name: str) -> Reader:
        port, *others = (node.port for node in self._cluster.nodes)
        return RedisReader(sink, port, f"{name}:", others=others)

    def waiting(self, name: str) -> list[Path]:  # noqa: ARG002  rows wait in the checkpoint
        return []

    def kill(self) -> None:
        next(self._victims).kill()

    def start(self) -> None:
        self._cluster.start()

    def cut_next(self) -> None:
        for proxy in self._proxies:
            proxy.cut_next()

    def spare(self) -> None:
        for proxy in self._proxies:
            proxy.spare()

    def cut_at(self) -> float | None:
        return min((proxy.cut_at for proxy in self._proxies if proxy.cut_at is not None), default=None)

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.close()
        self._cluster.close()
