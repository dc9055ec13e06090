"""Kinesis: streams of a kinesalite, whose shards split and merge while they are read."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from onceonly_proof.auditor import Input
from onceonly_proof.campaign.sources.port import Flow, Served, require_whole
from onceonly_proof.campaign.workload import number_of
from onceonly_proof.embedded.kinesis import EmbeddedKinesis

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from onceonly_proof.auditor.log import Ends, EndsOf
    from onceonly_proof.campaign.sources.port import Place
    from onceonly_proof.campaign.workload import Workload

_TASKS = 2


class Shards(Flow):
    """One stream. A row whose answer is lost may be there, and is not written again: the stream tells what went in."""

    def __init__(self, server: EmbeddedKinesis, stream: str, workload: Workload, place: Place) -> None:
        super().__init__(workload)
        self._server, self._stream = server, stream
        self._store, self._ranges = place.store, place.at("ranges")
        # Without a limit, each epoch reads up to the newest record: what it has read, only its range tells.
        self._is_limited = random.Random(f"{workload.seed}/limit").random() < 0.5  # noqa: PLR2004  as often as not
        self._client: Any = server.client()
        self._waiting: list[dict[str, Any]] = []
        self._moves = 0
        self._found: list[Input] | None = None
        self._places: dict[str, dict[str, int]] = {}
        """Of each shard, the places of its sequence numbers. Known once it was read back."""

    @property
    def distinct(self) -> int:
        return super().distinct if self._found is None else len({each.value for each in self._found})

    def options(self) -> dict[str, str]:
        limit = {"maxRecordsPerTrigger": str(self._workload.per_epoch)} if self._is_limited else {}
        return {
            **self._server.options(self._stream),
            "onceonly.ranges": self._ranges,
            "tasks": str(_TASKS),
            **limit,
        }

    def is_read(self, offsets: str) -> bool:
        count = len(self.inputs())
        try:
            ends = self._ends_of({0: [offsets.splitlines()[-1]]})
        except (IndexError, ValueError, KeyError):
            return False  # not there, or being written
        return sum(ends.get(0, {}).values()) == count

    def inputs(self) -> list[Input]:
        if self._found is None:
            records = self._server.shards(self._stream)
            self._places = _places(records)
            self._found = require_whole([
                Input(number, shard, place, record["PartitionKey"].encode(), record["Data"])
                for number, (shard, place, record) in enumerate(
                    (shard, place, record)
                    for shard, each in records.items()
                    for place, record in enumerate(each)
                )
            ])  # fmt: skip
        return self._found

    def numbers(self) -> list[int]:
        return [number_of(each.value) for each in self.inputs()]

    @property
    def ends_of(self) -> EndsOf:
        """The next offset says where an epoch ended, and of the newest its ranges do."""
        return self._ends_of

    def _ends_of(self, barriers: Mapping[int, list[str]]) -> dict[int, Ends]:
        offsets = {epoch: json.loads(lines[0]) for epoch, lines in barriers.items() if lines}
        following = {offset["number"] - 1: offset for offset in offsets.values()}
        places = self._places or _places(self._server.shards(self._stream))
        found: dict[int, Ends] = {}
        for epoch, offset in offsets.items():
            then = following.get(offset["number"])
            at = self._fixed(offset) if then is None else then["start"]
            if at is None:
                continue  # nothing of it was read
            done = (offset if then is None else then)["done"]
            found[epoch] = {shard: len(places[shard]) for shard in done}
            for shard, (kind, value) in at.items():
                found[epoch][shard] = places[shard][value] + 1 if kind == "after" else 0
        return found

    def _fixed(self, offset: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read where the shares of an epoch ended; None where one was not read."""
        found: dict[str, Any] = {}
        for group in range(len(offset["groups"])):
            data = self._store.data(self._ranges, f"{offset['reader']}/{offset['number']:020d}.{group}.json")
            if data is None:
                return None
            ends = json.loads(data.partition(b"\n")[2])["ends"]
            found |= {shard: end["position"] for shard, end in ends.items()}
        return found

    def close(self) -> None:
        self._client.close()

    def _produce(self, partition: int, key: str, value: bytes) -> int:  # noqa: ARG002  the key tells the shard
        self._waiting.append({"PartitionKey": key, "Data": value})
        return 1

    def _flush(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        given, self._waiting = self._waiting, []
        with suppress(BotoCoreError, ClientError):
            if given:
                self._client.put_records(StreamName=self._stream, Records=given)
            if self.distinct > self._workload.moves_every * (self._moves + 1):
                self._moves += 1
                self._server.reshard(self._stream, self._client)

    def _finish(self) -> int:
        self._flush()
        return len(self.inputs())


def _places(shards: Mapping[str, list[dict[str, Any]]]) -> dict[str, dict[str, int]]:
    return {
        shard: {record["SequenceNumber"]: place for place, record in enumerate(records)}
        for shard, records in shards.items()
    }


class Kinesis(Served[EmbeddedKinesis]):
    """Streams of one server."""

    key = "partitionKey"

    def __init__(self, folder: Path) -> None:
        super().__init__(EmbeddedKinesis(folder))

    def flow(self, name: str, workload: Workload, place: Place) -> Shards:
        self._server.start()
        self._server.make_stream(name, shards=2)
        return Shards(self._server, name, workload, place)
