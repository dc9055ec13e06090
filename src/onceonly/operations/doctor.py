"""``onceonly doctor``: what is wrong with a checkpoint, its targets and this machine, before anything is done about it.

Reads only. Each probe has a time-out, and answers with a sentence and a next step; what cannot be told is no failure.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceonly import offsets
from onceonly.durable.access import require_reachable
from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly.log import files as log_files
from onceonly.log import identity, lag_state
from onceonly.log.actions import TIDIES
from onceonly.model import LinkKind, seconds_of
from onceonly.operations import (
    disk,
    doctor_kafka,
    doctor_session,
    doctor_sources,
    doctor_targets,
    doctor_times,
    look,
    sinks,
)
from onceonly.operations.find import find, single
from onceonly.operations.move import COMMAND as MOVE
from onceonly.operations.probes import Health, Sick, Unasked, asked
from onceonly.operations.rescale import COMMAND as RESCALE
from onceonly.ports.standing import Stands
from onceonly.stores.opened import address_of, open_store
from onceonly.stores.rights import require_rights
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given
    from onceonly.operations.probes import Finding

_ROOT: Final = 0
_OWNER_WRITES: Final = 0o200
_OTHERS_WRITE: Final = 0o022
_WRITTEN: Final = (
    "offsets", "commits", identity.FOLDER, *(f"{identity.FOLDER}/{name}" for name in log_files.FOLDERS)
)  # fmt: skip
"""The folders of a checkpoint in which its job makes files."""
_ANSWER: Final = ("targets", "answer")
_THEN_UNASKED: Final = {
    ("log", "whole"): frozenset(
        {"log", "spark", "clocks", "ids", "source", "transactions", "targets", "timeouts"}
    ),
    _ANSWER: frozenset({"targets", "timeouts"}),
    ("source", "has what follows"): frozenset({"source"}),
}


@dataclass(slots=True)
class _Opening:
    """The checkpoint at an address, once it is opened; ``wrong`` says that the address leads to none, or to several."""

    location: str
    checkpoint: Checkpoint | None = None
    wrong: ConfigurationError | None = None

    def open(self) -> None:
        try:
            found = find(self.location)
            self.checkpoint = single(found, self.location) if found.checkpoints else None
        except ConfigurationError as error:
            self.wrong = error
            raise
        if self.checkpoint is None:
            raise found.problems[0].error


def examine(
    location: str,
    given: Given,
    *,
    sources: Mapping[str, str] | None = None,
    only: Collection[str] = (),
    within_s: float,
) -> list[Finding]:
    """Probe one checkpoint. Any process, beside a run too; changes nothing, and never raises for what is sick.

    ``sources`` are options that say how the query's sources are reached.
    Raises ``ConfigurationError`` where the address leads to no checkpoint, or to several.
    """
    found: list[Finding] = []

    def ask(category: str, probe: str, work: Callable[[], None]) -> bool:
        if only and category not in only:
            return True
        finding = asked(category, probe, work, within_s)
        found.append(finding)
        # A target that nobody can ask so is asked what it can be.
        is_silent = (category, probe) == _ANSWER and finding.health is Health.UNASKED
        return is_silent or finding.health is Health.WELL

    here = _Opening(location)
    ask("checkpoint", "opens", here.open)
    if here.checkpoint is None and here.wrong is None:
        # Nobody can look further; where only another category was asked for, it is opened all the same.
        with contextlib.suppress(OnceonlyError):
            here.open()
    if here.wrong is not None:
        raise here.wrong
    checkpoint = here.checkpoint
    if checkpoint is None:
        return found
    unasked: set[str] = set()
    for category, probe, work in _probes(checkpoint, given, sources or {}, within_s, unasked):
        # What stands in a log that cannot be read is asked of nobody, nor is a target that does not answer.
        if category not in unasked and not ask(category, probe, work):
            unasked |= _THEN_UNASKED.get((category, probe), frozenset())
    return found


def _probes(
    checkpoint: Checkpoint,
    given: Given,
    sources: Mapping[str, str],
    within_s: float,
    unasked: Collection[str],
) -> Iterator[tuple[str, str, Callable[[], None]]]:
    yield "checkpoint", "at home", checkpoint.require_home
    yield "log", "whole", lambda: _whole(checkpoint)
    yield "log", "actions", lambda: _actions(checkpoint)
    yield "spark", "offsets", lambda: _offsets(checkpoint)
    yield "spark", "follows the log", lambda: _follows(checkpoint)
    yield "disk", "room", lambda: _room(checkpoint)
    yield "disk", "permissions", lambda: _permissions(checkpoint)
    yield "clocks", "stamps", lambda: doctor_times.stamps(checkpoint)
    yield "lag", "is shown", lambda: _lag(checkpoint)
    yield "versions", "Spark", doctor_session.spark
    if doctor_session.reads_kafka(checkpoint):
        yield "jars", "connector", doctor_session.connector
    yield "ids", "one driver decides", lambda: doctor_times.one_driver(checkpoint)
    yield "source", "has what follows", lambda: doctor_sources.kept(checkpoint, given, sources)
    yield "source", "keeps it until a start", lambda: doctor_sources.has_time(checkpoint, given, sources)
    yield "transactions", "settled", lambda: _settled(checkpoint, given, within_s)
    yield "targets", "answer", lambda: doctor_targets.answer(checkpoint, given)
    yield "targets", "hold what was committed", lambda: doctor_targets.hold_it(checkpoint, given)
    yield "targets", "hold nothing else", lambda: doctor_targets.not_ahead(checkpoint, given)
    yield "targets", "nothing is left open", lambda: doctor_targets.left_open(checkpoint, given)
    yield "targets", "give the rights", lambda: doctor_targets.rights(checkpoint, given)
    if "targets" not in unasked and doctor_kafka.writes(checkpoint):
        yield "timeouts", "of transactions", lambda: doctor_kafka.transactions(checkpoint, given)
        yield "timeouts", "of markers", lambda: doctor_kafka.markers(checkpoint, given)


# --- probes -------------------------------------------------------------------------------------------------


def _whole(checkpoint: Checkpoint) -> None:
    """Read every link and receipt that is not folded, and every line of history. Raises ``LogError``."""
    checkpoint.log.verify(checkpoint.log.check())
    for _ in checkpoint.log.history():
        pass


def _actions(checkpoint: Checkpoint) -> None:
    model, path = look.unsettled(checkpoint), shlex.quote(checkpoint.path)
    for action in [each for each in model.actions if each.command not in TIDIES][:1]:
        # A start does what these commands do; where one has begun since, nothing of them is left. State is dealt out
        # only by the command: then a later epoch has been noted.
        moot = any(seconds_of(run.began) > seconds_of(action.stamp) for run in model.runs)
        if action.command == RESCALE:
            moot = moot and max(checkpoint.told.committed(), default=-1) > action.epoch
        moot = moot or (action.command == MOVE and not model.is_moved)
        if action.after or model.run.alive or moot:
            return
        again = {
            RESCALE: f"onceonly rescale {path} --partitions N --savepoint PLACE",
            MOVE: f"onceonly checkpoints accept-move {path}",
            "restore": "onceonly savepoint restore as it was typed",
            "divert": f"start the query, or onceonly transactions divert what onceonly transactions list {path} shows",
        }
        raise Sick(
            action.sentence,
            again.get(action.command, f"onceonly transactions {action.command} chk-{action.epoch} {path}"),
        )


def _offsets(checkpoint: Checkpoint) -> None:
    """See that Spark's newest barrier can be read. One that was torn is taken away by the next start."""
    numbers = checkpoint.told.files.numbers("offsets")
    for number in sorted(numbers)[-2:]:
        text = checkpoint.told.files.text(f"offsets/{number}")
        if _is_torn(text or ""):
            raise Sick(
                f"{checkpoint.told.files.where(f'offsets/{number}')} is torn: power was lost while Spark wrote it",
                "start the query: it takes away what is torn where nothing decided stands on it, and says so",
            )


def _is_torn(text: str) -> bool:
    lines = text.splitlines()
    return not lines or not lines[0].startswith("v") or len(lines) < 3  # noqa: PLR2004  version, metadata, a source


def _follows(checkpoint: Checkpoint) -> None:
    """See that what was decided is what Spark's files say, and that neither is of another age."""
    known = checkpoint.log.epochs()
    committed = [number for number in checkpoint.told.committed() if known and number > known[-1]]
    if committed:
        raise Sick(
            f"Spark has noted chk-{max(committed)}, and the log ends at chk-{known[-1]}: epochs were written without "
            "onceonly, or an older log was restored",
            "restore the whole checkpoint folder; or see to those epochs and start once with onceonly.adopt=true",
        )
    for number in list(reversed(known))[:2]:
        chain = checkpoint.log.chain(number)
        text = checkpoint.told.files.text(f"offsets/{number}")
        if (
            not chain
            or chain[-1].kind is not LinkKind.COMMIT
            or not chain[-1].barrier
            or _is_torn(text or "")
        ):
            continue
        if not offsets.is_same(chain[-1].barrier, offsets.barrier(text or "")):
            raise Sick(
                f"{checkpoint.told.files.where(f'offsets/{number}')} says other offsets than chk-{number} was decided "
                "at",
                "start the query: it writes the file as it was decided; see who has changed it",
            )


def _room(checkpoint: Checkpoint) -> None:
    if checkpoint.folder is None:
        return
    free = shutil.disk_usage(checkpoint.folder).free
    if free < disk.FREE_BYTES_MIN:
        raise Sick(
            f"the disk of {checkpoint.folder} has {free >> 20} MiB left",
            "make room; details of fewer epochs stay with a lower onceonly.history",
        )


def _permissions(checkpoint: Checkpoint) -> None:
    """See that the job's user may write where the job does: a command of another user may have made a folder there."""
    if checkpoint.folder is None:
        if unseen := _unseen_on_store(checkpoint):
            raise Unasked(unseen, doctor_targets.TRIED)
        return
    user = doctor_targets.jobs_user(checkpoint)
    if user is not None:
        require_reachable(checkpoint.folder / "offsets", user=user, who="the checkpoint")
    for name in _WRITTEN:
        folder = checkpoint.folder / name.rstrip("/")
        if not folder.exists():
            continue
        found = folder.stat()
        if not found.st_mode & _OWNER_WRITES:
            raise Sick(f"{folder} may not be written by its owner", f"chmod u+w {shlex.quote(str(folder))}")
        if user not in {None, _ROOT, found.st_uid} and not found.st_mode & _OTHERS_WRITE:
            job = disk.user_of(user)
            raise Sick(
                f"{folder} belongs to {disk.user_of(found.st_uid)}, and the job, which runs as {job}, may not write "
                "there",
                f"chown -R {shlex.quote(job)} {shlex.quote(str(checkpoint.folder))}, and run commands as that user",
            )


def _unseen_on_store(checkpoint: Checkpoint) -> str:
    """See that the job may write on a store; return why that cannot be seen there. Raises a typed error."""
    from onceonly.stores.hdfs import HdfsStore

    address = address_of(checkpoint.location, what="the checkpoint")
    store = open_store(address)
    if not isinstance(store, HdfsStore):
        return require_rights(address, [f"{name.rstrip('/')}/" for name in _WRITTEN])
    newest = max(checkpoint.told.files.numbers("offsets"), default="")
    return store.require_rights([name.rstrip("/") for name in _WRITTEN], of=f"offsets/{newest}".rstrip("/"))


def _lag(checkpoint: Checkpoint) -> None:
    """See that the group that shows the query's positions was kept when its driver looked last."""
    state = lag_state.read(checkpoint.store)
    if state is not None and state.told:
        raise Sick(
            f"the group {state.group} has not shown the query's lag since {state.since}: {state.told}",
            state.next_step,
        )


def _settled(checkpoint: Checkpoint, given: Given, within_s: float) -> None:
    """See that nothing decided waits for its commit with the job down, and that no target has lost it."""
    model = look.unsettled(checkpoint)
    asked = [
        (handle.vote.sink, handle.vote.handle)
        for _, handle in model.in_doubt
        if handle.vote.handle is not None
    ]
    told = sinks.look_up(checkpoint, given, asked, within_s=within_s) if asked else {}
    for (sink, name), standing in told.items():
        if standing.stands is Stands.GONE and not standing.hindered:
            raise Sick(
                f"transaction {name} of the sink {sink} is decided, and its target has lost it: {standing.told}",
                "start the query: it writes the lost rows again, once; see what ended it (a time-out, somebody's hand)",
            )
        if standing.hindered and not model.run.alive:
            raise Sick(
                f"transaction {name} of the sink {sink} is decided, and cannot be committed: {standing.hindered}",
                "bring back what was removed, or have its rows written again by the next start: onceonly transactions "
                f"abort {shlex.quote(name)} {shlex.quote(checkpoint.path)} --against-decision --because TEXT",
            )
    if model.in_doubt and not model.run.alive:
        epoch, handle = model.in_doubt[0]
        raise Sick(
            f"{epoch.view.name} is decided, {n(len(model.in_doubt), 'transaction is')} not known to be committed, and "
            "no run is alive",
            f"start the query, or onceonly transactions explain {shlex.quote(handle.transaction)} "
            f"{shlex.quote(checkpoint.path)}",
        )
