"""What operators have done by hand: who, when, why, and what it changed. Durable; the protocol decides nothing by it.

``onceonly/actions/{at}-{id}.json``, of the newest hundred actions. An action is written down before it is begun, and
once more when it is over: one without an end was broken off, and may have done all, a part or nothing.

What tidies up has ``upkeep/`` for itself, as it may run daily, and would push out what ended an epoch.
"""

from __future__ import annotations

import getpass
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from onceonly.log.dated import DatedFiles
from onceonly.model import Stamp  # noqa: TC001  the codec reads the annotations at run time
from onceonly.options import without_secrets
from onceonly.words import epoch_ranges, n

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.stores.port import RewritableStore

ACTIONS: Final = "actions/"
UPKEEP: Final = "upkeep/"
OPERATOR: Final = "operator-"
"""What the application of a link is called that an operator's command has put: no run has such a one."""
TIDIES: Final = frozenset({"savepoint drop", "journal drop", "journal accept-move", "files expire"})
"""The commands whose records are in ``upkeep/``: broken off, they are simply run again."""
NAMES_MAX: Final = 1_000
"""How many files a record names of a sink."""
_SHOWN_MAX: Final = 5
_DID: Final = {
    "rescale": "was the newest when state was dealt out anew",
    "divert": "was decided anew, with rows as dead letters,",
    "accept-move": "was the newest when the checkpoint was given another home",
    "restore": "was gone on from",
    "fork": "was gone on from",
    "savepoint drop": "had a savepoint deleted",
    "journal drop": "was the newest when a journal was dropped",
    "journal accept-move": "was the newest when a journal's feed was given another address",
    "files expire": "was the newest when old epochs of files were expired",
}
"""What a command did to an epoch; the others end it."""


def user() -> str:
    """Return who acts, for the record: the user's name on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user on this machine
        return "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """What was taken back from one sink of a query: of which epochs, how many rows and files, and in what entry.

    ``names`` are those of the files, not more than the first ``NAMES_MAX``; ``entry`` is that of the target's own log,
    such as a version of a table, empty where it has none.
    """

    query: str
    sink: str
    epochs: tuple[int, ...]
    rows: int
    files: int
    names: tuple[str, ...] = ()
    entry: str = ""

    @property
    def sentence(self) -> str:
        """Tell it without its full stop."""
        entry = f" in {self.entry}" if self.entry else ""
        return (
            f"from sink {self.sink}{entry}: {n(self.files, 'file')} with {n(self.rows, 'row')} of "
            f"{epoch_ranges(self.epochs)}{_some(self.names, self.files)}"
        )


def _some(names: Sequence[str], count: int) -> str:
    shown = names[:_SHOWN_MAX]
    more = [f"{count - len(shown)} more"] if count > len(shown) else []
    return f" ({', '.join([*shown, *more])})" if shown else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action. ``who`` is the user's name on the machine of ``stamp``; ``because`` what they gave as a reason.

    ``before`` and ``after`` say in words how the epoch stood; ``after`` is empty while it is not over. ``against`` says
    that it went against the decision in the log. ``plan`` is the application of the links and the receipt that it put.
    ``aborted`` names the transactions that it has aborted; while it is not over, the one that it is to abort.
    ``withdrawn`` says what it has taken back; while it is not over, what it is to take back. ``committed`` names what
    targets have committed of an epoch of which others are in doubt, so that no receipt says it; ``link`` is the epoch's
    newest by then, -1 where nothing is named.
    """

    command: str
    epoch: int
    who: str
    stamp: Stamp
    plan: str = ""
    because: str = ""
    against: bool = False
    before: str = ""
    after: str = ""
    aborted: tuple[str, ...] = ()
    withdrawn: tuple[Withdrawn, ...] = ()
    committed: tuple[str, ...] = ()
    link: int = -1
    id: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def sentence(self) -> str:
        """Tell it in a sentence, without its full stop."""
        why = f", because {without_secrets(self.because)!r}" if self.because else ""
        against = " against its decision" if self.against else ""
        end = self.after or "it was broken off before it was over"
        did = _DID.get(self.command, "was ended")
        taken = "; ".join(each.sentence for each in self.withdrawn)
        verb = "withdrawn" if self.after else "to be withdrawn"
        parts = f"; committed{_some(self.committed, len(self.committed))}" if self.committed else ""
        subject = f"chk-{self.epoch}" if self.epoch >= 0 else "an epoch that is not known"
        return (
            f"{subject} {did} by hand ({self.command}{against}) at {self.stamp.at} by {self.who} on "
            f"{self.stamp.host}{why}: before, {self.before}; after, {end}{parts}{f'; {verb} {taken}' if taken else ''}"
        )

    def concerns(self, epoch: int, query: str) -> bool:
        """Say whether it did anything to an epoch of a query whose log has this record."""
        return epoch == self.epoch or any(
            epoch in each.epochs for each in self.withdrawn if each.query == query
        )


class ActionFiles(DatedFiles[Action]):
    """The actions of one query, in the store of its log. Operator's process; a start and tools read."""

    def __init__(self, store: RewritableStore, folder: str = ACTIONS) -> None:
        super().__init__(store, folder, kind="action", into=Action, ids="[0-9a-f]{8}")

    def put(self, action: Action) -> None:
        """Write down an action, or how it ended; drop what is too old. Durable. Raises ``UnavailableError``."""
        self._store.prepare((self._folder,))
        self._write(action.stamp, action.id, action)
