"""What a campaign found: rounds, and everything else as a pure function of them; read from and written to a file.

A report is a fold of rounds. Invocations that share a file add theirs, in any order and any number of times; the
matrix, the sums and the verdict are worked out anew from all rounds there are. On disk it is one JSON file, which
holds these sums for other programs too; where they do not follow from its rounds, the file is refused.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly_proof.campaign.folding import add, fold, matrix, next_number, refold, split, verdict
from onceonly_proof.campaign.values import VERSION, Result, Round, Row, Verdict

__all__ = [
    "VERSION",
    "Result",
    "Round",
    "Row",
    "Verdict",
    "add",
    "decode",
    "encode",
    "fold",
    "matrix",
    "next_number",
    "read",
    "save",
    "split",
    "verdict",
    "write",
]


_GONE = "spark_recovery_s"
_ROWS_BY_STORE = 3
"""The format since which each store and each kind of broker has rows of its own in the matrix."""


class _Version(msgspec.Struct, frozen=True):
    version: int


def read(path: Path) -> Result:
    """Read a report. Anywhere.

    Raises:
        ConfigurationError: it is no report, damaged, changed by hand, or of a newer onceonly.
        UnavailableError: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnavailableError(
            f"the report {path} cannot be read: {error.strerror}",
            next_step="see that it is there and readable",
        ) from error
    return decode(data, where=str(path))


def decode(data: bytes, *, where: str) -> Result:
    """Take a report from its bytes; ``where`` is its name in errors. Raises ``ConfigurationError``."""
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version > VERSION:
            raise ConfigurationError(
                f"{where} has format {version}, written by a newer onceonly; this one reads up to {VERSION}",
                next_step="upgrade onceonly, or name another file",
            )
        found = msgspec.convert(_without_the_gone(msgspec.json.decode(data)), Result)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{where} is not a whole report of a campaign: {error}",
            next_step="name another file, or move this one away",
        ) from None
    result = refold(found, found.rounds)
    if _figures(result, version) != _figures(found, version):
        raise ConfigurationError(
            f"{where} has sums that do not follow from its rounds: it was changed by hand",
            next_step="restore it, or move it away",
        )
    return result


def _without_the_gone(report: dict[str, Any]) -> dict[str, Any]:
    """Leave out a field of rounds that early reports have, always empty."""
    rounds = report.get("rounds")
    for each in rounds if isinstance(rounds, list) else ():
        if isinstance(each, dict) and each.get(_GONE) == []:
            del each[_GONE]
    return report


def _figures(result: Result, version: int) -> tuple[object, ...]:
    """What must follow from the rounds. Words may change, and so may the number of zeros."""
    sums = (result.faults, result.armed, result.anomalies, result.traces)
    rows = [(row.way, row.promise, row.rounds, row.crashes, row.rows, row.verdict) for row in result.matrix]
    rows = rows if version >= _ROWS_BY_STORE else []
    return result.verdict, result.crashes, rows, [{name: n for name, n in each.items() if n} for each in sums]


def encode(value: msgspec.Struct) -> bytes:
    """Return a file's bytes. The same value always gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def write(path: Path, result: Result) -> None:
    """Replace the report. Raises as ``save`` does."""
    save(path, encode(result))


def save(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader, or a crash, finds the old one or the new one, whole.

    Raises:
        UnavailableError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                # Temporary files are their owner's alone; a report is for everybody.
                Path(file.name).chmod(0o644)
                Path(file.name).replace(path)
            except BaseException:  # an interrupt, too: no half file stays
                with suppress(FileNotFoundError):
                    Path(file.name).unlink()
                raise
    except OSError as error:
        raise UnavailableError(
            f"the report {path} cannot be written: {error.strerror}",
            next_step="see that its folder can be written to and has room",
        ) from error
