"""The operator's view as tables for people. Pure: gives what rich prints."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from onceonly.model import LinkKind, letters_of, seconds_of
from onceonly.operations import disk
from onceonly.operations.states import WITH_REASON, EpochState, HandleState, meaning
from onceonly.words import epoch_ranges, n

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from onceonly.operations.audit import Finding
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
    from onceonly.operations.disk import Sizes, Step
    from onceonly.operations.explain import Explanation
    from onceonly.operations.hanging import Hung
    from onceonly.operations.offsets import Partition
    from onceonly.operations.probes import Finding as Probed
    from onceonly.operations.settle import Result
    from onceonly.operations.states import EpochView, HandleView

_STYLES = {
    EpochState.COMPLETE: "green",
    EpochState.COMMITTED: "green",
    EpochState.DECIDED: "yellow",
    EpochState.REPAIRING: "red",
    EpochState.ABORTED: "dim",
    EpochState.SKIPPED: "dim",
    EpochState.IN_FLIGHT: "cyan",
    HandleState.COMMITTED: "green",
    HandleState.PENDING: "yellow",
    HandleState.LOST: "red",
    HandleState.TRIED: "yellow",
}
_MEANS = {
    LinkKind.ABORT: "older runs can write chk-{epoch} no more; the next start goes on there by itself",
    LinkKind.COMMIT: "what chk-{epoch} has lost is still decided; the next start writes it again by itself",
    LinkKind.SKIPPED: "Spark has noted chk-{epoch} without a decision, and it has no rows",
}
"""What a link means that ``commit`` or ``abort`` has put."""
_NOT_COUNTED = Text("not counted on a store; its own tools tell how much room a checkpoint takes")
# More than that are plain lines.
_TABLE_MAX = 200
_SPARK_SAYS = {
    EpochState.COMMITTED: "committed, not yet noted by Spark",
    EpochState.REPAIRING: "partly lost, to be written again",
}


def header(found: CheckpointModel) -> Text:
    """Name a checkpoint and say whether a run is alive."""
    run = found.run
    style = {True: "green", False: "dim", None: "yellow"}[run.alive]
    text = Text.assemble(
        ("query ", "dim"), (f"{found.name} " if found.name else "", "bold"), (found.query, "bold"),
        ("  run ", "dim"), (run.word, style),
        f" ({run.who})" if run.who else "", "\n", found.address,
    )  # fmt: skip
    told = found.sources
    if told is not None and told.promise:
        text.append(f"\n{told.promise} from end to end", style="dim")
        text.append(f" (source: {', '.join(sorted(set(told.formats))) or 'none'})", style="dim")
    if found.is_left:
        text.append(f"\nrestored from a savepoint to {found.home}: no run starts here", style="red")
    elif found.is_moved:
        text.append(f"\nmoved here from {found.home}, and not accepted yet", style="red")
    return text


def epochs(found: CheckpointModel) -> RenderableType:
    """Return the list of epochs: a table, or plain lines (a ``str``) where there are very many."""
    rows, known = found.epochs, found.known or 0
    if not rows:
        return Text("no epoch yet" if known == 0 else "no epoch with details")
    names = ("epoch", "state", "sinks", "commits", "s", "when")
    if len(rows) > _TABLE_MAX:
        return _plain(names, [_cells(row) for row in rows])
    table = _table(*names, right=("s",))
    for row in rows:
        table.add_row(*_cells(row))
    if len(rows) < known:
        return Group(
            table, Text(f"{len(rows):,} of {n(known, 'epoch')}; --limit and --all show more", style="dim")
        )
    return table


def _cells(row: EpochModel) -> tuple[str | Text, ...]:
    view = row.view
    return (
        view.name,
        _state(view.state, _words(view.state, view.reason, view.pending)),
        _sinks(view),
        _lines(f"{count} {name.replace('_', ' ')}" for name, count in view.outcomes.items()),
        "" if view.seconds is None else f"{view.seconds:.3f}",
        " ".join(filter(None, (_moment(row.at), "folded" if view.folded else ""))),
    )


def detail(model: CheckpointModel) -> RenderableType:
    """Return one epoch in full."""
    found = model.epoch
    view = found.view
    head = Text.assemble(
        (view.name, "bold"), "  ", _state(view.state, _words(view.state, view.reason, view.pending))
    )
    parts: list[RenderableType] = [head]
    if found.note:
        parts.append(Text(f"note: {found.note}", style="yellow"))
    if view.sinks:
        outcomes = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in view.outcomes.items())
        took = "" if view.seconds is None else f" in {view.seconds:.3f} s"
        parts.append(_sinks(view))
        parts.append(Text(f"commits: {outcomes or 'none'}{took}"))
    for number, partitions in enumerate(found.sources):
        names = found.progress.sources if found.progress else ()
        title = f"barrier of source {number}" + (f" ({names[number].name})" if number < len(names) else "")
        parts += [_title(title), _barrier(partitions)]
    if found.chain:
        parts += [_title("decision chain"), _chain(found)]
    if found.handles:
        parts += [_title("handles"), _handles(found.handles)]
    if found.progress is not None and found.progress.operators:
        parts += [_title("stateful operators, as Spark reports them"), _operators(found)]
    by_hand = [action for action in model.actions if action.concerns(view.epoch, model.query)]
    if by_hand:
        parts += [_title("by hand"), _lines(action.sentence for action in by_hand)]
    if found.steps:
        parts += [_title("time per step"), _steps(found.steps)]
    if found.progress is not None and found.progress.duration_ms:
        spans = sorted(found.progress.duration_ms.items(), key=lambda item: -item[1])
        parts += [_title("time in Spark"), Text(", ".join(f"{name} {ms} ms" for name, ms in spans))]
    room = _NOT_COUNTED if model.sizes is None else _sizes(model.sizes)
    parts += [_title("on disk"), room]
    return Group(*parts)


def transactions(found: Sequence[tuple[EpochModel, HandleView]]) -> RenderableType:
    """Return transactions of one checkpoint."""
    if not found:
        return Text("nothing is pending", style="green")
    names = ("epoch", "sink", "slot", "state", "rows", "since", "transaction")
    cells = [
        (
            epoch.view.name, Text(handle.vote.sink), str(handle.vote.slot), _state(handle.state),
            str(handle.vote.rows), _moment(epoch.since(handle)), Text(handle.transaction),
        )
        for epoch, handle in found
    ]  # fmt: skip
    if len(cells) > _TABLE_MAX:
        return _plain(names, cells)
    table = _table(*names, right=("slot", "rows"))
    for line in cells:
        table.add_row(*line)
    return table


def explanation(query: str, found: Explanation) -> RenderableType:
    """Return one transaction in words, a part a line."""
    head = Text.assemble((found.transaction, "bold"), "\n", ("query ", "dim"), query)
    return Group(head, _worded(found.lines))


def _worded(lines: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, text in lines:
        table.add_row(heading, Text(text))
    return table


def findings(found: Sequence[Finding]) -> RenderableType:
    """Return what ``audit`` has compared: a line for each sentence, with the epochs that it is told of."""
    if not found:
        return Text("nothing is committed that a target could be asked for")
    table = _table("epochs", "sink", "rows", "found", "told", right=("rows",))
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for item in found:
        alike.setdefault((item.epoch is None, item.sink, item.word, item.told), []).append(item)
    for (_, sink, _, _), items in alike.items():
        word, numbers = items[0].word.value, [item.epoch for item in items if item.epoch is not None]
        style = {"same": "green", "differs": "red", "not told": "yellow"}[word]
        table.add_row(
            epoch_ranges(numbers) or "all", Text(str(sink)), str(sum(item.rows for item in items)),
            Text(word, style=style), _lines(items[0].told),
        )  # fmt: skip
    return table


def probes(found: Sequence[Probed]) -> RenderableType:
    """Return what ``doctor`` has found."""
    table = _table("category", "probe", "health", "told")
    for item in found:
        style = {"well": "green", "sick": "red", "unknown": "yellow"}.get(item.health.value, "dim")
        told = item.told + (f"\nnext: {item.next_step}" if item.next_step else "")
        table.add_row(item.category, item.probe, Text(item.health.value, style=style), Text(told))
    return table


def opened(found: Sequence[tuple[str, str]]) -> RenderableType:
    """Return what the sinks have open and no link names."""
    if not found:
        return Text("the sinks have nothing else open", style="green")
    table = _table("sink", "open, named by no link")
    for sink, transaction in found:
        table.add_row(Text(sink), Text(transaction))
    return table


def hung(found: Sequence[Hung]) -> RenderableType:
    """Return what is open and no log knows, each with what to type."""
    parts: list[RenderableType] = []
    unseen = sum(item.is_open is None for item in found)
    if unseen:
        told = f"{n(unseen, 'folder')} may not be listed: what is open there is unknown"
        parts.append(Text(told, style="yellow"))
    elif not any(item.is_open for item in found):
        parts.append(Text("nothing is open that no log knows", style="green"))
    for item in sorted(found, key=lambda item: item.is_open is False):
        lines = [
            ("sink", item.sink),
            ("is", item.told),
            ("blocks", item.blocks or "nothing that is known"),
            ("type", item.command or ("the same, as that user" if item.is_open is None else "nothing")),
        ]
        remembered = f"remembered of {item.query}" if item.is_open is False else ""
        parts += [Text(item.transaction or remembered or "without a name", style="bold"), _worded(lines)]
    return Group(*parts)


def done(result: Result) -> RenderableType:
    """Return what ``commit`` or ``abort`` did: the transactions, and the links that it put."""
    parts: list[RenderableType] = [_settled(result)]
    for put in result.links:
        name, _, word = put.partition(" ")
        epoch = name.partition(".")[0]
        means = _MEANS[LinkKind(word)].format(epoch=epoch)
        parts.append(Text(f"put {word} link {name}: {means}"))
    return Group(*parts)


def _settled(result: Result) -> RenderableType:
    if not result.done:
        if result.error is None:
            return Text("nothing was open", style="green")
        return Text("no transaction was touched" if result.links else "nothing was changed")
    table = _table("epoch", "sink", "slot", "outcome", "transaction", right=("slot",))
    for item in result.done:
        table.add_row(
            f"chk-{item.epoch}", Text(item.sink), "" if item.slot is None else str(item.slot),
            Text(item.outcome + (f": {item.reason}" if item.reason else ""), style=item.style), Text(item.transaction),
        )  # fmt: skip
    return table


def _barrier(partitions: Sequence[Partition]) -> Table:
    right = ("start", "barrier", "span", "behind")
    # A source that does not say how far it is needs no column for it.
    shown = right if any(part.lag for part in partitions) else right[:-1]
    table = _table("partition", *shown, right=shown)
    for part in partitions:
        counts = ["" if part.span is None else str(part.span), part.lag]
        cells: list[RenderableType] = [_offset(part.start), _offset(part.end), *counts]
        table.add_row(Text(part.partition or "-"), *cells[: len(shown)])
    return table


def _chain(found: EpochModel) -> Table:
    table = _table("link", "word", "when", "by", "why")
    for link in found.chain:
        carried = f", {len(link.carried)} carried" if link.carried else ""
        why = meaning(link.reason) or f"all slots voted: {n(len(link.pending), 'tx')}{carried}"
        by = f"run {link.run}" if link.run else f"plan {link.plan}"
        if link.stamp is not None:
            by += f"\nprocess {link.stamp.pid} on {link.stamp.host}"
        table.add_row(
            link.name, link.kind.value, _moment(seconds_of(link.stamp) or None), Text(by), Text(why)
        )
    return table


def _handles(found: Iterable[HandleView]) -> Table:
    table = _table("sink", "slot", "state", "rows", "link", "transaction", right=("slot", "rows"))
    for item in found:
        table.add_row(
            Text(item.vote.sink), str(item.vote.slot), _state(item.state), str(item.vote.rows),
            item.link.name, Text(item.transaction),
        )  # fmt: skip
    return table


def _operators(found: EpochModel) -> Table:
    table = _table("operator", "rows", "updated", "memory", right=("rows", "updated", "memory"))
    for item in found.progress.operators if found.progress else ():
        table.add_row(
            Text(item.name), str(item.rows_total), str(item.rows_updated), disk.size(item.memory_bytes)
        )
    return table


def _steps(steps: Sequence[Step]) -> Table:
    table = _table("step", "when", "after", right=("after",))
    before: float | None = None
    for step in steps:
        table.add_row(
            Text(step.what), _moment(step.at), "" if before is None else f"{1000 * (step.at - before):.0f} ms"
        )
        before = step.at
    return table


def _sizes(sizes: Sizes) -> Text:
    least = "" if sizes.complete else "at least "
    text = f"checkpoint {least}{disk.size(sizes.total)} in {least}{n(sizes.files, 'file')}"
    for operator, size in sizes.state.items():
        text += f"\nstate of operator {operator}: {disk.size(size)}"
    return Text(text)


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in columns:
        # What does not fit goes on in the next line: half an id is no id.
        table.add_column(name, overflow="fold", justify="right" if name in right else "left")
    return table


def _plain(names: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> str:
    """Return plain lines in columns: what rich would take a millisecond for, each."""
    lines = [names, *([str(cell).replace("\n", ", ") for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("   ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _words(state: EpochState, reason: str, pending: int) -> str:
    if state is EpochState.DECIDED:
        return f"decided, {pending} pending" if pending else "decided, no receipt yet"
    said = _SPARK_SAYS.get(state, state.value)
    return f"{said} ({meaning(reason)})" if reason and state in WITH_REASON else said


def _state(state: EpochState | HandleState, words: str = "") -> Text:
    return Text(words or state.value, style=_STYLES[state])


def _offset(value: object) -> Text:
    return Text("-" if value is None else str(value))


def _lines(lines: Iterable[str]) -> Text:
    return Text("\n".join(lines))


def _sinks(view: EpochView) -> Text:
    """Return a line a sink; rows that it refused stand in the line of the sink that took them."""
    return _lines(
        f"{name}: {n(count, 'row')}, {n(transactions, 'tx')}"
        + (f" ({count} refused by {of})" if (of := letters_of(name)) is not None and count else "")
        for name, (count, transactions) in view.sinks.items()
    )


def _moment(at: float | None) -> str:
    """Return a moment in the operator's own time."""
    return "" if at is None else datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
