"""``onceonly stop``: a run ends in order, after the epoch in flight, whichever machine it is on.

The request is a small file beside the log, which the run's driver looks for; what became of it is read in the words
that the run leaves of itself, and in the log. Nothing here reaches the driver, and nothing waits for it for ever.
"""

from __future__ import annotations

import enum
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceonly import events
from onceonly.log.actions import OPERATOR, user
from onceonly.log.runs import Run, RunFiles
from onceonly.log.stops import Stop, StopFiles
from onceonly.operations import look, sinks
from onceonly.operations.heard import NOTED_S, leaves_word
from onceonly.operations.states import SETTLED, EpochState, is_closed, is_quiet

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.operations.checkpoint_model import EpochModel
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.states import EpochView
    from onceonly.ports import Clock

_POLL_S: Final = 0.5
_POLL_STORED_S: Final = 2.0
_UNTOLD_S: Final = 30.0
"""How long a run that decides epochs, and has left no word of itself, is waited for until it has heard.

On Spark Connect none leaves word before its end: its client hears within seconds, and without that its next epoch does.
"""
_RUNS_MAX: Final = 5


class Ended(enum.StrEnum):
    """What became of a request."""

    STOPPED = "stopped"
    """The run has ended in order since it was asked to."""
    DOWN = "down"
    """No run was alive that could be asked."""
    DIED = "died"
    """The run ended without a word, as one does that is killed."""
    UNHEARD = "unheard"
    """In the time given, no driver has seen the request; or nobody can tell whether there is one that could."""
    RUNNING = "running"
    """The driver has seen it, and the epoch in flight has not ended in the time given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a request at ``path``; ``newest`` is the newest epoch, None before the first.

    ``who`` says who works on the checkpoint, empty where nobody does. ``before_plan`` says that the run's planner has
    heard of each request before it began an epoch, as on Spark Connect: Spark has then set a barrier at most.
    """

    ended: Ended
    path: str
    stop: Stop | None = None
    run: Run | None = None
    newest: EpochModel | None = None
    who: str = ""
    before_plan: bool = False

    @property
    def is_down(self) -> bool:
        return self.ended in {Ended.STOPPED, Ended.DOWN} or (self.ended is Ended.DIED and not self.who)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left of the newest epoch for a start to do."""
        return self.newest is None or is_quiet(self.newest.view) or self._is_unbegun(self.newest.view)

    def _is_unbegun(self, view: EpochView) -> bool:
        return self.ended is Ended.STOPPED and self.before_plan and not view.links

    @property
    def sentence(self) -> str:
        """Say what happened, or what stands in the way, without its full stop."""
        run = f"run {self.run.run}" if self.run else "a run"
        view = self.newest.view if self.newest else None
        where = "there was no epoch yet"
        if view is not None:
            is_unbegun = is_closed(view) or self._is_unbegun(view)
            where = f"{view.name} has not begun" if is_unbegun else f"{view.name} is {view.state.value}"
        another = f"; another has begun since: {self.who}" if self.who else ""
        return {
            Ended.STOPPED: f"{run} has ended; {where}",
            Ended.DOWN: f"no driver is alive here, so there was nothing to stop; {where}",
            Ended.DIED: f"{run} ended without a word, as one that is killed; {where}{another}",
            Ended.UNHEARD: f"nobody has heard the request yet: {self.who or 'no driver has left word of its run'}",
            Ended.RUNNING: f"{run} has heard it, and goes on with the epoch in flight: {where}",
        }[self.ended]

    @property
    def next_step(self) -> str:
        """Say what there is to do; empty where there is nothing."""
        if self.ended is Ended.UNHEARD:
            return (
                "ask again with a longer --wait if the driver is starting or busy; on Spark Connect, where the client "
                "is gone, and without onceonly.register, only the next epoch hears: call query.stop() in its program"
            )
        if self.ended is Ended.RUNNING:
            return "ask again: the request stands, and the run ends when its epoch does; stopping its process is safe"
        if not self.is_settled and self.newest is not None:
            state = self.newest.view.state
            if state is EpochState.REPAIRING:
                return "start the query: no command writes again what was lost"
            verb = "commit" if state is EpochState.DECIDED else "abort"
            return f"start the query, or: onceonly transactions {verb} {self.newest.view.name} {shlex.quote(self.path)}"
        return ""


def stop(
    checkpoint: Checkpoint,
    *,
    because: str = "",
    within_s: float,
    tell: Callable[[str], None] = lambda _text: None,
    clock: Clock = time,
) -> Outcome:
    """Ask the run that is alive to end, and wait so long until it has. Operator's process; idempotent.

    Whoever asked a run first stays in the record. Where no run is alive, the newest one is asked all the same: a
    supervisor that is about to start the query again does not, then. Raises ``UnavailableError``, ``LogError``.
    """
    request = _Request(checkpoint, because, tell)
    begun = clock.monotonic()
    deadline = begun + within_s
    silent_s = 0.0
    poll_s = _POLL_S if checkpoint.folder is not None else _POLL_STORED_S
    while True:
        ended = request.look()
        if ended is Ended.DIED and silent_s < NOTED_S:
            silent_s += poll_s
        elif ended is not None:
            return request.outcome(ended)
        elif not request.is_told and clock.monotonic() > begun + _UNTOLD_S and not request.is_heard():
            return request.outcome(Ended.UNHEARD)  # nobody hears before its next epoch, if there is one
        elif clock.monotonic() > deadline:
            return request.outcome(Ended.RUNNING if request.is_heard() else Ended.UNHEARD)
        clock.sleep(poll_s)


def unnoted(checkpoint: Checkpoint) -> str:
    """Say why no savepoint can be made of the newest epoch that is whole; empty where it can. Any process; reads only.

    Spark has not noted its end, which a start does. Until then nothing goes on after that epoch.
    """
    epochs = look.newest(checkpoint, limit=_RUNS_MAX, history=False).epochs
    newest = next((each.view.epoch for each in epochs if each.view.state in SETTLED), None)
    if newest is None or newest in checkpoint.told.committed():
        return ""
    return (
        f"no savepoint was made: chk-{newest} is committed, and Spark has not noted its end, as its driver was killed "
        "before"
    )


class _Request:
    """The request to one run, and what was seen of that run since."""

    def __init__(self, checkpoint: Checkpoint, because: str, tell: Callable[[str], None]) -> None:
        self._checkpoint = checkpoint
        self._stops = StopFiles(checkpoint.store)
        self._because = because
        self._tell = tell
        self._stop: Stop | None = None
        self._run: Run | None = None
        self._lived = self._was_untold = self._is_planners = False
        self._who = ""
        self.is_told = True
        """Whether a run has left word that puts links: else nobody will hear of the request."""

    def look(self) -> Ended | None:
        """Look once, and ask the run where it was not asked; None while it goes on, or one is about to begin."""
        # Who is alive is looked at first: a run that has begun leaves word of itself while it is.
        alive = self._checkpoint.run
        self._who = alive.who
        runs = RunFiles(self._checkpoint.store).newest(_RUNS_MAX)
        self.is_told = leaves_word(self._checkpoint, runs)
        if not self.is_told and (untold := self._untold()) is not None:
            self._lived = False
            if self._run is None or self._run.run != untold.run:
                self._ask(untold, is_told=True)
            self._was_untold = self._is_planners = True
            return None
        if self._was_untold:
            self._was_untold = False
            self._is_planners = self._lived = any(
                self._run is not None and each.run == self._run.run for each in runs
            )
        if runs and not self._lived and (self._run is None or self._run.run != runs[0].run):
            self._ask(runs[0], is_told=alive.alive is not False)
        self._run = next((each for each in runs if self._run and each.run == self._run.run), self._run)
        has_ended = self._run is not None and bool(self._run.ended)
        self._lived = self._lived or (alive.alive is not False and self._run is not None and not has_ended)
        if self._lived and (has_ended or (alive.alive is False and self._has_gone_in_order())):
            return Ended.STOPPED
        if self._lived and (alive.alive is False or (runs and runs[0].run != self._stop_run)):
            return Ended.DIED
        if alive.alive is not False:
            return None
        return Ended.DOWN if self.is_told else Ended.UNHEARD

    def _untold(self) -> Run | None:
        """Return the run that has put the newest link: only its end will be told, as on Spark Connect."""
        return next(
            (
                Run(run=link.run, began=link.stamp)
                for link in sinks.links(self._checkpoint)
                if link.run and link.stamp is not None and not link.application.startswith(OPERATOR)
            ),
            None,
        )

    def is_heard(self) -> bool:
        """Say whether the driver has seen the request."""
        self._stop = (self._stops.of_id(self._run.run) if self._run else None) or self._stop
        return self._stop is not None and bool(self._stop.seen)

    def _has_gone_in_order(self) -> bool:
        """Say whether a run that is gone had heard the request, and left nothing: its process may end at once then."""
        return self.is_heard() and self.outcome(Ended.STOPPED).is_settled

    def outcome(self, ended: Ended) -> Outcome:
        """Say what became of it."""
        self.is_heard()
        epochs = look.newest(self._checkpoint, limit=1, history=False).epochs
        newest = epochs[0] if epochs else None
        return Outcome(
            ended=ended,
            path=self._checkpoint.path,
            stop=self._stop,
            run=self._run,
            newest=newest,
            who=self._who,
            before_plan=self._is_planners,
        )

    @property
    def _stop_run(self) -> str:
        return self._stop.run if self._stop else ""

    def _ask(self, run: Run, *, is_told: bool) -> None:
        self._run = run
        self._stop = self._stops.of(run) or self._stops.of_id(run.run)
        if self._stop is None:
            self._stop = Stop(
                run=run.run, began=run.began, who=user(), stamp=events.stamp(), because=self._because
            )
            self._stops.put(self._stop)
        if is_told:  # of one that is dead it would only mislead
            self._tell(self._stop.sentence)
