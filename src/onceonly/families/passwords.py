"""A password that an option gives, or a file; of a file, each connect reads it anew, so that it can be changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.options import Option

if TYPE_CHECKING:
    from collections.abc import Mapping

DECLARED = (
    Option(name="password", doc="of that user", secret=True),
    Option(
        name="password.file",
        doc="a file on driver and executors that holds the password, read at each connect",
    ),
)
EVERYWHERE = "driver and executors run, readable by their user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Password:
    """Where the password is."""

    given: str | None = field(default=None, repr=False)
    file: str | None = None
    place: str = EVERYWHERE
    """Where the file has to be, for people."""

    @classmethod
    def of(cls, options: Mapping[str, Any], who: str, *, place: str = EVERYWHERE) -> Password:
        """Read the options. Raises ``ConfigurationError`` where both are given."""
        given, file = options["password"], options["password.file"]
        if given is not None and file is not None:
            raise ConfigurationError(
                f"The options password and password.file of {who} are both given.", next_step="leave out one"
            )
        return cls(given=given, file=file, place=place)

    @property
    def is_given(self) -> bool:
        """Whether there is one."""
        return self.given is not None or self.file is not None

    def read(self) -> str | None:
        """Return it, None where there is none. Driver and executor. Raises ``ConfigurationError``."""
        if self.file is None:
            return self.given
        try:
            return Path(self.file).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigurationError(
                f"The option password.file names {self.file}, which cannot be read: {error.strerror}.",
                next_step=f"put it where {self.place}",
            ) from error
