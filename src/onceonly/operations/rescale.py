"""``onceonly rescale``: what is looked at before Spark deals a query's state to other partitions, and what is recorded.

Spark appends an epoch without rows for it, which no sink sees; the log notes it as skipped at the next start.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onceonly import events, offsets
from onceonly.errors import ConfigurationError
from onceonly.log.actions import Action, ActionFiles, user
from onceonly.operations import look
from onceonly.operations.settle import refuse_if_alive, refuse_if_unfit
from onceonly.operations.states import EpochState
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.operations.find import Checkpoint

COMMAND = "rescale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaling:
    """What is to be done: ``epoch`` is the newest that Spark has noted, ``settings`` what it has of the session."""

    epoch: int
    partitions: int | None
    settings: Mapping[str, str]


def prepare(checkpoint: Checkpoint, partitions: int, *, force: bool) -> Rescaling:
    """See that a checkpoint can be rescaled, as far as its log says. Operator's process; only looks.

    Raises ``ConfigurationError`` where a run is alive, an epoch is not whole or there is nothing to do,
    ``CheckpointMovedError``, ``LogError``, ``UnavailableError``.
    """
    refuse_if_alive(checkpoint, force=force)
    refuse_if_unfit(checkpoint)
    owed = look.unsettled(checkpoint).in_doubt
    if owed:
        epoch, _ = owed[0]
        raise ConfigurationError(
            f"{epoch.view.name} of query {checkpoint.query} is {epoch.view.state.value}: {len(owed)} of its "
            "transactions are not known to be committed",
            next_step="start the query and end it by onceonly stop"
            + (
                f", or: onceonly transactions commit {epoch.view.name} {shlex.quote(checkpoint.path)}"
                if epoch.view.state is EpochState.DECIDED
                else ""
            ),
        )
    begun = checkpoint.told.epoch()
    if (
        begun in checkpoint.epochs
        and look.epoch(checkpoint, begun, sizes=False).epoch.view.state is EpochState.COMMITTED
    ):
        raise ConfigurationError(
            f"chk-{begun} of query {checkpoint.query} is committed, and Spark has not noted it, as after a kill: Spark "
            "rescales only a query whose last epoch it has noted",
            next_step="start the query, end it by onceonly stop, and try again",
        )
    # One that was broken off has left the barrier of an epoch that Spark has not noted.
    newest = max(checkpoint.told.committed(), default=checkpoint.told.epoch())
    text = checkpoint.told.files.text(f"offsets/{newest}") or ""
    noted = {name: value for name, value in offsets.settings(text).items() if name != offsets.PARTITIONS}
    found = Rescaling(epoch=newest, partitions=offsets.partitions(text), settings=noted)
    if found.partitions == partitions:
        raise ConfigurationError(
            f"the state of query {checkpoint.query} has {n(partitions, 'partition')} already",
            next_step="nothing: start the query",
        )
    if newest not in checkpoint.epochs:
        raise ConfigurationError(
            f"chk-{newest} of query {checkpoint.query} is noted by Spark and not in the log, as after a rescale that "
            "no start has followed yet",
            next_step="start the query once, end it by onceonly stop, and try again",
        )
    return found


def begin(checkpoint: Checkpoint, found: Rescaling, *, because: str) -> Action:
    """Write down that it is begun. Raises ``UnavailableError``."""
    before = f"{found.partitions or 'unknown'} partitions of state"
    action = Action(
        command=COMMAND, epoch=found.epoch, who=user(), stamp=events.stamp(), because=because, before=before
    )
    ActionFiles(checkpoint.store).put(action)
    return action


def end(checkpoint: Checkpoint, action: Action, after: str) -> None:
    """Write down how it ended. Raises ``UnavailableError``."""
    ActionFiles(checkpoint.store).put(replace(action, after=after))
