"""What is said where a sink leads to another target than the log names. Operator's process; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.ports.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onceonly.model import Link
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given

# The way on from transactions that nothing can commit or abort any more.
_GONE_FOR_GOOD = (
    "if that is gone for good, onceonly savepoint create, and savepoint fork --same-targets: it goes on after the "
    "newest epoch that is committed, and writes again what was pending"
)


class Elsewhere(Standing):
    """What is known of a transaction whose target is another one than the log names: nothing."""

    __slots__ = ()


def error(
    checkpoint: Checkpoint,
    given: Given,
    name: str,
    link: Link,
    now: Mapping[str, str | int],
    differ: Collection[str],
) -> ConfigurationError:
    """Make the error for a sink whose target is ``now`` another one than in a link, in what differs."""
    then = link.settings[name]
    shown = "; ".join(f"{key} is {_value(now, key)}, and was {_value(then, key)}" for key in differ)
    return ConfigurationError(
        f"the sink {name} of query {checkpoint.query} has another target than in link {link.name}: {shown}",
        next_step=f"{_blame(given, name, differ, link)}; nothing was changed",
    )


def _value(identity: Mapping[str, str | int], key: str) -> str:
    return repr(identity[key]) if key in identity else "not known"


def _blame(given: Given, name: str, differ: Collection[str], link: Link) -> str:
    """Name the options that may have led elsewhere: those called like what differs; else say that it may be gone."""
    options = [*given.options, *given.by_sink.get(name, {})]
    if blamed := [option for option in options if option in differ]:
        return f"correct the option {', '.join(dict.fromkeys(blamed))}, or leave it out"
    used = link.uses.get(name)
    if name in given.classes and (used is None or given.classes[name] != used.sink):
        return f"correct --sink {name}={given.classes[name]}, or leave it out"
    others = f"if one of {', '.join(dict.fromkeys(options))} leads elsewhere, correct it; else"
    return (
        f"{others if options else 'no option given here changes it:'} bring back what the name led to, or give the "
        f"former target by --option; {_GONE_FOR_GOOD}"
    )
