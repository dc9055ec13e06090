"""``onceonly.lag.group`` of a query under SIGKILL: never ahead of what is committed, never back, 0 when drained."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Self

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from onceonly.guards.lag import settled
from onceonly.log.opening import look

if TYPE_CHECKING:
    from harness import Bench

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]
ROWS = [(f"k{n}", str(n)) for n in range(400)]


class Watch:
    """Asks for the group all the time, and then for what is decided and committed, and keeps what must never be."""

    def __init__(self, bench: Bench, group: str) -> None:
        self.bench, self.group = bench, group
        self.admin = bench.kafka.admin()  # its answers end with it
        self.seen: list[dict[int, int]] = []
        self.wrong: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def offsets(self) -> dict[int, int]:
        asked = ConsumerGroupTopicPartitions(self.group)
        answer = self.admin.list_consumer_group_offsets([asked])[self.group].result(30)
        return {each.partition: each.offset for each in answer.topic_partitions}

    def committed(self) -> dict[int, int]:
        """Return the end of the newest epoch that has its receipt."""
        link = settled(look(str(self.bench.checkpoint))[0])
        if link is None:
            return {}
        return {int(at): end for at, end in json.loads(link.barrier[0])[self.bench.source].items()}

    def _watch(self) -> None:
        before: dict[int, int] = {}
        while not self._over.wait(0.05):
            now = self.offsets()
            ends = self.committed() if now else {}
            if any(at > ends.get(partition, -1) for partition, at in now.items()):
                self.wrong.append(f"{now} is ahead of {ends}")
            if any(at > now.get(partition, -1) for partition, at in before.items()):
                self.wrong.append(f"{now} is behind {before}")
            if now != before:
                self.seen.append(now)
            before = now


@pytest.mark.parametrize("way", ["format", pytest.param("foreachBatch", marks=pytest.mark.long)])
def test_a_killed_query_is_never_shown_ahead_and_one_that_is_drained_has_no_lag(
    bench: Bench, way: str
) -> None:
    group = f"lag-{bench.name}"
    bench.args = ["--way", way, "--option", f"onceonly.lag.group={group}"]
    bench.feed(ROWS)
    with Watch(bench, group) as watch:
        run = bench.start("receipt.before_put=pause@3")
        try:
            run.wait_for("receipt.before_put")
            # What was settled before is shown beside the epoch that stands still.
            run.until(lambda: watch.offsets() == watch.committed() != {}, "the epoch before is shown")
        finally:
            run.kill_tree()
        bench.run()
        assert watch.offsets() == {0: 200, 1: 200}, "its last epoch is shown as it ends"
    assert watch.wrong == []
    assert len(watch.seen) >= 2
    bench.assert_exactly_once(ROWS)
    bench.feed([("k", "v")] * 2)
    assert {end - watch.offsets()[each] for each, end in {0: 201, 1: 201}.items()} == {1}
