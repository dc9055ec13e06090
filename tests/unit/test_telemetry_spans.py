"""The trace of an epoch is told by its links and its receipt, whoever has put them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from onceonly.errors import ConfigurationError
from onceonly.log.actions import Action
from onceonly.model import Handle, Link, LinkKind, Receipt, Stamp, Vote
from onceonly.telemetry.otlp import Tracer
from onceonly.telemetry.spans import Span, of_epoch, trace_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan


def at(second: int) -> Stamp:
    return Stamp(at=f"2026-03-01T12:00:{second:02d}.000Z", host="h", pid=1)


def link(index: int, plan: str, put: int, *, reason: str = "", kind: LinkKind = LinkKind.COMMIT) -> Link:
    vote = Vote(
        sink="kafka", epoch=7, slot=0, plan=plan, run="r", attempt="1", rows=5, checksum="0" * 16,
        handle=Handle(transaction="t"), stamp=at(put - 1),
    )  # fmt: skip
    return Link(
        epoch=7, index=index, kind=kind, plan=plan, run="r", votes=(vote,) if kind is LinkKind.COMMIT else (),
        planned=at(put - 2), stamp=at(put), reason=reason,
    )  # fmt: skip


def receipt(plan: str, second: int, index: int = 0) -> Receipt:
    return Receipt(epoch=7, index=index, plan=plan, outcomes={"committed": 1}, seconds=0.5, stamp=at(second))


def named(spans: list[Span]) -> dict[str, Span]:
    assert len({span.id for span in spans}) == len(spans)
    assert {span.trace for span in spans} == {trace_of("q", 7)}
    return {span.name: span for span in spans}


def test_an_epoch_is_a_trace_with_its_phases() -> None:
    seen = named(of_epoch("q", "orders", [link(0, "a.1", 12)], receipt("a.1", 14)))
    assert list(seen) == ["epoch", "write", "commit"]
    epoch, write, commit = seen.values()
    assert (epoch.parent, write.parent, commit.parent) == (None, epoch.id, epoch.id)
    assert [(each.ended - each.began) for each in (epoch, write, commit)] == [4, 2, 2]
    assert [name for name, _ in write.events] == ["slot 0 of kafka prepared"]
    assert epoch.facts["onceonly.query"] == "orders"
    assert epoch.facts["onceonly.rows.kafka"] == 5
    assert commit.links == (write.id,)


def test_who_commits_what_another_has_decided_goes_on_with_its_trace() -> None:
    decided = link(0, "a.1", 12)
    seen = named(of_epoch("q", "orders", [decided], receipt("b.1", 40)))
    assert list(seen) == ["epoch", "write", "recovery"]
    assert seen["recovery"].links == (seen["write"].id,)
    before = named(of_epoch("q", "orders", [decided], receipt("a.1", 14)))
    assert seen["write"] == before["write"]


def test_a_claim_is_an_error_and_a_repair_a_try_of_its_own() -> None:
    chain = [
        link(0, "a.1", 12, kind=LinkKind.ABORT, reason="claimed by a new run"),
        link(1, "b.1", 20),
        link(2, "c.1", 30, reason="the target lost a part"),
    ]
    seen = named(of_epoch("q", "orders", chain, receipt("c.1", 31, 2)))
    assert list(seen) == ["epoch", "abort", "write", "repair", "commit"]
    assert seen["abort"].failed == "claimed by a new run"
    assert seen["abort"].began == seen["abort"].ended


def test_an_operators_action_is_in_the_trace_of_its_epoch() -> None:
    by_hand = Action(
        command="commit", epoch=7, who="ann", stamp=at(40), plan="operator-1", because="the job stays down"
    )
    other = replace(by_hand, plan="operator-2", id="ffffffff")
    seen = named(of_epoch("q", "orders", [link(0, "a.1", 12)], receipt("operator-1.x", 41), [by_hand, other]))
    assert list(seen) == ["epoch", "write", "recovery", "operator commit"]
    assert seen["operator commit"].links == (seen["write"].id, seen["recovery"].id)
    assert seen["operator commit"].facts["onceonly.because"] == "the job stays down"


def test_what_has_no_times_has_no_trace() -> None:
    assert of_epoch("q", "orders", [replace(link(0, "a.1", 12), stamp=None)], receipt("a.1", 14)) == []


class Collector(InMemorySpanExporter):
    """Takes what it is given as it is told to."""

    takes: SpanExportResult | Exception = SpanExportResult.FAILURE

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        super().export(spans)
        if isinstance(self.takes, Exception):
            raise self.takes
        return self.takes


def test_a_collector_that_takes_nothing_is_told_of_once_until_it_has_taken_something(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector = Collector()
    tracer = Tracer(collector)
    spans = of_epoch("q", "orders", [link(0, "a.1", 12)], receipt("a.1", 14))

    def told_after(takes: SpanExportResult | Exception) -> int:
        collector.takes = takes
        tracer.export(spans)
        tracer.flush()
        return caplog.text.count("does not take traces")

    failure, success = SpanExportResult.FAILURE, SpanExportResult.SUCCESS
    assert [told_after(takes) for takes in (failure, failure, success, failure)] == [1, 1, 1, 2]
    assert [told_after(takes) for takes in (success, TimeoutError("slow"), TimeoutError("slow"))] == [2, 3, 3]
    assert "Traceback" not in caplog.text


def test_what_the_library_cannot_take_of_the_environment_is_said_before_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5000")
    with pytest.raises(ConfigurationError, match="max_export_batch_size must be less") as told:
        Tracer(Collector())
    assert "OTEL_" in told.value.next_step


def test_the_library_is_given_the_same_spans() -> None:
    memory = InMemorySpanExporter()
    tracer = Tracer(memory)
    spans = of_epoch("q", "orders", [link(0, "a.1", 12)], receipt("b.1", 14))
    tracer.export(spans)
    tracer.flush()
    got = memory.get_finished_spans()
    assert [each.name for each in got] == ["onceonly.epoch", "onceonly.write", "onceonly.recovery"]
    assert [each.context.span_id for each in got if each.context] == [span.id for span in spans]
    assert [each.parent.span_id if each.parent else None for each in got] == [span.parent for span in spans]
    assert [link.context.span_id for link in got[2].links] == [spans[1].id]
    assert {f"{each.context.trace_id:032x}" for each in got if each.context} == {f"{trace_of('q', 7):032x}"}
