"""The trace of an epoch, from its chain and receipt in the log. Pure.

An epoch is a trace, and its first span; a query never is one. Its phases are children: each try, commit or recovery.
Every id follows from what the log keeps (the query, the epoch, the id of a plan): whoever finishes an epoch after a
crash, in whatever process, goes on with the trace that another began, and nothing more has to be written down.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from onceonly.log.actions import OPERATOR
from onceonly.log.history import by_sink
from onceonly.model import LinkKind, seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onceonly.log.actions import Action
    from onceonly.model import Link, Receipt

_SLOTS_MAX: Final = 64
"""Events of one span: a backend takes some more, and nobody reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span. ``links`` are spans of the same trace; times are seconds since 1970."""

    name: str
    trace: int
    id: int
    parent: int | None = None
    began: float
    ended: float
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    events: tuple[tuple[str, float], ...] = ()
    links: tuple[int, ...] = ()
    failed: str = ""


def trace_of(query: str, epoch: int) -> int:
    """Return the id of an epoch's trace: the first 16 bytes of SHA-256 of the query's id, a blank and the number."""
    return _number(f"{query} {epoch}", 16)


def of_epoch(
    query: str, name: str, chain: Sequence[Link], receipt: Receipt, actions: Sequence[Action] = ()
) -> list[Span]:
    """Return the spans of a settled epoch, its own first; ``name`` is the query's. None without times (format 1)."""
    last = chain[-1]
    decided, settled = seconds_of(last.stamp), seconds_of(receipt.stamp)
    if not decided or not settled:
        return []
    trace = trace_of(query, last.epoch)
    root = _number(f"{trace} epoch", 8)
    tries = [_try(link, trace, root) for link in chain]
    is_recovery = receipt.plan != last.plan
    applications = {plan.rpartition(".")[0] for plan in (receipt.plan, *(link.plan for link in chain))}
    by_hand = [each for each in actions if each.plan and each.plan in applications]
    commit = Span(
        name="recovery" if is_recovery else "commit",
        trace=trace,
        id=_number(f"{trace} {receipt.plan} commit", 8),
        parent=root,
        began=decided,
        ended=max(decided, settled),
        facts={
            "onceonly.plan": receipt.plan,
            "onceonly.commit.seconds": receipt.seconds,
            **{f"onceonly.commits.{outcome}": count for outcome, count in receipt.outcomes.items()},
        },
        # Whoever commits what another has decided; and else the decision that it follows.
        links=(tries[-1].id,),
    )
    phases = [*tries, commit, *(_action(each, trace, root, (tries[-1].id, commit.id)) for each in by_hand)]
    rows = {f"onceonly.rows.{sink}": rows for sink, (rows, _) in by_sink(last).items()}
    began = min(span.began for span in phases)
    epoch = Span(
        name="epoch",
        trace=trace,
        id=root,
        began=began,
        ended=max(span.ended for span in phases),
        facts={
            "onceonly.query": name,
            "onceonly.query.id": query,
            "onceonly.epoch": last.epoch,
            "onceonly.decision": last.kind.value,
            "onceonly.links": len(chain),
            **rows,
        },
    )
    return [epoch, *phases]


def is_by_hand(chain: Sequence[Link], receipt: Receipt) -> bool:
    """Say whether an operator's command had a part in an epoch."""
    return any(plan.startswith(OPERATOR) for plan in (receipt.plan, *(link.plan for link in chain)))


def _try(link: Link, trace: int, root: int) -> Span:
    """Return what a link ends: the writing of what it decides; or what another run or an operator has claimed."""
    put = seconds_of(link.stamp)
    is_decision = link.kind is LinkKind.COMMIT
    planned = seconds_of(link.planned) if is_decision else 0.0
    votes = [seconds_of(vote.stamp) for vote in link.votes] if is_decision else []
    return Span(
        name=("repair" if link.reason else "write") if is_decision else link.kind.value.lower(),
        trace=trace,
        id=_number(f"{trace} {link.plan} {link.index}", 8),
        parent=root,
        began=min(planned or put, put),
        ended=put,
        facts={
            "onceonly.link": link.name,
            "onceonly.plan": link.plan,
            "onceonly.run": link.run,
            "onceonly.transactions": len(link.pending),
            **({"onceonly.reason": link.reason} if link.reason else {}),
        },
        events=tuple(
            (f"slot {vote.slot} of {vote.sink} prepared", at)
            for vote, at in zip(link.votes, votes, strict=False)
            if at
        )[:_SLOTS_MAX],
        failed=link.reason if link.kind is LinkKind.ABORT else "",
    )


def _action(action: Action, trace: int, root: int, links: tuple[int, ...]) -> Span:
    at = seconds_of(action.stamp)
    return Span(
        name=f"operator {action.command}",
        trace=trace,
        id=_number(f"{trace} {action.id}", 8),
        parent=root,
        began=at,
        ended=at,
        facts={
            "onceonly.who": action.who,
            "onceonly.because": action.because,
            "onceonly.before": action.before,
            "onceonly.after": action.after,
        },
        links=links,
    )


def _number(text: str, size: int) -> int:
    """Return a number that is never 0, which is no id."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size]) or 1
