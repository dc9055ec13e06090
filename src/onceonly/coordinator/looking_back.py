"""Whether the targets still hold what the log says they were given. Driver, the first thing that a start asks each.

And which sinks the log knows whose rows went where those of a new one are to go: it may be one of them, renamed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from onceonly import background
from onceonly.coordinator import questions
from onceonly.errors import TargetBehindError
from onceonly.model import Guarantee, LinkKind, differing, handles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from onceonly.coordinator.coordinator import Participant
    from onceonly.model import Around, Link, Receipt
    from onceonly.ports import DecisionLog, QueryContext

EPOCHS_MAX = 100
"""How many epochs are looked through for the newest one in which a sink has written something: as many as keep their
details where the user says nothing else. Some sinks have few rows, and dead letters hardly any."""
ANSWERS_S = 60.0
LOST = "lost"
"""How a receipt counts what was lost, and taken over as it is; which transactions they were, nothing says."""


class Past(NamedTuple):
    """What the log says of sinks, by their names.

    ``seen`` are the newest links that name the sinks, ``written`` the newest that are complete and in which they have
    something, ``decided`` the newest decisions for them; ``others`` are the newest links of sinks that are not asked
    for.
    """

    seen: dict[str, Link]
    written: dict[str, Link]
    decided: dict[str, Link]
    others: dict[str, Link]


def past_of(log: DecisionLog, epoch: int, around: Around, names: Collection[str]) -> Past:
    """Look through the epochs up to ``epoch``, newest first; ``around`` is what was read around it. Reads only."""
    past = Past({}, {}, {}, {})
    known = {epoch: (around.links, around.receipt), epoch - 1: (around.before, around.before_receipt)}
    for newest in range(epoch, max(epoch - EPOCHS_MAX, -1), -1):
        if len(past.written) == len(names):
            break
        chain, receipt = known.get(newest) or background.at_once(
            log.abreast, partial(log.chain, newest), partial(log.receipt, newest)
        )
        for name in chain[-1].settings if chain else ():
            (past.seen if name in names else past.others).setdefault(name, chain[-1])
        for name in chain[-1].settings if chain and chain[-1].kind is LinkKind.COMMIT else ():
            if name in names:
                past.decided.setdefault(name, chain[-1])
        if _is_whole(chain, receipt):
            for name in handles_of(chain[-1].output):
                if name in names:
                    past.written.setdefault(name, chain[-1])
    return past


def former(past: Past, sinks: Mapping[str, Participant]) -> dict[str, Link]:
    """Return the newest links of sinks whose rows went where those of ``sinks`` are to go, under other books, by name.

    Of each new one any other may be its former name; the same name may note what it writes under another prefix by now.
    Nobody asks for those otherwise. Each of ``sinks`` has been checked.
    """
    found: dict[str, Link] = {}
    for own_name, own in sinks.items():
        links = past.others if own_name not in past.decided else {own_name: past.decided[own_name]}
        for name, link in links.items():
            then = link.settings[name]
            is_other = name != own_name or differing(then, own.sink.identity())
            if then and is_other and lies_there(own, link, name):
                found[name] = link
    return found


def lies_there(own: Participant, link: Link, name: str) -> bool:
    """Say whether a sink's rows go where those of the sink ``name`` went by a link, or among them."""
    then, use = link.settings.get(name, {}), link.uses.get(name)
    # Only its own class can read what an identity says.
    is_alike = own.use is None or use is None or own.use.sink == use.sink
    return not differing(then, own.sink.identity()) or (is_alike and own.sink.overlaps(then))


def look_back(
    links: Mapping[str, Link],
    sinks: Mapping[str, Participant],
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
        try:
            handles = handles_of(link.output)[name] if lies_there(sinks[name], link, name) else ()
            sinks[name].sink.look_back(context(name), link.epoch, handles)
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
