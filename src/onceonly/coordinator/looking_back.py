"""Whether the targets still hold what the log says they were given. Driver, the first thing that a start asks each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.coordinator import questions
from onceonly.errors import TargetBehindError
from onceonly.model import Guarantee, LinkKind, differing, handles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onceonly.model import Around, Handle, Link, Receipt
    from onceonly.ports import DecisionLog, QueryContext, Sink

EPOCHS_MAX = 100
"""How many epochs are looked through for the newest one in which a sink has written something: as many as keep their
details where the user says nothing else. Some sinks have few rows, and dead letters hardly any."""
ANSWERS_S = 60.0


def look_back(
    log: DecisionLog,
    epoch: int,
    around: Around,
    sinks: Mapping[str, Sink],
    *,
    context: Callable[[str], QueryContext],
    checked: bool,
) -> list[str]:
    """Have each sink compare its target with the newest epoch up to ``epoch`` that is complete by the log.

    ``around`` is what was read around it. Not where its target is another one by now: that is told elsewhere. Unless
    it lies where the former one lay: so does what is there while a disk is not mounted. Raises what a sink raises;
    before its check (``checked`` is false) only ``TargetBehindError``: what the check makes may be missing. Return the
    names of those that are to be asked again then.
    """

    def look(name: str, link: Link, handles: Sequence[Handle]) -> bool:
        then, sink = link.settings.get(name, {}), sinks[name]
        try:
            is_another = differing(then, sink.identity()) and not sink.overlaps(then)
            sink.look_back(context(name), link.epoch, () if is_another else handles)
        except TargetBehindError:
            raise
        except Exception:
            if checked:
                raise
            return False  # not swallowed: it is asked again after its check, and raises then
        return True

    known = {epoch: (around.links, around.receipt), epoch - 1: (around.before, around.before_receipt)}
    asked: dict[str, Callable[[], bool]] = {}
    for newest in range(epoch, max(epoch - EPOCHS_MAX, -1), -1):
        chain, receipt = known.get(newest) or background.at_once(
            log.abreast, partial(log.chain, newest), partial(log.receipt, newest)
        )
        link = _complete(chain, receipt)
        if link is None:
            continue
        for name, handles in handles_of(link.output).items():
            if name in sinks and name not in asked:
                asked[name] = partial(look, name, link, handles)
        if len(asked) == len(sinks):
            break
    told = questions.ask(
        asked, within_s=ANSWERS_S, about=f"Query {log.query}, chk-{epoch}: whether the targets have gone back"
    )
    return [name for name, could in told.items() if not could]


def _complete(chain: Sequence[Link], receipt: Receipt | None) -> Link | None:
    """Return what an epoch has written, if it is settled."""
    if not chain or chain[-1].kind is not LinkKind.COMMIT or chain[-1].guarantee is Guarantee.AT_MOST_ONCE:
        return None
    return chain[-1] if receipt is not None and receipt.index == chain[-1].index else None
