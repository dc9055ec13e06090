"""What a job of a campaign is told, and the files over which it is told so: values for both sides."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  as below
from pathlib import Path

import msgspec

from onceonly_proof.campaign import queries
from onceonly_proof.campaign.way import ONCE, sink_of
from onceonly_proof.handover import put

CONF, READY, TASK, STOP, ERROR = "conf.json", "ready", "task.json", "stop", "error.json"
"""Files in the folder of a life: its session's settings; it waits for a task; its task; it shall end; why it ended."""
SPARK = "spark"
"""The connector that is Spark's own sink for Kafka, at least once: what recovery is compared with."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One query: a source → ``query`` → the sinks of ``connector``, which share a decision if they are several."""

    servers: str
    source: str
    """The topic that it reads, where that is Kafka's."""
    format: str = ""
    """Of its source; empty for Kafka."""
    read: Mapping[str, str] = {}
    """The options of such a source."""
    key: str = ""
    """The column of such a source that is its rows' key, in SQL."""
    target: str
    files: str
    checkpoint: str
    connector: str
    guarantee: str
    visible: str = ""
    """When rows by key are seen, as the option has it; empty for its default."""
    per_epoch: int
    limit_s: float | None = None
    """How long an epoch may take."""
    query: str = queries.UNCHANGED
    """What it does with the rows."""
    sink_servers: str = ""
    sink_options: Mapping[str, str] = {}
    """Where a sink of ours finds the broker, where it is not as all others do, and what it needs there."""
    tables: Mapping[str, Mapping[str, str]] = {}
    """The options of sinks beside Kafka and files, by their names."""
    copy: str = ""
    """Where a copy of the checkpoint is audited; empty where it is in a folder itself."""

    @property
    def audited(self) -> Path:
        """The folder in which the checkpoint is audited; what tells of the query lies beside it."""
        return Path(self.copy or self.checkpoint)

    @property
    def sinks(self) -> tuple[str, ...]:
        return tuple(map(sink_of, self.connector.split("+")))

    @property
    def letters(self) -> str:
        """The folder of dead letters."""
        return f"{self.files}-letters"

    def options(self, sink: str) -> dict[str, str]:
        """Return the options of one of its sinks."""
        kafka = {"kafka.bootstrap.servers": self.servers, "topic": self.target}
        if sink == SPARK:
            return kafka
        ours = {**kafka, **self.sink_options}
        if self.sink_servers:
            ours["kafka.bootstrap.servers"] = self.sink_servers
        own = {
            "kafka": ours,
            "files": {"path": self.files, "format": "json"},
            **self.tables,
        }[sink]
        # With several sinks, the limit is their decision's.
        limited = self.limit_s is not None and len(self.sinks) == 1
        limit = {"onceonly.epoch.timeout": f"{self.limit_s:g}"} if limited else {}
        refused = self._of_letters() if sink == "kafka" and self.query == queries.LETTERS else {}
        seen = {"onceonly.visible": self.visible} if self.visible else {}
        if self.visible and sink in ONCE:
            own = {name: value for name, value in own.items() if name != "sequence"}
        return {**own, **limit, **refused, **seen, "onceonly.guarantee": self.guarantee}

    def _of_letters(self) -> dict[str, str]:
        return {
            "onceonly.refused": "deadletter",
            "onceonly.deadletter.format": "onceonly.files",
            "onceonly.deadletter.option.path": self.letters,
            "onceonly.deadletter.option.format": "json",
            "onceonly.deadletter.limit": str(self.per_epoch),
        }

    def give(self, life: Path) -> None:
        """Give it to a job that waits for one."""
        put(life / TASK, msgspec.json.encode(self))
