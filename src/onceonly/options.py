"""The options of a sink: declared once, checked before anything is touched, secrets marked. Pure.

Spark lowers the names of options before a Python data source sees them, so names are compared in lower case.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
# difflib's own, 0.6, takes retention for partitionBy.
_NEAR = 0.7
_CONFIDENTIAL = (
    r"(?:passw(?:or)?d|\bpwd\b|passphrase|secret|token|credential|(?:api|access|private|account)[._-]?key)"
)
_SECRET_NAME = re.compile(_CONFIDENTIAL, re.IGNORECASE)
# A user's password in an address, or a part of a connection text or a signed address that names a secret.
_LOGIN = r"://[^/?#\s]*:[^/?#\s]*@"
_NAMED = rf"(?:\b\w*{_CONFIDENTIAL}\w*[\"']?\s*[=:]|[?&](?:x-amz-)?sig(?:nature)?=)"
_BASIC = r"\bauthorization[\"']?\s*[=:]\s*[\"']?basic\s+"
_SECRET_VALUE = re.compile(f"{_LOGIN}|{_NAMED}", re.IGNORECASE)
_TOLD = re.compile(
    rf"(?P<login>{_LOGIN})|(?P<named>{_NAMED}\s*|\bbearer\s+|{_BASIC})(?:\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)",
    re.IGNORECASE,
)
# The units of Spark's intervals, and those of its settings (JavaUtils.timeStringAs).
_SECONDS = {
    unit: seconds
    for units, seconds in (
        ("us microsecond microseconds", 1e-6), ("ms millisecond milliseconds", 1e-3), ("s sec second seconds", 1.0),
        ("m min minute minutes", 60.0), ("h hour hours", 3600.0), ("d day days", 86400.0),
        ("week weeks", 604800.0),
    )
    for unit in units.split()
}  # fmt: skip
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(" + "|".join(sorted(_SECONDS, key=len, reverse=True)) + r")(?![a-z])")
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)


_OF_QUERY = "checkpointLocation"
_OF_SOURCE = {
    name.lower(): name
    for name in (
        "maxFilesPerTrigger", "maxBytesPerTrigger", "maxFileAge", "latestFirst", "fileNameOnly", "cleanSource",
        "sourceArchiveDir", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "startingOffsets",
        "startingOffsetsByTimestamp", "startingTimestamp", "failOnDataLoss", "subscribe", "subscribePattern", "assign",
        "minPartitions", "rowsPerSecond", "rampUpTime",
    )
}  # fmt: skip
"""Spark's, which some write at the other end of the query."""


class Secret(str):
    """A text that does not show itself: its ``repr`` is redacted, also inside a dict."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'[redacted]'"


def boolean(text: str) -> bool:
    """Read ``true`` or ``false``."""
    return {"true": True, "false": False}[text.strip().lower()]


def whole(text: str) -> int:
    """Read a whole number, at least 0."""
    if not text.strip().isdecimal():
        raise ValueError(text)
    return int(text)


def size(text: str) -> int:
    """Read a number of bytes: ``1048576``, ``128m``, ``128 MB``, ``1GiB``; k, m, g and t are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2].lower()]


def some_bytes(text: str) -> int:
    """Read a number of bytes as ``size`` does, and refuse none."""
    if not size(text):
        raise ValueError(text)
    return size(text)


def port(text: str) -> int:
    """Read the number of a port."""
    if not 0 < whole(text) < 1 << 16:
        raise ValueError(text)
    return whole(text)


def span(text: str) -> float:
    """Read a time as Spark writes it, in seconds: ``7 days``, ``90m``, ``1 week 12 hours``, ``interval 30 seconds``.

    A number alone, months and years are refused: they are as long as one thinks.
    """
    parts = text.strip().lower().removeprefix("interval ")
    if not parts.strip() or _SPAN.sub("", parts).strip():
        raise ValueError(text)
    return sum(float(number) * _SECONDS[unit] for number, unit in _SPAN.findall(parts))


def some_time(text: str) -> float:
    """Read a time as ``span`` does, and refuse one of no length."""
    if not span(text):
        raise ValueError(text)
    return span(text)


_FORMS: dict[Any, str] = {
    boolean: "true or false",
    whole: "a whole number, at least 0",
    size: "a number of bytes such as 1048576, 128m or 1g",
    port: "a whole number from 1 to 65535",
    span: "a time such as 7 days, 12 hours or 90m",
    some_time: "a time such as 30 seconds, 2 minutes or 1h",
    some_bytes: "a number of bytes such as 16m or 1g",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option that a sink understands.

    ``read`` turns its text into a value and raises ``ValueError`` or ``KeyError`` for what it cannot be; ``form``
    says in words what it can be. ``choices`` are all the values that there are, as texts or a range of numbers.
    ``default`` is a text too, read like the user's. What is ``secret`` is never shown, and never written to the
    decision log.
    """

    name: str
    doc: str
    default: str | None = None
    required: bool = False
    secret: bool = False
    choices: tuple[str, ...] | range = ()
    read: Callable[[str], Any] = str
    form: str = ""

    def value(self, text: str, *, who: str) -> Any:  # noqa: ANN401  whatever ``read`` gives
        """Read a text. Raises ``ConfigurationError`` that names the option, and shows no secret."""
        if isinstance(self.choices, range):
            wanted = f"a whole number from {self.choices[0]} to {self.choices[-1]}"
        else:
            wanted = self.form or _FORMS.get(self.read) or f"one of {', '.join(self.choices)}"
        try:
            value = self.read(text)
            wrong = bool(self.choices) and value not in self.choices
        except (ValueError, KeyError):
            wrong = True
        if wrong:
            shown = "not readable" if self.secret else repr(str(text))
            raise ConfigurationError(
                f"The option {self.name} of {who} is {shown}, and must be {wanted}.", next_step=self.doc
            )
        return Secret(value) if self.secret and isinstance(value, str) else value


def read_options(
    declared: Iterable[Option],
    given: Mapping[str, str],
    *,
    who: str,
    instead: Mapping[str, str] = MappingProxyType({}),
    of_sink: bool = False,
    families: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the value of each declared option by its name; None where it has none. Anywhere.

    ``instead`` says what to do about names, in lower case, that other writers to the same system take; ``of_sink`` that
    options of the query and of its source may be meant; ``families`` are beginnings of names that somebody else reads.

    Raises ``ConfigurationError`` for an option that is not declared (with the nearest that is), for one that
    is required and missing, and for a value that cannot be read.
    """
    options = {option.name.lower(): option for option in declared}
    texts = {name.lower(): str(text) for name, text in given.items()}
    for name in texts:
        if name in options:
            continue
        if name in instead:
            raise ConfigurationError(f"{who} knows no option {name}.", next_step=instead[name])
        known = [*(option.name for option in options.values()), *(f"{family}NAME" for family in families)]
        raise unknown_option(name, known, who=who, of_sink=of_sink)
    values: dict[str, Any] = {}
    for key, option in options.items():
        text = texts.get(key, option.default)
        if text is None and option.required:
            raise ConfigurationError(
                f"The option {option.name} of {who} is missing.", next_step=f"set it: {option.doc}"
            )
        if text is not None and option.required and not text.strip():
            raise ConfigurationError(
                f"The option {option.name} of {who} is empty.", next_step=f"set it: {option.doc}"
            )
        values[option.name] = None if text is None else option.value(text, who=who)
    return values


def unknown_option(name: str, known: Iterable[str], *, who: str, of_sink: bool = False) -> ConfigurationError:
    """Make the error for an option that nobody knows, with the nearest known one; ``of_sink`` as above."""
    names = sorted(known)
    near = nearest(name, [*names, _OF_QUERY] if of_sink else names)
    listed = f"It knows {', '.join(names)}" if names else "It takes none"
    if of_sink and name.lower() in _OF_SOURCE:
        step = (
            f"{_OF_SOURCE[name.lower()]} is an option of the source: give it to readStream, before its load()"
        )
    elif near:
        step = f"did you mean {near}?"
    else:
        step = f"remove it. {listed}{'; and a query all those that begin with onceonly.' if of_sink else ''}"
    return ConfigurationError(f"{who} knows no option {name}.", next_step=step)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known option that is nearest to one that nobody knows; empty where none is near. Pure."""
    lower = {each.lower(): each for each in known}
    # A likely slip: the client's own name, without the family's word before it (acks for kafka.acks).
    near = [each for each in lower if each.partition(".")[2] == name.lower()]
    if not near:
        # A common family's word would make everything look near.
        family = name.lower().partition(".")[0] + "." if "." in name else ""
        short = {each.removeprefix(family): each for each in lower if each.startswith(family)}
        found = difflib.get_close_matches(name.lower().removeprefix(family), list(short), n=1, cutoff=_NEAR)
        near = [short[each] for each in found]
    return lower[near[0]] if near else ""


def without_secrets(text: str) -> str:
    """Return what somebody else has said, such as a client's error, without what looks like a secret in it. Pure."""
    return _TOLD.sub(
        lambda found: "://[redacted]@" if found["login"] else f"{found['named']}[redacted]", text
    )


def public_options(declared: Iterable[Option], given: Mapping[str, str]) -> dict[str, str]:
    """Return what may be written down and shown: the declared options as given, without the secret ones.

    What merely looks like a secret (a password inside an address, a name that speaks of one) stays out as well.
    """
    shown = {option.name.lower() for option in declared if not option.secret}
    return {
        name.lower(): str(text)
        for name, text in given.items()
        if name.lower() in shown and not _SECRET_NAME.search(name) and not _SECRET_VALUE.search(str(text))
    }
