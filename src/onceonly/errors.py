"""One tree of errors. Each says what went wrong, whose fault it is, and the next step.

Every error carries a short ``code``. It is part of the message (``[ONCEONLY:IN_DOUBT] …``), because an error
raised in a Python worker reaches the driver only as text inside a Spark exception: ``find_error`` reads it
back from there, so that a supervisor can act on it.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator

TAKEN_OVER = (
    "If the newer run is alive and wanted, nothing. Else see that it is down, and start this in a new Spark "
    "application (a new process, a restarted kernel): one from which another has taken over stays out for good."
)
"""What to do after ``SUPERSEDED``."""

_IN_CODE = re.compile(r"\.option\('([^']+)', '?([^')]+)'?\)")
_AGAIN = "start the query again"
_TAG = re.compile(r"\[ONCEONLY:([A-Z_]+)\] (.*?)(?: \[next: (.*?)\])(?=\s|$)", re.DOTALL)


class OnceonlyError(Exception):
    """The root of all errors that onceonly raises on purpose.

    ``what`` names the thing (query, epoch, sink, transaction) and whose fault it is; ``next_step`` is what the
    reader does now. ``restartable`` is true where running the query again can succeed without anybody's help.
    """

    code: ClassVar[str] = "ERROR"
    restartable: ClassVar[bool] = False

    def __init__(self, what: str, *, next_step: str) -> None:
        self.what = what
        self.next_step = next_step
        super().__init__(f"[ONCEONLY:{self.code}] {what} [next: {next_step}]")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.next_step))


class ConfigurationError(OnceonlyError):
    """The user's options, columns or call are wrong. Nothing was read or written."""

    code = "CONFIGURATION"


class SetupError(OnceonlyError):
    """The machine lacks something: Java, a jar, an optional package, a network."""

    code = "SETUP"


class UnavailableError(OnceonlyError):
    """An outside system does not answer now. Nothing was decided; running again may succeed."""

    code = "UNAVAILABLE"
    restartable = True


class WriteFailedError(OnceonlyError):
    """A slot could not write or prepare its rows; the slot votes abort and the epoch is run again."""

    code = "WRITE_FAILED"
    restartable = True


class EpochTimeoutError(OnceonlyError):
    """An epoch took longer than its limit, or than its transactions live. It is not decided, and is run again."""

    code = "EPOCH_TIMEOUT"
    restartable = True


class RecordRefusedError(OnceonlyError):
    """The outside system will never take this row (too large, no topic). The row stays in the source."""

    code = "RECORD_REFUSED"


class CommitDelayedError(OnceonlyError):
    """The epoch is decided, but a commit was not possible within its time. It is retried at the next run."""

    code = "COMMIT_DELAYED"
    restartable = True


class CommitRefusedError(OnceonlyError):
    """The epoch is decided, but the target refuses a commit until somebody grants or mends what is named."""

    code = "COMMIT_REFUSED"


class TransactionLostError(OnceonlyError):
    """A decided transaction is proven lost, and fenced. The next run of the epoch writes its rows again."""

    code = "TRANSACTION_LOST"
    restartable = True


class CheckpointChangedError(OnceonlyError):
    """Spark's checkpoint said something else than was planned or decided. What was decided stands there again."""

    code = "CHECKPOINT_CHANGED"
    restartable = True


class InDoubtError(OnceonlyError):
    """The outcome of a transaction cannot be told. Nothing was aborted; a person must look."""

    code = "IN_DOUBT"


class SupersededError(OnceonlyError):
    """A newer run has taken this checkpoint over. This run stops and has changed nothing."""

    code = "SUPERSEDED"


class StoppedError(OnceonlyError):
    """An operator has asked this run to end, and it has, between two epochs. Not a failure; nothing is left open."""

    code = "STOPPED"


class ReplayMismatchError(OnceonlyError):
    """The epoch must be written again, but its replay gives other rows than were decided."""

    code = "REPLAY_MISMATCH"


class LogError(OnceonlyError):
    """The decision log cannot be used as it is: damaged, of a newer format, incomplete."""

    code = "LOG"


class JournalError(OnceonlyError):
    """A journal cannot be used as it is: damaged, incomplete, of a newer format, of another feed or query."""

    code = "JOURNAL"


class CheckpointMovedError(LogError):
    """The checkpoint was copied or moved, so two queries might believe they own the same transactions."""

    code = "CHECKPOINT_MOVED"


class AdoptionError(OnceonlyError):
    """Spark has noted epochs that were not decided here: another sink wrote them, or a function passed onceonly by."""

    code = "ADOPTION"


class TargetBehindError(OnceonlyError):
    """A target went back: it does not hold epochs that were committed to it. Nothing was written; choose."""

    code = "TARGET_BEHIND"


class SourceChangedError(OnceonlyError):
    """A source does not have what the checkpoint stands on: rows would be lost, or others read. Nothing was; choose."""

    code = "SOURCE_CHANGED"


class ProtocolError(OnceonlyError):
    """An illegal move of the protocol: a defect in onceonly. Stopped before anything was sent."""

    code = "PROTOCOL"


@contextmanager
def required(what: str, *, extra: str, where: str = "on driver and executors") -> Iterator[None]:
    """Say what to install where an import in this block fails; ``what`` says who needs which package.

    Raises ``SetupError``.
    """
    try:
        yield
    except ImportError as error:
        raise SetupError(
            f"{what}, which cannot be used here: {error}",
            next_step=f"pip install 'onceonly[{extra}]' {where}",
        ) from error


def typed(error: OnceonlyError) -> str:
    """Return an error's next step for somebody who typed a command. Pure.

    What a command meets, a job meets, too, and the error speaks to its author: of ``.option(…)``, and of starting the
    query again where an outside system did not answer.
    """
    step = _IN_CODE.sub(r"\1=\2", error.next_step)
    return step.replace(_AGAIN, "run this command again") if isinstance(error, UnavailableError) else step


def _rebuild(kind: type[OnceonlyError], what: str, next_step: str) -> OnceonlyError:
    return kind(what, next_step=next_step)


def _kinds(kind: type[OnceonlyError] = OnceonlyError) -> dict[str, type[OnceonlyError]]:
    found = {kind.code: kind}
    for child in kind.__subclasses__():
        found |= _kinds(child)
    return found


def find_error(error: BaseException | str) -> OnceonlyError | None:
    """Return the onceonly error inside a Spark exception's text, or None.

    Driver; pure. Spark nests the texts of Python workers in its own exceptions; the last tag found is the
    innermost cause that Spark prints.
    """
    if isinstance(error, OnceonlyError):
        return error
    found = _TAG.findall(str(error))
    if not found:
        return None
    code, what, next_step = found[-1]
    kind = _kinds().get(code, OnceonlyError)
    return kind(what, next_step=next_step)
