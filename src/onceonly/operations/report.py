"""The operator's view as JSON: plain values with stable keys, which docs/reference/cli-json.md lists. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from onceonly.errors import typed
from onceonly.model import letters_of
from onceonly.operations import disk
from onceonly.options import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly.errors import OnceonlyError
    from onceonly.log.actions import Action
    from onceonly.log.progress import Progress
    from onceonly.model import Stamp
    from onceonly.operations.audit import Finding
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
    from onceonly.operations.explain import Explanation
    from onceonly.operations.hanging import Hung
    from onceonly.operations.offsets import Partition
    from onceonly.operations.probes import Finding as Probed
    from onceonly.operations.search import Problem
    from onceonly.operations.settle import Result
    from onceonly.operations.states import EpochView, HandleView
    from onceonly.operations.stop import Outcome


def checkpoint(found: CheckpointModel) -> dict[str, Any]:
    """Return what names a checkpoint, and whether it is in use."""
    told = found.sources
    return {
        "path": found.path,
        "address": found.address,
        "query": found.query,
        "name": found.name or None,
        "run": {"state": found.run.word, "who": found.run.who},
        "home": found.home,
        "moved": found.is_moved,
        "sources": list(told.formats) if told else [],
        "end_to_end": (told.promise or None) if told else None,
        "runs": [
            {"run": each.run, **_stamp(each.began, at="began"), "ended": each.ended or None}
            for each in found.runs
        ],
        "actions": list(map(action, found.actions)),
    }


def action(found: Action) -> dict[str, Any]:
    """Return what an operator did by hand."""
    return {
        "command": found.command,
        "epoch": found.epoch,
        "who": found.who,
        **_stamp(found.stamp),
        "because": without_secrets(found.because),
        "against_decision": found.against,
        "before": found.before,
        "after": found.after or None,
        "aborted": list(found.aborted),
        "committed": list(found.committed),
        "withdrawn": [
            {
                "query": each.query,
                "sink": each.sink,
                "epochs": list(each.epochs),
                "rows": each.rows,
                "files": each.files,
                "names": list(each.names),
                "entry": each.entry or None,
            }
            for each in found.withdrawn
        ],
    }


def stopped(found: Outcome) -> dict[str, Any]:
    """Return what became of a request to end."""
    stop, run = found.stop, found.run
    return {
        "ended": found.ended.value,
        "down": found.is_down,
        "settled": found.is_settled,
        "told": found.sentence,
        "next_step": found.next_step or None,
        "who": found.who or None,
        "epoch": row(found.newest) if found.newest else None,
        "run": run and {"run": run.run, **_stamp(run.began, at="began"), "ended": run.ended or None},
        "request": stop and {
            "who": stop.who, **_stamp(stop.stamp), "because": without_secrets(stop.because), "seen": stop.seen or None,
        },
    }  # fmt: skip


def problems(found: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return the folders that could not be shown."""
    return [{"path": item.path, "foreign": item.foreign, **error(item.error)} for item in found]


def error(found: OnceonlyError) -> dict[str, Any]:
    """Return an error."""
    return {"code": found.code, "what": found.what, "next_step": typed(found)}


def row(found: EpochModel) -> dict[str, Any]:
    """Return one line of the list."""
    return {**epoch(found.view), "at": disk.iso(found.at)}


def epoch(view: EpochView) -> dict[str, Any]:
    """Return an epoch in short."""
    return {
        "epoch": view.epoch,
        "name": view.name,
        "state": view.state.value,
        "reason": without_secrets(view.reason),
        "folded": view.folded,
        "links": view.links,
        "sinks": {name: {"rows": rows, "transactions": count} for name, (rows, count) in view.sinks.items()},
        "dead_letters": view.dead_letters,
        "outcomes": dict(view.outcomes),
        "commit_seconds": view.seconds,
        "pending": view.pending,
        "aborts": view.aborts,
    }


def detail(model: CheckpointModel) -> dict[str, Any]:
    """Return an epoch in full."""
    found, sizes = model.epoch, model.sizes
    return {
        **epoch(found.view),
        "note": found.note,
        "sources": [
            {
                "source": number,
                "name": _source_name(found, number),
                "partitions": list(map(_partition, parts)),
            }
            for number, parts in enumerate(found.sources)
        ],
        "chain": [
            {
                "link": link.name,
                "kind": link.kind.value,
                "plan": link.plan,
                "run": link.run,
                "guarantee": link.guarantee.value,
                "reason": without_secrets(link.reason),
                "transactions": len(link.pending),
                "carried": len(link.carried),
                "planned_at": link.planned.at if link.planned else None,
                **_stamp(link.stamp),
            }
            for link in found.chain
        ],
        "handles": [handle(item) for item in found.handles],
        "steps": [{"step": step.what, "at": disk.iso(step.at)} for step in found.steps],
        "spark": None if found.progress is None else _progress(found.progress),
        "bytes": None
        if sizes is None
        else {
            "checkpoint": sizes.total,
            "state": sizes.state,
            "files": sizes.files,
            "complete": sizes.complete,
        },
    }


def handle(found: HandleView) -> dict[str, Any]:
    """Return one handle; ``data`` is the sink's own, without secrets."""
    vote = found.vote
    return {
        "sink": vote.sink,
        "letters_of": letters_of(vote.sink),
        "slot": vote.slot,
        "transaction": found.transaction,
        "state": found.state.value,
        "link": found.link.name,
        "rows": vote.rows,
        "checksum": vote.checksum,
        "run": vote.run,
        "attempt": vote.attempt,
        **_stamp(vote.stamp, at="voted_at"),
        "data": dict(vote.handle.data) if vote.handle else {},
    }


def _stamp(found: Stamp | None, *, at: str = "at") -> dict[str, Any]:
    """Return when and where something was written; None where an older onceonly did not say."""
    return {
        at: found.at if found else None,
        "host": found.host if found else None,
        "pid": found.pid if found else None,
    }


def transaction(of: EpochModel, found: HandleView) -> dict[str, Any]:
    """Return one transaction of ``transactions list``."""
    return {"epoch": of.view.epoch, "since": disk.iso(of.since(found)), **handle(found)}


def explanation(found: Explanation) -> dict[str, Any]:
    """Return what ``transactions explain`` says."""
    return {**asdict(found), "others": list(found.others), "command": found.command or None}


def hung(found: Hung) -> dict[str, Any]:
    """Return one line of ``transactions hanging``."""
    return {
        **asdict(found),
        **{name: getattr(found, name) or None for name in ("transaction", "query", "command")},
    }


def finding(found: Finding) -> dict[str, Any]:
    """Return one comparison of ``audit``."""
    return {**asdict(found), "word": found.word.value, "told": list(found.told)}


def probe(found: Probed) -> dict[str, Any]:
    """Return what one probe of ``doctor`` says."""
    return {**asdict(found), "health": found.health.value}


def _source_name(found: EpochModel, number: int) -> str:
    sources = found.progress.sources if found.progress else ()
    return sources[number].name if number < len(sources) else ""


def _partition(found: Partition) -> dict[str, Any]:
    return {
        "partition": found.partition,
        "start": found.start,
        "end": found.end,
        "span": found.span,
        "behind": found.behind,
        "behind_ms": found.behind_ms,
    }


def _progress(found: Progress) -> dict[str, Any]:
    return {
        "run": found.run,
        "timestamp": found.timestamp,
        "rows": found.rows,
        "duration_ms": dict(found.duration_ms),
        "operators": [
            {
                "name": item.name,
                "rows_total": item.rows_total,
                "rows_updated": item.rows_updated,
                "memory_bytes": item.memory_bytes,
                "custom": dict(item.custom),
            }
            for item in found.operators
        ],
    }


def result(found: Result) -> dict[str, Any]:
    """Return what ``transactions commit`` or ``abort`` did with one checkpoint."""
    return {
        "transactions": [
            {
                "epoch": item.epoch,
                "sink": item.sink,
                "slot": item.slot,
                "transaction": item.transaction,
                "outcome": item.outcome,
                "reason": item.reason,
            }
            for item in found.done
        ],
        "links": found.links,
        "receipt": found.receipt,
        "settled": found.error is None,
        "action": None if found.action is None else action(found.action),
    }
