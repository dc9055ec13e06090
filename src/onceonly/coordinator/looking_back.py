"""Whether the targets still hold what the log says they were given. Driver, the first thing that a start asks each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from onceonly import background
from onceonly.coordinator import questions
from onceonly.errors import TargetBehindError
from onceonly.model import Guarantee, LinkKind, differing, handles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from onceonly.model import Around, Link, Receipt
    from onceonly.ports import DecisionLog, QueryContext, Sink

EPOCHS_MAX = 100
"""How many epochs are looked through for the newest one in which a sink has written something: as many as keep their
details where the user says nothing else. Some sinks have few rows, and dead letters hardly any."""
ANSWERS_S = 60.0
LOST = "lost"
"""How a receipt counts what was lost, and taken over as it is; which transactions they were, nothing says."""


class Past(NamedTuple):
    """What the log says of sinks, by their names.

    ``seen`` are the newest links that name the sinks, ``written`` the newest that are complete and in which they have
    something.
    """

    seen: dict[str, Link]
    written: dict[str, Link]


def past_of(log: DecisionLog, epoch: int, around: Around, names: Collection[str]) -> Past:
    """Look through the epochs up to ``epoch``, newest first; ``around`` is what was read around it. Reads only."""
    past = Past({}, {})
    known = {epoch: (around.links, around.receipt), epoch - 1: (around.before, around.before_receipt)}
    for newest in range(epoch, max(epoch - EPOCHS_MAX, -1), -1):
        if len(past.written) == len(names):
            break
        chain, receipt = known.get(newest) or background.at_once(
            log.abreast, partial(log.chain, newest), partial(log.receipt, newest)
        )
        for name in chain[-1].settings if chain else ():
            if name in names:
                past.seen.setdefault(name, chain[-1])
        if _is_whole(chain, receipt):
            for name in handles_of(chain[-1].output):
                if name in names:
                    past.written.setdefault(name, chain[-1])
    return past


def look_back(
    links: Mapping[str, Link],
    sinks: Mapping[str, Sink],
    *,
    about: str,
    context: Callable[[str], QueryContext],
    checked: bool,
) -> list[str]:
    """Have each sink compare its target with the newest epoch in which it has written, by the links of these.

    Not where its target is another one by now: that is told elsewhere. Unless it lies where the former one lay: so does
    what is there while a disk is not mounted. Raises what a sink raises; before its check (``checked`` is false) only
    ``TargetBehindError``: what the check makes may be missing. Return the names of those that are to be asked again
    then. ``about`` names query and epoch.
    """

    def look(name: str, link: Link) -> bool:
        then, sink = link.settings.get(name, {}), sinks[name]
        try:
            is_another = differing(then, sink.identity()) and not sink.overlaps(then)
            handles = handles_of(link.output)[name]
            sink.look_back(context(name), link.epoch, () if is_another else handles)
        except TargetBehindError:
            raise
        except Exception:
            if checked:
                raise
            return False  # not swallowed: it is asked again after its check, and raises then
        return True

    told = questions.ask(
        {name: partial(look, name, links[name]) for name in sinks if name in links},
        within_s=ANSWERS_S,
        about=f"{about}: whether the targets have gone back",
    )
    return [name for name, could in told.items() if not could]


def _is_whole(chain: Sequence[Link], receipt: Receipt | None) -> bool:
    """Say whether all that a chain has decided has come: not where it was tried once, nor where a part was given up."""
    if not chain or chain[-1].kind is not LinkKind.COMMIT or chain[-1].guarantee is Guarantee.AT_MOST_ONCE:
        return False
    return receipt is not None and receipt.index == chain[-1].index and not receipt.outcomes.get(LOST)
