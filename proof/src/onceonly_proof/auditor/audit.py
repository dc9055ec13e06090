"""One call: read the world, judge it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.model import Guarantee
from onceonly_proof.auditor.judge import judge
from onceonly_proof.auditor.letters import as_rows, refused_by
from onceonly_proof.auditor.log import read_decisions
from onceonly_proof.auditor.lookup import unknown_sink
from onceonly_proof.auditor.readers import LooksBehind
from onceonly_proof.auditor.world import World

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from onceonly_proof.auditor.judge import Verdict
    from onceonly_proof.auditor.log import EndsOf
    from onceonly_proof.auditor.readers import Reader
    from onceonly_proof.auditor.world import Input, Orphan, Seen


def collect(  # noqa: PLR0913  one keyword for each thing that an audit can know
    inputs: Sequence[Input],
    *,
    sinks: Mapping[str, Reader],
    checkpoint: Path | str | None = None,
    events: Path | str | None = None,
    during: Iterable[Seen] = (),
    upserts: Collection[str] = (),
    keyless: Collection[str] = (),
    whole: Collection[str] = (),
    drained: bool = True,
    ends_of: EndsOf | None = None,
) -> World:
    """Read the outside world after the faults are over. Anywhere; changes nothing; the query must be down.

    ``inputs`` is every row that went in. ``sinks`` gives a reader for every sink of the query, under the name that its
    decisions use. ``checkpoint`` is the query's; without it only rows are compared. ``events`` is the folder of its
    event log (``ONCEONLY_EVENTS``), which tells when epochs were decided: not if the query's clock was moved.
    ``during`` is what watchers saw; ``ends_of`` is as in ``read_decisions``. The rest is as in :class:`World`.
    Readers are not closed. Dead letters are read by a :class:`LettersReader`, and count as rows of the sink that
    refused them.

    Raises:
        ConfigurationError: a sink has decisions or rows and no reader; there is no decision log.
        UnavailableError: a target cannot be read.
    """
    decisions = read_decisions(checkpoint, events, ends_of) if checkpoint is not None else None
    for slot in (slot for decision in decisions or () for slot in decision.slots):
        if slot.sink not in sinks:
            raise unknown_sink(slot.sink, sinks)
    # Orphans first: that look waits for transactions which are just being ended, and their rows come next.
    orphans: list[Orphan] = [orphan for reader in sinks.values() for orphan in reader.orphans()]
    at_end = [row for reader in sinks.values() for row in reader.rows()]
    behind = [
        row for reader in sinks.values() if isinstance(reader, LooksBehind) for row in reader.uncommitted()
    ]
    return World(
        sinks=tuple(dict.fromkeys(map(refused_by, sinks))),
        inputs=inputs,
        at_end=at_end,
        during=list(during),
        uncommitted=behind,
        decisions=None if decisions is None else as_rows(decisions),
        orphans=orphans,
        upserts=frozenset(upserts),
        keyless=frozenset(keyless),
        whole=frozenset(whole),
        drained=drained,
    )


def audit(  # noqa: PLR0913  as above
    inputs: Sequence[Input],
    *,
    sinks: Mapping[str, Reader],
    checkpoint: Path | str | None = None,
    events: Path | str | None = None,
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    during: Iterable[Seen] = (),
    upserts: Collection[str] = (),
    keyless: Collection[str] = (),
    whole: Collection[str] = (),
    drained: bool = True,
) -> Verdict:
    """Read the outside world as ``collect`` does, and judge it by a guarantee."""
    world = collect(
        inputs,
        sinks=sinks,
        checkpoint=checkpoint,
        events=events,
        during=during,
        upserts=upserts,
        keyless=keyless,
        whole=whole,
        drained=drained,
    )
    return judge(world, guarantee)
