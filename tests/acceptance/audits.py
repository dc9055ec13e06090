"""The auditor's word on a bench: what it says of one sink, the decision log and what went in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.auditor import Anomaly, FilesReader, KafkaReader, audit, read_inputs

if TYPE_CHECKING:
    from harness import Bench

    from onceonly_proof.auditor import Reader


def assert_clean(bench: Bench, sink: str = "kafka", *, ordered: bool = True) -> None:
    """See that the auditor finds each row once, in order, and nothing left open. The job must be down.

    ``ordered=False`` where the query itself deals the rows of an input partition to several slots.
    """
    servers = bench.kafka.bootstrap_servers
    reader: Reader
    if sink == "kafka":
        own = f"onceonly.{bench.query_id()}."
        reader = KafkaReader(sink, servers, bench.target, transactions=own)
    else:
        reader = FilesReader(sink, bench.files)
    inputs = read_inputs(servers, bench.source)
    assert inputs
    verdict = audit(inputs, sinks={sink: reader}, checkpoint=bench.checkpoint, events=bench.events)
    found = {name for name, count in verdict.anomalies.items() if count}
    assert found <= (set() if ordered else {Anomaly.OUT_OF_ORDER}), "\n".join(verdict.examples)
