"""What the operator adds to what the log says of a query's sinks: secrets, changed options, where a class is."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

OPTIONS_FILE = "ONCEONLY_SINK_OPTIONS_FILE"
"""The environment's name for the file of options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Options for all sinks that know them, options of one sink, classes by sink name. Its repr shows no option.

    ``agree`` is asked before a secret goes to an address that only the checkpoint names, with a sentence that names it;
    it raises where the operator does not agree. None agrees to all, for a caller who has looked.
    """

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    by_sink: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    classes: Mapping[str, str] = field(default_factory=dict)
    agree: Callable[[str], None] | None = field(default=None, repr=False, compare=False)


def read(
    options: Iterable[str],
    file: Path | None,
    classes: Iterable[str],
    *,
    agree: Callable[[str], None] | None = None,
) -> Given:
    """Read what the operator gives: options on the command line go over those in the file.

    Raises ``ConfigurationError``, without the text that is wrong: it may be a secret.
    """
    if file is None and os.environ.get(OPTIONS_FILE):
        file = Path(os.environ[OPTIONS_FILE])
    common: dict[str, str] = {}
    by_sink: dict[str, dict[str, str]] = {}
    for text in (*lines(file), *options):
        name, equals, value = text.partition("=")
        sink, colon, short = name.partition(":")
        if not equals or not (short if colon else name).strip():
            raise ConfigurationError(
                "an option of a sink is not of the form NAME=VALUE",
                next_step="write NAME=VALUE or SINK:NAME=VALUE",
            )
        if colon:
            by_sink.setdefault(sink.strip(), {})[short.strip()] = value
        else:
            common[name.strip()] = value
    pairs = [text.partition("=") for text in classes]
    for name, equals, path in pairs:
        if not (name and equals and path):
            raise ConfigurationError(f"--sink {name!r} is not of the form SINK=CLASS", next_step="correct it")
    return Given(
        options=common, by_sink=by_sink, classes={name: path for name, _, path in pairs}, agree=agree
    )


def lines(file: Path | None) -> list[str]:
    """Return the options in a file, without empty lines and comments. Raises ``ConfigurationError``."""
    if file is None:
        return []
    try:
        found = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}", next_step="name another file") from error
    return [line for line in found if line.strip() and not line.lstrip().startswith("#")]
