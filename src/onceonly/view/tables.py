"""Fragments of HTML that every page is made of: the verdict, tables, the legend. Pure; everything is escaped."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onceonly.view import shapes
from onceonly.view.markup import Child, Markup, join, tag
from onceonly.view.telling import UNKNOWN, few, moment, outcomes, since, took
from onceonly.view.values import Epoch, Level, View, What
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from onceonly.view.values import Mark, Verdict

_WORD: Final = re.compile(r"[a-z]+(?:-[a-z]+)*(?:'s)?[,:;]?(?: |$)")
_RANGES_MAX: Final = 200
_CHECKSUM_MAX: Final = 26
"""So many characters of a checksum are shown: of the rows' all, of a file's more than anybody confuses."""
_STEPS_MAX: Final = 100
"""So many steps of a kind and a lane a table has; so many transactions, too."""
_MEANINGS: Final = {
    What.BARRIER: "barrier: end offsets, written ahead",
    What.PLAN: "plan handed out",
    What.VOTE: "a slot's vote to commit",
    What.DECISION: "decision to commit, durable",
    What.ABORT: "ABORT, durable",
    What.SKIPPED: "noted without a decision",
    What.COMMITTED: "transaction committed",
    What.RECOVERED: "transaction committed by a later run",
    What.SWEPT: "transaction aborted by a sweep",
    What.DOUBT: "transaction in doubt",
    What.LOST: "transaction lost and fenced",
    What.TRIED: "tried once, at most once",
    What.RECEIPT: "receipt: all committed",
    What.NOTED: "noted by Spark",
    What.BEGAN: "a run began",
    What.ENDED: "a run ended",
    What.CUT: "a run, or a try of it, was cut off",
    What.BY_HAND: "done by hand",
    What.FOLDED: "folded: one line of history",
    What.HEARD: "told by the event log alone, of a try without a decision",
}


def verdict(found: Verdict, *, is_old: bool = False) -> Markup:
    """Return how a checkpoint stands: what is safe, what is stuck and since when, who waits, what to type.

    Where it cannot be read now, this is how it stood, and what to do is another thing.
    """
    if is_old:
        found = replace(found, next_step="", command="")
    return tag(
        "div",
        tag(
            "p",
            "when it was last read, " if is_old else None,
            tag("span", found.level, class_="oo-level"),
            ": ",
            (found.stuck, _since(found), ".") if found.stuck else f"{found.safe}.",
        ),
        tag("p", f"{capital(found.safe)}.") if found.stuck else None,
        tag("p", f"Waiting for it: {found.waits}.") if found.waits else None,
        tag("p", f"Next: {found.next_step}{':' if found.command else '.'}") if found.next_step else None,
        tag("pre", tag("code", found.command), tabindex="0") if found.command else None,
        class_=f"oo-verdict {Level.UNKNOWN if is_old and found.level is not Level.STUCK else found.level}",
        role="status",
    )


def _since(found: Verdict) -> list[Child]:
    """Return since when something is stuck, with a moment that a page's script may say the age of."""
    before = since(found)
    if found.since is None:
        return [before]
    at = moment(found.since)
    return [before, tag("time", at, datetime=at, data_at_least=found.at_latest)]


def legend(found: View, shown: Collection[What]) -> Markup:
    """Return what marks of some kinds mean, as a picture of a view has them."""
    return tag(
        "ul",
        (tag("li", shapes.sample(what), means) for what, means in _MEANINGS.items() if what in shown),
        tag("li", "broken lines: when is not known") if shown else None,
        tag("li", "! a clock that contradicts the order of the log") if _is_skewed(found) else None,
        class_="oo-legend",
    )


def _is_skewed(found: View) -> bool:
    return bool(found.skew) or any(mark.skewed for each in found.epochs for mark in each.marks)


def epochs(
    found: Iterable[Epoch], *, href: Callable[[Epoch], str | None] = lambda _: None, caption: str = "Epochs"
) -> Markup:
    """Return a table with a line for each epoch, in the order in which they are given."""
    heads = ("epoch", "state", "rows", "sinks", "commits", "aborts", "from plan to receipt", "last heard of")
    return table(caption, heads, (_line(each, href(each)) for each in found), right={2, 5, 6})


def _line(each: Epoch, href: str | None) -> list[Child]:
    return [
        _named(each, href),
        state(each),
        "" if each.rows is None else f"{each.rows:,}",
        _sinks(each),
        outcomes(each.outcomes),
        each.aborts or "",
        "" if each.seconds is None else took(each.seconds),
        join(_at(each.at), " (folded)" if each.folded else ""),
    ]


def _named(each: Epoch, href: str | None) -> Child:
    return tag("a", each.name, href=href) if href is not None else each.name


def state(each: Epoch) -> Markup:
    """Return an epoch's state; a sign besides its colour says whether it is settled."""
    return tag("span", each.words, class_=f"oo-state {each.state.name.lower()}")


def _sinks(each: Epoch) -> str:
    parts = [
        f"{name}: {n(rows, 'row')}, {n(count, 'transaction')}" for name, (rows, count) in each.sinks.items()
    ]
    parts += [f"{n(rows, 'row')} refused by {name}" for name, rows in each.refused.items()]
    return "; ".join(parts)


def steps(each: Epoch) -> Markup:
    """Return the steps of an epoch in the log's order: each with its record, file and checksum."""
    heads = ("step", "when", "what", "by", "record", "file", "checksum")
    shown = few(each.marks, _STEPS_MAX)
    found = table(f"Steps of {each.name}, in the order of the log", heads, map(_step, shown))
    return join(found, _not_shown(len(each.marks) - len(shown), "step"))


def _not_shown(more: int, what: str) -> Markup | None:
    return tag("p", f"{n(more, f'more {what} is')} not shown.", class_="oo-note") if more > 0 else None


def _step(mark: Mark) -> list[Child]:
    when = "unknown" if mark.at is None else _at(mark.at)
    return [
        mark.what,
        join(when, " (contradicts the order)") if mark.skewed else when,
        mark.told,
        mark.by,
        mark.record,
        tag("code", mark.file) if mark.file else "",
        _checksum(mark.checksum),
    ]


def _checksum(whole: str) -> Child:
    """Return a checksum; of a long one the beginning, and all of it to a pointer that rests on it."""
    if len(whole) <= _CHECKSUM_MAX:
        return tag("code", whole) if whole else ""
    return tag("code", f"{whole[:_CHECKSUM_MAX]}…", title=whole)


def phases(each: Epoch) -> Markup:
    """Say where the time of an epoch went."""
    said = ", ".join(f"{phase.name} {took(phase.seconds)}" for phase in each.phases)
    slow = f" {capital(each.slow)}." if each.slow else ""
    return tag("p", f"{capital(said)}.{slow}") if said else join()


def slots(each: Epoch) -> Markup:
    """Return the rows and bytes of each slot, as the votes that were decided have them."""
    decided = {mark.record for mark in each.marks if mark.what is What.DECISION}
    votes = [mark for mark in each.marks if mark.what is What.VOTE and mark.record in decided]
    if not votes:
        return join()
    votes.sort(key=lambda mark: (mark.sink, mark.slot or 0))
    lines: Iterator[list[Child]] = (
        [
            mark.sink,
            mark.slot,
            mark.rows,
            UNKNOWN if mark.size is None and mark.rows else f"{mark.size or 0:,}",
        ]
        for mark in votes[:_STEPS_MAX]
    )
    heads = ("sink", "slot", "rows", "bytes, as Arrow held them")
    found = table(f"What each slot of {each.name} wrote", heads, lines, right={1, 2, 3}, is_narrow=True)
    return join(found, _not_shown(len(votes) - _STEPS_MAX, "slot"))


def parts(each: Epoch) -> Markup:
    """Return what an epoch has in each partition of its targets, as far as its transactions' handles say."""
    if not each.parts:
        return join()
    lines: Iterator[list[Child]] = (
        [
            sink, part.partition or "-", UNKNOWN if part.rows is None else f"{part.rows:,}",
            "-" if part.bytes is None else f"{part.bytes:,}", _offset(part.first),
        ]
        for sink, part in each.parts[:_RANGES_MAX]
    )  # fmt: skip
    heads = ("sink", "partition", "rows", "bytes of its files", "offset of its first row")
    found = table(f"Where {each.name} wrote", heads, lines, right={2, 3, 4}, is_narrow=True)
    return join(found, _not_shown(len(each.parts) - _RANGES_MAX, "partition"))


def ranges(each: Epoch) -> Markup:
    """Return the offsets that an epoch read of each partition: Spark's ranges, written ahead."""
    parts = [(number, part) for number, source in enumerate(each.ranges) for part in source]
    if not parts:
        return join()
    heads = ("source", "partition", "start", "barrier", "offsets between", "behind the source's end")
    lines: Iterator[list[Child]] = (
        [
            number, part.partition or "-", _offset(part.start), _offset(part.end), _offset(part.span),
            part.lag,
        ]
        for number, part in parts[:_RANGES_MAX]
    )  # fmt: skip
    found = table(f"What {each.name} read", heads, lines, right={2, 3, 4, 5}, is_narrow=True)
    by_slot = tag(
        "p",
        "Rows and bytes are counted by slot: no vote says which partitions a slot has read. Of Kafka, the offsets "
        "between are rows, and of a topic that is compacted or written by transactions, rows and gaps.",
        class_="oo-note",
    )
    return join(found, _not_shown(len(parts) - _RANGES_MAX, "partition"), by_slot)


def in_doubt(found: View, *, href: Callable[[Epoch], str | None] = lambda _: None) -> Markup:
    """Return the transactions that are decided and not known to be committed, each with what to type."""
    if not found.in_doubt:
        return tag("p", "No transaction of what is shown is in doubt.")
    heads = ("epoch", "sink", "slot", "rows", "transaction", "decided", "type, to be told all of it")
    lines: Iterator[list[Child]] = (
        [
            _named(each, href(each)), mark.sink, mark.slot, mark.rows, tag("code", mark.transaction),
            _at(_decided(each, mark)),
            tag("code", f"onceonly transactions explain {shlex.quote(mark.transaction)} {shlex.quote(found.path)}"),
        ]
        for each, mark in found.in_doubt[:_STEPS_MAX]
    )  # fmt: skip
    more = _not_shown(len(found.in_doubt) - _STEPS_MAX, "transaction")
    return join(table("Transactions in doubt", heads, lines, right={2, 3}), more)


def _decided(each: Epoch, mark: Mark) -> float | None:
    return next(
        (link.at for link in each.marks if link.what is What.DECISION and link.record == mark.record), None
    )


def happenings(found: View, *, earlier: str | None = None) -> Markup:
    """Return what happened beside the epochs: runs that began, ended or were cut off, and what was done by hand.

    ``earlier`` is the address of a page that has the runs, too, which this one leaves out.
    """
    if not found.marks:
        return tag("p", "The log tells of no run: an older onceonly, or none has begun yet.")
    lines = ([mark.what, _at(mark.at), mark.told, mark.by] for mark in reversed(found.marks))
    heads = ("what", "when", "told", "by")
    return join(
        table("Runs, and what was done by hand; newest first", heads, lines), _earlier(found, earlier)
    )


def _earlier(found: View, href: str | None) -> Markup | None:
    """Say that older runs were not read, and how to see them."""
    if not found.runs_left:
        return None
    more = f"{n(found.runs_left, 'earlier run is')} not read here, as each is a request to the store"
    how = tag("a", "earlier runs", href=href) if href else "onceonly report --runs 100 shows them"
    return tag("p", more, ": ", how, ".", class_="oo-note")


def left_out(found: View) -> Markup:
    """Say what is there and is not shown, and whose clock is wrong."""
    said = (*found.left_out, *found.skew)
    return tag("ul", (tag("li", f"{capital(each)}.") for each in said), class_="oo-note") if said else join()


def table(
    caption: str,
    heads: Sequence[str],
    lines: Iterable[Sequence[Child]],
    *,
    right: Iterable[int] = (),
    is_narrow: bool = False,
) -> Markup:
    """Return a table; the columns that ``right`` names are numbers. A narrow one is as wide as what is in it."""
    numbers = frozenset(right)

    def cell(name: str, place: int, child: Child) -> Markup:
        return tag(
            name, child, class_="num" if place in numbers else None, scope="col" if name == "th" else None
        )

    return tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", (cell("th", place, head) for place, head in enumerate(heads)))),
        tag("tbody", (tag("tr", (cell("td", place, each) for place, each in enumerate(line))) for line in lines)),
        class_="oo-table oo-narrow" if is_narrow else "oo-table",
    )  # fmt: skip


def _at(at: float | None) -> Markup:
    return tag("time", moment(at))


def _offset(value: object) -> str:
    return "-" if value is None else str(value)


def capital(said: str) -> str:
    """Begin a sentence; a name or an address stays as it is."""
    return said[:1].upper() + said[1:] if _WORD.match(said) else said
