"""Where a Delta table is, how deltalake is told of it, and what its errors say there. Driver and executor."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError
from onceonly.families.loaded.places import home_at
from onceonly.stores import answers
from onceonly.stores.address import Kind
from onceonly.stores.opened import RETRIES, RETRIES_S, address_of

if TYPE_CHECKING:
    from onceonly.families.loaded.places import Home
    from onceonly.stores.address import Address

_WHAT = "the Delta table"
_LOCKS = "AWS_S3_LOCKING_PROVIDER"
# deltalake tells causes below each other, with an arrow.
_BELOW = re.compile(r"\s*\n\s*(?:\x1b\[\d+m)?↳?(?:\x1b\[0m)?\s*")
# What deltalake and obstore take for the same key.
_KEY = re.compile(r"[\w.=@,+~ /-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a table. Nothing is asked of it here."""

    address: Address

    @property
    def shown(self) -> str:
        """What people call it."""
        return self.address.shown

    @property
    def folder(self) -> Path | None:
        """The table's folder in a file system; None on a store."""
        return Path(self.address.path) if self.address.kind is Kind.FOLDER else None

    @property
    def uri(self) -> str:
        """What deltalake calls it."""
        return self.address.path if self.address.kind is Kind.FOLDER else self.address.text

    def home(self) -> Home:
        """Open the place of its data files. Raises ``ConfigurationError``, ``SetupError``."""
        return home_at(self.address.location)

    def told(self) -> dict[str, str] | None:
        """Return what deltalake is told of the store, secrets among it; None in a file system.

        A version is put on the condition that its name is free. Raises ``ConfigurationError``.
        """
        if self.address.kind is Kind.FOLDER:
            return None
        from onceonly.stores.texts import texts

        # As long as our own client; deltalake alone would go on for three minutes.
        patience = {"max_retries": str(RETRIES), "retry_timeout": f"{RETRIES_S}s"}
        found = texts(self.address) | patience
        if self.address.kind is Kind.S3:
            if os.environ.get(_LOCKS):
                raise ConfigurationError(
                    f"{_LOCKS} is in the environment: {_WHAT} {self.shown} would be written under a lock in a "
                    "database, which writers that put versions with a condition do not see",
                    next_step=f"let all writers of the table put with a condition, and unset {_LOCKS}",
                )
            found |= {"aws_conditional_put": "etag", "aws_s3_allow_unsafe_rename": "false"}
        return found

    def failed(self, error: Exception, what: str, verb: str, next_step: str) -> OnceonlyError:
        """Return the error for what went wrong: ``what`` says it of the table, ``verb`` of an object of the store."""
        flat = _BELOW.sub(": ", str(error))
        if self.folder is None and (isinstance(error, OSError) or "http" in flat):
            # Its text may hold signatures and whole answers of servers.
            return answers.refusal(
                type(error)(flat), kind=self.address.kind, where=self.shown, verb=verb, denied=False
            )
        return UnavailableError(f"{what}: {said(error)}", next_step=next_step)


def read_place(text: str) -> Place:
    """Read the option ``path``, as Hadoop reads it. Raises ``ConfigurationError`` for where no table can be."""
    address = address_of(text, what=_WHAT)
    if address.kind is Kind.HDFS:
        raise ConfigurationError(
            f"{_WHAT} {address.shown} is on HDFS, where no version can be put on a condition by deltalake",
            next_step="write it to an object store, or to a mount that all machines share, as file:///path; or write "
            "parquet files there by onceonly.files, and load the table from those",
        )
    if address.kind is not Kind.FOLDER and (not address.path or not _KEY.fullmatch(address.path)):
        raise ConfigurationError(
            f"{_WHAT} {address.shown} "
            + (
                "is a whole bucket"
                if not address.path
                else "has a name that not all readers take for the same"
            ),
            next_step="name a folder in the bucket, of letters, digits and . _ - = @ + ~",
        )
    return Place(address)


def said(error: Exception) -> str:
    """Return what an error says, without the calls of Rust's that may follow. Not for those of a store."""
    return str(error).partition("\n")[0]
