"""A server with the interface of Kinesis on loopback, kinesalite: gone with the process, its records with it.

::

    with EmbeddedKinesis() as kinesis:
        kinesis.make_stream("orders", shards=2)
        ...  # kinesis.options("orders")
        kinesis.kill()  # SIGKILL
        kinesis.start()  # the same records at the same address
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from onceonly_proof.embedded.node import ensure_packages, node
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from pathlib import Path

_READY_S, _POLL_S = 60.0, 0.05
_SHARDS_MAX = 100
_STREAM_S = 20.0
_OPEN_MAX = 2
# Its own command listens on all interfaces.
_PROGRAM = """
const [packages, path, port, shards, ahead] = process.argv.slice(1)
const settings = {path, createStreamMs: 5, deleteStreamMs: 5, updateStreamMs: 5, shardLimit: Number(shards)}
const now = Date.now
Date.now = () => now() + Number(ahead) * 3600000
const server = require(packages + "/kinesalite")(settings)
server.prependListener("request", (_, answer) => answer.setHeader("Date", new Date(Date.now()).toUTCString()))
server.listen(Number(port), "127.0.0.1")
"""


class EmbeddedKinesis(EmbeddedServer):
    """One server that keeps its streams through a SIGKILL. Not shared between threads."""

    title = "the Kinesis server"
    login: ClassVar[dict[str, str]] = {"access.key": "any", "secret.key": "any"}
    """It asks for keys, and takes all."""

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory, prefix="kinesis")
        self._port = 0
        self.ahead_h = 0.0
        """How many hours its clock is ahead: it forgets what its streams keep for less. Counts at a start."""

    @property
    def port(self) -> int:
        """Its port, the same through restarts. Known once it was started."""
        return self._port

    @property
    def url(self) -> str:
        """The address for the option ``endpoint``, the same through restarts. Known once it was started."""
        return f"http://127.0.0.1:{self._port}"

    def options(self, stream: str) -> dict[str, str]:
        """Return the options of source and sink for a stream of it."""
        return {"stream": stream, "endpoint": self.url, "region": "us-east-1", **self.login}

    def start(self) -> None:
        """Start it and wait until it answers; after a kill, with the same records. Idempotent while it runs.

        Raises:
            SetupError: no Node, no packages, or it did not come up; shows its last words.
        """
        if self._process is not None:
            return
        packages = ensure_packages("kinesalite")
        self._port = self._port or free_ports(1)[0]
        self.directory.mkdir(parents=True, exist_ok=True)
        given = [packages, self.directory / "data", self._port, _SHARDS_MAX, self.ahead_h]
        self._process = self._launch([str(node()), "-e", _PROGRAM, *map(str, given)])
        self._await(self._answers, within_s=_READY_S, poll_s=_POLL_S)

    def client(self) -> Any:  # noqa: ANN401  of boto3, which has no types
        """Return a client of boto3, which the caller closes."""
        import boto3
        from botocore.config import Config

        return boto3.session.Session().client(
            "kinesis",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=self.login["access.key"],
            aws_secret_access_key=self.login["secret.key"],
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=10),
        )

    def make_stream(self, name: str, *, shards: int = 1) -> None:
        """Make a stream and wait until it can be used. Raises ``SetupError``."""
        client = self.client()
        try:
            client.create_stream(StreamName=name, ShardCount=shards)
            self.await_active(name, client)
        finally:
            client.close()

    def await_active(self, name: str, client: Any) -> None:  # noqa: ANN401  as above
        """Wait until what was asked of a stream is done. Raises ``SetupError``."""

        def is_active() -> bool:
            found = client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
            return bool(found["StreamStatus"] == "ACTIVE")

        if not until(is_active, _STREAM_S, poll_s=_POLL_S):
            raise self._failure(f"did not make the stream {name}")

    def records(self, name: str) -> list[dict[str, Any]]:
        """Read every record of a stream, shard by shard."""
        return [record for records in self.shards(name).values() for record in records]

    def placed(self, name: str) -> list[tuple[str, int, bytes]]:
        """Read the data of every record, with its shard and its place there."""
        return [
            (shard, place, record["Data"])
            for shard, records in self.shards(name).items()
            for place, record in enumerate(records)
        ]

    def reshard(self, name: str, client: Any) -> None:  # noqa: ANN401  as above
        """Split the first shard of a stream that is open, or merge the first two where there are three."""
        shards = client.list_shards(StreamName=name)["Shards"]
        standing = [each for each in shards if "EndingSequenceNumber" not in each["SequenceNumberRange"]]
        standing.sort(key=lambda each: int(each["HashKeyRange"]["StartingHashKey"]))
        first = standing[0]
        if len(standing) > _OPEN_MAX:
            client.merge_shards(
                StreamName=name, ShardToMerge=first["ShardId"], AdjacentShardToMerge=standing[1]["ShardId"]
            )
            return
        low, high = (int(first["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        client.split_shard(
            StreamName=name, ShardToSplit=first["ShardId"], NewStartingHashKey=str((low + high) // 2)
        )

    def shards(self, name: str) -> dict[str, list[dict[str, Any]]]:
        """Read every record of a stream, by its shard, those that are closed, too."""
        client = self.client()
        try:
            shards = [each["ShardId"] for each in client.list_shards(StreamName=name)["Shards"]]
            return {shard: _read(client, name, shard) for shard in shards}
        finally:
            client.close()

    def _answers(self) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        client = self.client()
        try:
            client.list_streams(Limit=1)
        except (BotoCoreError, ClientError, OSError, json.JSONDecodeError):
            return False
        finally:
            client.close()
        return True


def _read(client: Any, stream: str, shard: str) -> list[dict[str, Any]]:  # noqa: ANN401  as above
    found: list[dict[str, Any]] = []
    given = {"StreamName": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = client.get_shard_iterator(**given)["ShardIterator"]
    while iterator:
        answer = client.get_records(ShardIterator=iterator, Limit=10_000)
        found += answer["Records"]
        iterator = answer.get("NextShardIterator")
        if not answer["Records"] and not answer["MillisBehindLatest"]:
            break
    return found
