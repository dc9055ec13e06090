"""``savepoint restore`` and ``fork``: a checkpoint from a savepoint, and what becomes of the query that it is of.

*restore* is the same query at an earlier point: under the same id where nothing was decided after it, so that the
first start sweeps and fences whatever the former run has open. Every sink knows an epoch by its number and its query.
So where rows are to be written again (``--output again``), the job goes on under an id of its own, and what the former
one has open is swept here. *fork* is another query beside the first, which is left alone.
"""

from __future__ import annotations

import contextlib
import enum
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from onceonly import events
from onceonly.checkpoint.files import files_of
from onceonly.errors import ConfigurationError, InDoubtError, OnceonlyError
from onceonly.guards import known
from onceonly.log.actions import Action, ActionFiles, user
from onceonly.log.place import home_of, log_store
from onceonly.operations import disk, former, sources_left, withdrawing
from onceonly.operations.inputs_left import missing_inputs
from onceonly.savepoints import place, starting
from onceonly.savepoints.copying import unheard
from onceonly.savepoints.manifest import FILES
from onceonly.stores.opened import address_of, folder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from onceonly.log.actions import Withdrawn
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.former import After
    from onceonly.operations.given import Given
    from onceonly.savepoints.copying import Told
    from onceonly.savepoints.manifest import Savepoint
    from onceonly.stores.address import Address
    from onceonly.stores.port import RewritableStore


class Output(enum.StrEnum):
    """What is to become of the output of epochs after a savepoint's."""

    AGAIN = "again"
    """The job goes on under an id of its own, and writes it again."""
    WITHDRAW = "withdraw"
    """It is taken back, where the target can; the job goes on under its own id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What was made: from which savepoint, at which place, as which query; and in sentences what is to be known."""

    savepoint: Savepoint
    path: str
    query: str
    anew: bool
    told: list[str] = field(default_factory=list)


def restore(  # noqa: PLR0913  one parameter for each option
    source: str,
    to: str,
    given: Given,
    *,
    output: Output | None = None,
    sources: Mapping[str, str] | None = None,
    moved_to: str = "",
    force: bool = False,
    told: Told = unheard,
    agree: Callable[[Sequence[Withdrawn]], None] = lambda _: None,
) -> Made:
    """Make the checkpoint of a query that goes on after a savepoint's epoch. Operator's process; idempotent.

    ``sources`` are options that say how the query's sources are reached. ``moved_to`` is where its checkpoint is, if it
    was moved by hand since. ``force`` goes on beside a run that lives, which the claim ends; where a target of the
    former run cannot be asked; and, where output is written again, though the former place cannot be, either. ``agree``
    is told what is to be taken back, if anything is, before anything is touched, and raises where it is not to be.

    Raises ``ConfigurationError`` where the place is not empty, a run is alive, a source has not what is read again, or
    output was decided after the savepoint and nobody says what is to become of it; ``InDoubtError``, ``LogError``,
    ``UnavailableError``.
    """
    address, savepoint = place.the_one(source)
    if (whole := _finished(savepoint, to, anew={False, output is Output.AGAIN})) is not None:
        return whole
    starting.refuse_if_taken(to)
    given_up = force and output is Output.AGAIN
    lives, is_there = _lives(savepoint, address, to, now=moved_to, given_up=given_up)
    newest = lives[-1] if is_there else None
    is_withdrawn = output is Output.WITHDRAW
    with _staying(newest, to):
        after = _after(savepoint, lives, output, is_there=is_there)
        if newest is not None:
            former.refuse_if_alive(newest, force=force)
            _refuse_missing(newest, savepoint)
        to_go = withdrawing.refuse_unless_taken_back(after, savepoint, given) if is_withdrawn else ()
        unasked = _refuse_gone(address, savepoint, sources or {}, for_good=bool(after) and is_withdrawn)
    agree(to_go)
    anew = output is Output.AGAIN and (bool(after) or not is_there)
    made = Made(
        savepoint=savepoint, path=to, query="", anew=anew,
        told=unasked if is_there else [*unasked, _untold(savepoint, lives)],
    )  # fmt: skip

    def fence() -> None:
        require_alone()
        made.told.extend(_bring(savepoint, address, begun, sources))
        if newest is None:
            return
        # First, so that nobody begins to run there: who has begun is seen alive, or finds the claim.
        former.leave(newest, to)
        try:
            former.refuse_if_alive(newest, force=force)
            claim = former.claim(newest)
            # It may have decided more meanwhile.
            now = _after(savepoint, lives, output if after else None, is_there=is_there)
        except BaseException:  # an interrupt, too
            former.stay(newest, to)
            raise
        _end_open(newest, savepoint, given, made, is_taken_back=bool(now) and not begun.anew, force=force)
        record = replace(_action("restore", savepoint, begun.query, to), plan=claim)
        logs = [newest.store]
        if not begun.anew and now:
            logs += [each.store for each, _ in now if each.path != newest.path]
            record = _take_back(record, now, savepoint, given, logs, require_alone)
            made.told.extend(f"withdrawn {each.sentence}" for each in record.withdrawn)
        # Another command, to which this place looks like one that was broken off, may have gone on elsewhere.
        former.leave(newest, to)
        _put(record, logs)
        _put(replace(begins, withdrawn=record.withdrawn), [log_store(to)])
        require_alone()

    with starting.begin(savepoint, to, anew=anew) as (begun, require_alone):
        made = replace(made, query=begun.query)
        begins = _action("restore", savepoint, begun.query, to)
        _put(begins, [log_store(to)])
        starting.build(address, savepoint, to, begun, refused=False, before_id=fence, told=told)
    made.told.extend(_owner(address, to))
    if begun.anew:
        made.told.extend(f"{each.sentence}: {each.again}" for _, found in after for each in found)
    return made


def fork(
    source: str,
    to: str,
    *,
    same_targets: bool = False,
    sources: Mapping[str, str] | None = None,
    told: Told = unheard,
) -> Made:
    """Make the checkpoint of another query that begins after a savepoint's epoch. Operator's process; idempotent.

    The query that the savepoint is of is not touched. With ``same_targets`` the fork may write to its targets, too,
    unless rows up to the savepoint's epoch were taken back from them: they would stay away. ``sources`` as for
    ``restore``, which raises the same where the place is not empty, the savepoint damaged, or what the fork is to read
    is gone.
    """
    address, savepoint = place.the_one(source)
    if (whole := _finished(savepoint, to, anew={True})) is not None:
        return whole
    twice = _written_twice(savepoint, address, to) if same_targets else []
    unasked = _refuse_gone(address, savepoint, sources or {})
    brought: list[str] = []

    def bring() -> None:
        require_alone()
        brought.extend(_bring(savepoint, address, begun, sources))

    with starting.begin(savepoint, to, anew=True) as (begun, require_alone):
        _put(_action("fork", savepoint, begun.query, to), [log_store(to)])
        starting.build(address, savepoint, to, begun, refused=not same_targets, before_id=bring, told=told)
    said = [*twice, *unasked, *brought, *_owner(address, to)]
    return Made(savepoint=savepoint, path=to, query=begun.query, anew=True, told=said)


@contextlib.contextmanager
def _staying(newest: Checkpoint | None, to: str) -> Iterator[None]:
    """Let a query stay at home where it is, if it is refused: a command that was killed may have said otherwise."""
    try:
        yield
    except OnceonlyError:
        if newest is not None:
            with contextlib.suppress(OnceonlyError):
                former.stay(newest, to)
        raise


def _take_back(
    record: Action,
    now: After,
    savepoint: Savepoint,
    given: Given,
    logs: Sequence[RewritableStore],
    require_alone: Callable[[], None],
) -> Action:
    """Take back what was decided; before any target is touched, it is written down what is to go."""
    planned = withdrawing.refuse_unless_taken_back(now, savepoint, given)
    _put(replace(record, after="", withdrawn=planned), logs)
    require_alone()
    return replace(record, withdrawn=withdrawing.withdraw(now, savepoint, given))


def _lives(
    savepoint: Savepoint, place: Address, to: str, *, now: str = "", given_up: bool
) -> tuple[list[Checkpoint], bool]:
    """Return where the query of a savepoint was and is, as ``former.trail`` does; refuse what was taken back since."""
    lives, is_there = former.trail(savepoint, to, now=now, given_up=given_up)
    if now and not lives:
        raise ConfigurationError(
            f"{now} is not the checkpoint of query {savepoint.query} that the savepoint is of",
            next_step="name the place that it was moved to, as onceonly checkpoints list shows it",
        )
    former.refuse_undone(lives, savepoint, starting.decided_of(savepoint, place))
    return lives, is_there


def _written_twice(savepoint: Savepoint, at: Address, to: str) -> list[str]:
    """Say what stands in the targets that a fork shares and writes as well; refuse what was taken back from them."""
    lives, is_there = _lives(savepoint, at, to, given_up=True)
    told = [] if is_there else [_untold(savepoint, lives)]
    with contextlib.suppress(InDoubtError):  # the original may run, and decides more all the time
        after = _after(savepoint, lives, Output.AGAIN, is_there=is_there)
        told += [
            f"the fork writes again {each.sentence}: {each.again}" for _, found in after for each in found
        ]
    return told


def _untold(savepoint: Savepoint, lives: Sequence[Checkpoint]) -> str:
    return (
        f"nothing is left of the query at {_home(savepoint, lives)}, or it cannot be asked, so nobody could tell what "
        f"it has decided since chk-{savepoint.epoch}, nor keep it from going on there"
    )


def _bring(
    savepoint: Savepoint, place: Address, begun: starting.Beginning, sources: Mapping[str, str] | None
) -> list[str]:
    """Put the ranges that the savepoint carries where the query looks for them; say where."""
    return starting.bring(savepoint, place, begun, sources_left.ranges(savepoint.barrier, sources or {}))


def _action(command: str, savepoint: Savepoint, query: str, to: str) -> Action:
    """Return the record of a checkpoint that is made."""
    return Action(
        command=command, epoch=savepoint.epoch, who=user(), stamp=events.stamp(),
        before=f"savepoint {savepoint.name} of query {savepoint.query}",
        after=f"query {query} at home at {home_of(to)}",
    )  # fmt: skip


def _put(action: Action, stores: Iterable[RewritableStore]) -> None:
    """Leave a record in the log of a checkpoint that is made, or in those of where its query was before."""
    for store in stores:
        ActionFiles(store).put(action)


def _owner(at: Address, to: str) -> list[str]:
    """Say so where the checkpoint belongs to another user than the savepoint's files: its job could not write there."""
    source, target = folder_of(at), folder_of(address_of(to))
    if source is None or target is None:
        return []
    theirs, ours = disk.owner(source / FILES / "metadata"), disk.owner(target)
    if theirs is None or ours is None or theirs == ours:
        return []
    job = disk.user_of(theirs)
    typed = f"chown -R {shlex.quote(job)} {shlex.quote(str(target))}"
    said = f"{target} belongs to {disk.user_of(ours)}, and the savepoint's files to {job}"
    return [f"{said}: if the job runs as {job}, first: {typed}"]


def _finished(savepoint: Savepoint, to: str, *, anew: Collection[bool]) -> Made | None:
    """Return what was made before, by a command that was killed in its last step."""
    begun = starting.finished(savepoint, to, anew=anew)
    if begun is None:
        return None
    return Made(savepoint=savepoint, path=to, query=begun.query, anew=begun.anew)


def _after(
    savepoint: Savepoint, lives: Sequence[Checkpoint], output: Output | None, *, is_there: bool
) -> After:
    """Return what was decided after a savepoint, and where. Raises where nobody has said what is to become of it."""
    # A life under the same log goes on with what stood in it before.
    newest = {each.log.token: each for each in lives}
    looked = [(each, former.beyond(each, former.since(each, savepoint))) for each in newest.values()]
    found = [(each, some) for each, some in looked if some]
    if output is Output.AGAIN:
        return found
    if not is_there:
        raise ConfigurationError(
            f"there is no decision log of query {savepoint.query} where it was at home ({_home(savepoint, lives)}) any "
            "more, so "
            f"nobody can tell what it has decided since chk-{savepoint.epoch}, and written to its targets",
            next_step=f"{_to_be_found(lives)}; or, if it is gone, see to its targets, and add --output again: the job "
            "goes on under an id of its own, and writes the rows of epochs after the savepoint again",
        )
    if found and output is None:
        everything = [each for _, some in found for each in some]
        raise ConfigurationError(
            f"after chk-{savepoint.epoch}, output was decided that stands in targets: {former.sentences(everything)}",
            next_step="take a newer savepoint; or add --output again, which writes it again: "
            + "; ".join(f"sink {each.sink}: {each.again}" for each in everything)
            + "; or --output withdraw, which takes it back, of files, Delta and Iceberg",
        )
    return found


def _to_be_found(lives: Sequence[Checkpoint]) -> str:
    """Say what lets the query's log be found."""
    if lives and not lives[-1].was_restored:
        path = lives[-1].path
        return f"if it was moved back to {path}, accept that: onceonly checkpoints accept-move {shlex.quote(path)}"
    return "if its checkpoint was moved, say where it is now with --moved-to CHECKPOINT, or bring it back"


def _home(savepoint: Savepoint, lives: Sequence[Checkpoint]) -> str:
    """Return where the query of a savepoint was at home last."""
    return lives[-1].home if lives else savepoint.home


def _refuse_missing(newest: Checkpoint, savepoint: Savepoint) -> None:
    missing = missing_inputs(newest, savepoint.barrier)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ConfigurationError(
            f"the query has read files after chk-{savepoint.epoch} that are there no more: {missing[0]}{more}: their "
            "rows would be lost",
            next_step="put them back where they were, or take a newer savepoint",
        )


def _refuse_gone(
    at: Address, savepoint: Savepoint, sources: Mapping[str, str], *, for_good: bool = False
) -> list[str]:
    """See that sources have what is read again, which are those that the savepoint knew; say which nobody could ask."""
    noted = known.read(files_of(at.below(FILES.rstrip("/")).location))
    topics = noted.topics if noted is not None else {}
    return sources_left.refuse_missing(
        savepoint.barrier, sources, topics, epoch=savepoint.epoch, for_good=for_good,
        ranges=starting.ranges_of(savepoint, at),
    )  # fmt: skip


def _end_open(
    newest: Checkpoint, savepoint: Savepoint, given: Given, made: Made, *, is_taken_back: bool, force: bool
) -> None:
    """End what the former run has open, where the next start does not.

    That ends what is of its epoch, and takes what is of a later one for a sign of an older checkpoint.
    """
    since = former.since(newest, savepoint)
    if made.query != newest.query or (not is_taken_back and former.has_gone_on(newest, savepoint)):
        _sweep(newest, given, made, since, force=force)
    elif is_taken_back:
        former.sweep(newest, given, [], since=since)


def _sweep(original: Checkpoint, given: Given, made: Made, since: int, *, force: bool) -> None:
    """Abort what the former query has open. With ``force``, what cannot be reached is told, and left to its time-out.

    Without, it raises: no start and no other command ends what is open under the former id.
    """
    aborted: list[str] = []
    try:
        former.sweep(original, given, aborted, since=since)
    except OnceonlyError as error:
        left = error
        try:
            # It may be a sink alone that it had for a while.
            former.sweep(original, given, aborted)
        except OnceonlyError as newest:
            if not force:
                raise type(newest)(
                    f"what the former query {original.query} has open in its targets could not be ended: {newest.what}",
                    next_step=f"{newest.next_step}; then type this again as it was typed; or, if that target is gone "
                    "for good, add --force: what is open there is left to its time-out",
                ) from error
            left = newest
        made.told.append(
            f"what the former query {original.query} has open in its targets could not be ended: {left.what} "
            f"({left.next_step}); readers may wait for it until its time-out"
        )
    made.told.extend(f"aborted and fenced: {name} of the former query" for name in aborted)
