"""How values become text in files of lines, as the options say. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from onceonly.errors import ConfigurationError
from onceonly.sinks.files.formats import patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from onceonly.sinks.files.formats.patterns import Write


class Pattern(NamedTuple):
    """A pattern of dates or times, and what writes a value by it."""

    text: str
    write: Write


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """How values are written; None for a pattern is ISO 8601, times with a zone in UTC."""

    sep: str = ","
    quote: str = '"'
    escape: str = "\\"
    quote_all: bool = False
    null: str = ""
    empty: str | None = None
    """None for two quotes."""
    null_fields: bool = False
    date: Pattern | None = None
    time: Pattern | None = None
    local_time: Pattern | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Texts:
        """Take values that ``read_options`` has read. Raises ``ConfigurationError``."""
        sep = values["delimiter"] if values["sep"] is None else values["sep"]
        found = cls(
            sep="," if sep is None else sep,
            quote=values["quote"],
            escape=values["escape"],
            quote_all=values["quoteAll"],
            null=values["nullValue"],
            empty=values["emptyValue"],
            null_fields=not values["ignoreNullFields"],
            date=_pattern("dateFormat", values, patterns.of_dates),
            time=_pattern("timestampFormat", values, patterns.of_times),
            local_time=_pattern("timestampNTZFormat", values, patterns.of_local_times),
        )
        if found.sep in {found.quote, found.escape}:
            raise ConfigurationError(
                f"The option sep of the sink files is {found.sep!r}, as is what quotes or escapes a value.",
                next_step="choose another sep, quote or escape",
            )
        return found

    @property
    def for_readers(self) -> tuple[tuple[str, str], ...]:
        """The options, besides header and sep, by which Spark reads the files back."""
        plain = Texts()
        # Quoted, a null is told from no other text.
        null = self.null if self.null or self.quote_all else None
        given = {
            "quote": self.quote if self.quote != plain.quote else None,
            "escape": self.escape if self.escape != plain.escape else None,
            "nullValue": null,
            "dateFormat": self.date and self.date.text,
            "timestampFormat": self.time and self.time.text,
            "timestampNTZFormat": self.local_time and self.local_time.text,
        }
        return tuple((name, text) for name, text in given.items() if text is not None)


def _pattern(name: str, values: Mapping[str, Any], read: Callable[[str], Write]) -> Pattern | None:
    text = values[name]
    if text is None:
        return None
    try:
        return Pattern(text, read(text))
    except patterns.PatternError as error:
        raise ConfigurationError(
            f"The option {name} of the sink files is {text!r}, of which not all can be written: {error}.",
            next_step="leave that out of the pattern, or write a column made by date_format(…)",
        ) from None
