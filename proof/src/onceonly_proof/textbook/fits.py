"""What of the code the recordings stand on, as it is now. Pure."""

from __future__ import annotations

from onceonly import failpoints
from onceonly.log.files import VERSION
from onceonly.protocol.transitions import moves
from onceonly_proof.textbook.values import Fits


def fits() -> Fits:
    """Return what a recording that is made now stands on."""
    rows = sorted(f"{state.__name__} + {event.__name__}" for state, event in moves())
    return Fits(log_format=VERSION, failpoints=failpoints.EVERYWHERE, moves=tuple(rows))


def differences(recorded: Fits) -> list[str]:
    """Say in what the code is another one by now; nothing where the recording fits. Pure."""
    now, found = fits(), list[str]()
    if recorded.log_format != now.log_format:
        found.append(f"the log's format was {recorded.log_format} and is {now.log_format}")
    for what, was, is_now in (
        ("crash point", recorded.failpoints, now.failpoints),
        ("move of the protocol", recorded.moves, now.moves),
    ):
        found += [f"the {what} {name} is gone" for name in was if name not in is_now]
        found += [f"the {what} {name} is new" for name in is_now if name not in was]
    if not found and recorded.failpoints != now.failpoints:
        found.append("the crash points have another order")
    return found
