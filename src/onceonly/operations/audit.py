"""``onceonly audit``: what the log says was committed, beside what stands in the targets. Changes nothing.

By epoch where a target tells its epochs apart, as far as the log keeps details; in total where it counts rows. Values
are compared by the sum of the rows' checksums, where the rows can be read back as they were written.
"""

from __future__ import annotations

import enum
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from onceonly import background
from onceonly.errors import OnceonlyError, UnavailableError, typed
from onceonly.model import Guarantee, handles_of
from onceonly.operations import look, sinks, values
from onceonly.operations.states import OWED, QUIET, SETTLED
from onceonly.ports.standing import Held, Stands, Untold
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from onceonly.coordinator.coordinator import Participant
    from onceonly.model import Handle
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given
    from onceonly.operations.states import EpochState
    from onceonly.ports import QueryContext
    from onceonly.ports.standing import Standing

T = TypeVar("T")
_LOOKS: Final = 3
"""How often a target is counted whose query commits meanwhile."""


class Word(enum.StrEnum):
    """What came of one comparison."""

    SAME = "same"
    DIFFERS = "differs"
    NOT_TOLD = "not told"
    """The target cannot say, or did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One comparison: of an epoch, or of all (``epoch`` is None); ``rows`` is what the log says of it.

    What is ``told`` of one that is the same says what was not compared. ``answered`` is false where the target was
    asked, and gave no answer.
    """

    epoch: int | None
    sink: str
    word: Word
    rows: int
    told: tuple[str, ...] = ()
    answered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All comparisons of one checkpoint."""

    model: CheckpointModel
    findings: tuple[Finding, ...]

    @property
    def differs(self) -> bool:
        return any(each.word is Word.DIFFERS for each in self.findings)

    @property
    def answered(self) -> bool:
        return all(each.answered for each in self.findings)


def audit(
    checkpoint: Checkpoint,
    given: Given,
    *,
    within_s: float,
    counts: bool = False,
    told: Callable[[int, int, str], None] = lambda _done, _total, _beside: None,
) -> Audit:
    """Compare; with ``counts``, how many rows there are, and not their values. Any process, beside a run too.

    No answer of a target is waited for longer than ``within_s``. ``told`` hears before each question how many of all
    have been answered, and of what the next one is.

    Raises what building the sinks may, ``ConfigurationError`` where a target is another, ``LogError``,
    ``UnavailableError``.
    """
    model = look.newest(checkpoint, limit=None, history=True)
    findings: list[Finding] = []
    with sinks.participants(checkpoint, given) as made:
        targets = _Targets(checkpoint, within_s)
        for name, participant in made.items():
            targets.see(given, name, participant)
        newest: dict[str, int] = {}
        refused: dict[str, str] = {}
        columns = {name: () if counts else values.newest_columns(model, name) for name in made}
        asks = _asks(model, made, told)
        standing = {}
        for name in made:
            next(asks)
            standing[name] = _counted(targets, model, name, made[name], columns[name])
        for epoch in model.epochs:
            for name, handles in _settled(epoch).items():
                if name in made:
                    next(asks)
                    is_newest = newest.setdefault(name, epoch.view.epoch) == epoch.view.epoch
                    held: Held | str | None = refused.get(name)
                    if held is None:
                        asked = sinks.context_of(
                            model.query, name, made[name], values.of_epoch(epoch, name).columns
                        )
                        held = targets.ask(name, partial(_held, counts=counts), made[name], asked, handles)
                    if held is not None:
                        findings.append(_of_held(epoch, name, held))
                        continue
                    standings = _standings(targets, name, made[name], handles)
                    if isinstance(standings, str):
                        refused[name] = standings  # and it is not asked of the other epochs
                        findings.append(_of_held(epoch, name, standings))
                        continue
                    decided = values.of_epoch(epoch, name, columns[name])
                    findings.append(
                        _of_epoch(epoch, name, standings, standing[name], decided, is_newest=is_newest)
                    )
        findings.reverse()
        for name, participant in made.items():
            next(asks)
            findings += _in_all(checkpoint, targets, model, name, participant, counts=counts)
    return Audit(model=model, findings=tuple(findings))


def _asks(
    model: CheckpointModel, names: Iterable[str], told: Callable[[int, int, str], None]
) -> Iterator[None]:
    """Tell of each question before it is asked: of all epochs, of each, and of the rows in all."""
    names = list(names)
    of_epochs = [
        f"{name}, {epoch.view.name}" for epoch in model.epochs for name in _settled(epoch) if name in names
    ]
    questions = [*names, *of_epochs, *names]
    for done, beside in enumerate(questions):
        told(done, len(questions), beside)
        yield


class _Targets:
    """Asks the targets of one checkpoint. One that has not answered in time is not asked again. One thread."""

    def __init__(self, checkpoint: Checkpoint, within_s: float) -> None:
        self._checkpoint = checkpoint
        self._within_s = within_s
        self._silent: dict[str, str] = {}

    def ask(self, name: str, ask: Callable[..., T], *arguments: Any) -> T | str:  # noqa: ANN401  those of the question
        """Ask a target; return a sentence where it gives no answer."""
        if name in self._silent:
            return self._silent[name]
        try:
            return self._asked(name, ask, *arguments)
        except OnceonlyError as error:
            return f"{error.what} ({typed(error)})"

    def see(self, given: Given, name: str, participant: Participant) -> None:
        """See that a target is that of the log. Raises ``ConfigurationError`` where it is another."""
        try:
            self._asked(name, sinks.refuse_other_target, self._checkpoint, given, {name: participant})
        except UnavailableError as error:
            self._silent[name] = f"{error.what} ({typed(error)})"

    def _asked(self, name: str, ask: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401  as above
        asked = background.begin("onceonly-audit", partial(ask, *arguments))
        wait([asked], self._within_s)
        if not asked.done():
            told = f"the target did not answer within {self._within_s:g} s"
            next_step = "see to it and ask again, or give it longer by --timeout"
            self._silent[name] = f"{told} ({next_step})"
            raise UnavailableError(told, next_step=next_step)
        with sinks.asking(self._checkpoint, name):
            return asked.result()


def _settled(epoch: EpochModel) -> dict[str, tuple[Handle, ...]]:
    """Return the handles of each sink that an epoch has committed, as far as the log keeps them."""
    if epoch.view.state not in SETTLED or not epoch.chain:
        return {}
    last = epoch.chain[-1]
    return {} if last.guarantee is Guarantee.AT_MOST_ONCE else handles_of(last.output)


def _counted(
    targets: _Targets,
    model: CheckpointModel,
    name: str,
    participant: Participant,
    columns: tuple[tuple[str, str], ...],
) -> Mapping[int, Held] | Untold | str | None:
    """Return what stands of each epoch, or why the target does not tell; a sentence where it gave no answer."""
    links = {epoch.view.epoch: epoch.chain[-1].index for epoch in model.epochs if epoch.chain}
    asked = sinks.context_of(model.query, name, participant, columns)
    return targets.ask(name, participant.sink.held_by_epoch, asked, links)


def _held(
    participant: Participant,
    asked: QueryContext,
    handles: Sequence[Handle],
    counts: bool,  # noqa: FBT001  by place
) -> Held | None:
    """Ask what a target holds of an epoch: its rows, or how many they are."""
    read = None if counts else participant.sink.read_back(asked, handles)
    return participant.sink.held(handles) if read is None else read


def _finding(epoch: EpochModel, name: str, word: Word, *told: str, answered: bool = True) -> Finding:
    return Finding(
        epoch=epoch.view.epoch, sink=name, word=word, rows=_decided(epoch, name), told=told, answered=answered
    )


def _decided(epoch: EpochModel, name: str) -> int:
    return sum(vote.rows for vote in epoch.chain[-1].output if vote.sink == name)


def _of_held(epoch: EpochModel, name: str, held: Held | str) -> Finding:
    """Compare with what a target holds of the epoch's own transactions."""
    if isinstance(held, str):
        return _finding(epoch, name, Word.NOT_TOLD, held, answered=False)
    told, rows = [*held.wrong], _decided(epoch, name)
    if held.rows != rows:
        told.append(f"{n(rows, 'row was')} decided, and {held.rows} of them stand as they were written")
    if told:
        return _finding(epoch, name, Word.DIFFERS, *told)
    is_same, note = values.compared(held, values.of_epoch(epoch, name))
    return _finding(epoch, name, Word.SAME if is_same else Word.DIFFERS, *note)


def _standings(
    targets: _Targets, name: str, participant: Participant, handles: Sequence[Handle]
) -> list[tuple[Handle, Standing]] | str:
    """Return what a target has of each transaction, or a sentence why it does not tell."""
    found: list[tuple[Handle, Standing]] = []
    for handle in handles:
        answer = targets.ask(name, participant.sink.look_up, handle)
        if isinstance(answer, str):
            return answer
        found.append((handle, answer))
    return found


def _of_epoch(
    epoch: EpochModel,
    name: str,
    standings: Sequence[tuple[Handle, Standing]],
    counts: Mapping[int, Held] | Untold | str | None,
    decided: values.Decided,
    *,
    is_newest: bool,
) -> Finding:
    """Compare with what the books say of an epoch, and with the rows that stand of it."""
    finding, rows = partial(_finding, epoch, name), _decided(epoch, name)
    missing = [
        f"transaction {handle.transaction} was committed, and its target has it as {each.stands.value}: {each.told}"
        for handle, each in standings
        if each.stands in {Stands.GONE, Stands.OPEN}
    ]
    # Books forget what is old, so that of an older epoch their silence tells nothing.
    if missing:
        return finding(Word.DIFFERS if is_newest else Word.NOT_TOLD, *missing)
    if isinstance(counts, str):
        return finding(Word.NOT_TOLD, counts, answered=False)
    if counts is None or isinstance(counts, Untold):
        why = "" if counts is None else f": {counts.why}"
        return finding(Word.NOT_TOLD, f"the target does not tell the rows of an epoch{why}")
    held = counts.get(epoch.view.epoch, Held(rows=0))
    stands = held.rows
    written = f"{n(rows, 'row was')} decided, and {stands} stand that it has written last"
    if held.wrong:
        return finding(Word.DIFFERS, *held.wrong, *([written] if stands != rows else []))
    if stands == rows:
        is_same, note = values.compared(held, decided)
        return finding(Word.SAME if is_same else Word.DIFFERS, *note)
    # What is written by key may be replaced by what comes later, be it under way.
    if stands > rows or (is_newest and max(counts, default=-1) <= epoch.view.epoch):
        return finding(Word.DIFFERS, written)
    return finding(
        Word.NOT_TOLD, f"{written}: later epochs have replaced the others, or somebody has removed them"
    )


def _in_all(
    checkpoint: Checkpoint,
    targets: _Targets,
    model: CheckpointModel,
    name: str,
    participant: Participant,
    *,
    counts: bool,
) -> list[Finding]:
    """Compare the rows of all epochs that the log knows with all that the target has.

    A run goes on while the target is counted: a difference is only believed where nothing was committed meanwhile.
    """
    asked = sinks.context_of(model.query, name, participant)
    stays: set[str] | None = None
    for _ in range(_LOOKS):
        rows = _rows(model, name, SETTLED)

        def finding(word: Word, *told: str, rows: int = rows, answered: bool = True) -> list[Finding]:
            return [Finding(epoch=None, sink=name, word=word, rows=rows, told=told, answered=answered)]

        held = targets.ask(name, participant.sink.held_in_all, asked)
        is_same, told = True, tuple[str, ...]()
        if isinstance(held, Held) and (held.rows, held.wrong) == (rows, ()) and rows and not counts:
            held, is_same, told = _read_back(targets, model, name, participant, held)
        if isinstance(held, str):
            return finding(Word.NOT_TOLD, held, answered=False)
        if held is None:
            return []
        if isinstance(held, Untold):
            return finding(Word.NOT_TOLD, f"the target does not tell whether all rows stand: {held.why}")
        if held.replaced and held.rows < rows and not held.wrong:
            return finding(*_of_fewer(held, rows))
        if held.rows == rows and not held.wrong and is_same:
            return finding(Word.SAME, *told)
        now = look.newest(checkpoint, limit=None, history=True)
        stays = set(held.wrong) if stays is None else stays.intersection(held.wrong)
        if _stands(model) == _stands(now) and not now.in_doubt:
            more = "; others may have written there, too" if held.rows > rows else ""
            number = f"{n(rows, 'row was')} decided in all, and the target has {held.rows}{more}"
            return finding(Word.DIFFERS, *held.wrong, *told, *([number] if held.rows != rows else []))
        counted, most = held.rows, _rows(now, name, SETTLED | OWED)
        model = now
    number = f"{rows} to {n(most, 'row was')} decided while it was counted, and the target has {counted}"
    is_within = rows <= counted <= most and not stays
    return finding(Word.NOT_TOLD if is_within else Word.DIFFERS, *sorted(stays or ()), number)


def _of_fewer(held: Held, rows: int) -> tuple[Word, str]:
    """Say what fewer rows by key are than were decided: most may have been replaced, but not the last ones."""
    number = f"{n(rows, 'row was')} decided in all, and the target has {held.rows}"
    if held.rows == 0:
        return Word.DIFFERS, f"{number}, though nothing has replaced the rows that came last"
    return Word.NOT_TOLD, f"{number}: {held.replaced}"


def _read_back(
    targets: _Targets, model: CheckpointModel, name: str, participant: Participant, counted: Held
) -> tuple[Held | str, bool, tuple[str, ...]]:
    """Read as many rows as were decided; return what they are, whether they are those, and what to tell of it.

    ``counted`` says of rows by key that each was written once, or that others have written there.
    """
    decided = values.in_all(model, name)
    asked = sinks.context_of(model.query, name, participant, decided.columns)
    held = targets.ask(name, participant.sink.read_back, asked, ())
    if isinstance(held, str):
        return f"its rows are as many as were decided, and were not read: {held}", True, ()
    if held is None or held.rows != counted.rows:
        return held or counted, True, ()
    is_same, told = values.compared(held, decided)
    if not is_same and counted.replaced:
        told = (*told, "or others have written there, too, and as many rows were replaced")
    return held, is_same, told


def _rows(model: CheckpointModel, name: str, states: frozenset[EpochState]) -> int:
    """Return the rows that epochs in these states have for a sink."""
    return sum(each.view.sinks.get(name, (0, 0))[0] for each in model.epochs if each.view.state in states)


def _stands(model: CheckpointModel) -> int:
    """Return the newest epoch of which nothing is left to commit; -1 without any."""
    return next((each.view.epoch for each in model.epochs if each.view.state in QUIET), -1)
