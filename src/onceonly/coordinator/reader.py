"""What stands around an epoch, in the log and in Spark's checkpoint, for the protocol to resolve it. Driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from onceonly import background, protocol
from onceonly.model import LinkKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.model import Around, Inputs, Link, Passed, Receipt, Span
    from onceonly.ports import DecisionLog, InputFiles


class Reading(NamedTuple):
    """What was read around an epoch: of the log, of its offsets, and of those of the epoch before."""

    around: Around
    inputs: Inputs | None
    inputs_before: Inputs | None


class AskSpan(Protocol):
    """Asks Spark what it reads in the epoch that it runs; ``deciding`` tells that the epoch's tasks are over."""

    def __call__(self, *, deciding: bool) -> Span | None: ...


class Reader:
    """Carries out ``ReadChain`` commands. Driver.

    ``inputs`` are Spark's files, None where nobody can look at them; ``span`` asks Spark what it reads by its own
    memory, None where nobody can.
    """

    def __init__(self, log: DecisionLog, *, inputs: InputFiles | None, span: AskSpan | None) -> None:
        self._log = log
        self._inputs = inputs
        self._ask_span = span
        self._continues: str | None = None
        self._passed: Callable[[int], Passed | None] | None = None

    def begin(self, *, continues: str | None, passed: Callable[[int], Passed | None] | None) -> None:
        """Take in what a plan gives: the plan that it goes on from, and who says what Spark has noted."""
        self._continues, self._passed = continues, passed

    def look(self, epoch: int, *, owners: bool) -> Reading:
        """Read all that an epoch is resolved by: on a distant store in one round, where nobody else is at work.

        Between any two of these reads, and after the last, others may put links and write offsets. A link of theirs is
        found when ours is put under its number, and offsets are read anew right before the decision.
        """
        inputs = self._inputs
        around, now, before = background.at_once(
            self._log.abreast,
            lambda: self._log.around(epoch, owners=owners),
            lambda: inputs.read(epoch) if inputs is not None else None,
            lambda: inputs.read(epoch - 1, lists=False) if inputs is not None and epoch > 0 else None,
        )
        return Reading(around, now, before)

    def read(self, command: protocol.ReadChain, reading: Reading) -> protocol.ChainRead:
        """Tell what was read, with what Spark has noted where an epoch before lies open."""
        epoch, around = command.epoch, reading.around
        if around.receipt is not None:
            # Its writer may have died before it was durable; what follows relies on it.
            self._log.sync(around.receipt)
        last, last_receipt = around.last, around.last_receipt
        lies_open = None if around.links else protocol.open_epoch(epoch, around.newest, last, last_receipt)
        noted = self._passed(lies_open) if self._passed is not None and lies_open is not None else None
        if noted is not None and self._has_moved(noted.epoch, last, last_receipt):
            # Somebody put it, and Spark noted it, since it was read.
            return self.read(command, self.look(epoch, owners=command.owners))
        before = around.before
        inputs = reading.inputs
        if self._is_forgotten(epoch, around.links, inputs):
            # It is planned after the epoch before, which has to leave its state first; then they are compared.
            inputs = None
        return protocol.ChainRead(
            links=around.links,
            receipt=around.receipt,
            previous=before[-1] if before else None,
            previous_receipt=around.before_receipt,
            newest=around.newest,
            last=last,
            last_receipt=last_receipt,
            passed=noted,
            inputs=inputs,
            inputs_before=reading.inputs_before if before else None,
            # Where this process planned the epoch before, that one's end was compared when it was decided.
            span=None if before and before[-1].plan == self._continues else self.span(epoch),
            owners=around.owners,
        )

    def span(self, epoch: int, *, deciding: bool = False) -> Span | None:
        """Ask what Spark reads in an epoch; None where it runs another one, or nobody knows."""
        found = self._ask_span(deciding=deciding) if self._ask_span is not None else None
        return found if found is not None and found.epoch == epoch else None

    def _is_forgotten(self, epoch: int, links: tuple[Link, ...], inputs: Inputs | None) -> bool:
        """Say whether Spark knows nothing of an epoch that is decided, nor of a later one: its files are older ones.

        Were the barrier alone restored, Spark would begin with that epoch, though the one before has left it no state.
        """
        is_decided = bool(links) and links[-1].kind is not LinkKind.ABORT
        is_gone = inputs is not None and not inputs.files
        return is_decided and is_gone and self._passed is not None and self._passed(epoch) is None

    def _has_moved(self, epoch: int, last: Link | None, receipt: Receipt | None) -> bool:
        """Say whether an epoch is another one than it was when the newest one, or the one before it, was read."""
        known = (last, receipt) if last is not None and last.epoch == epoch else (None, None)
        chain = self._log.chain(epoch)
        return (chain[-1] if chain else None, self._log.receipt(epoch)) != known
