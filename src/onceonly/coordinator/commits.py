"""What follows a decision: its commits, asked for again within a bound, the end of its epoch, the losers' aborts."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly import background, failpoints, protocol
from onceonly.coordinator.questions import MISTAKES
from onceonly.errors import ConfigurationError, InDoubtError, OnceonlyError, UnavailableError
from onceonly.model import Guarantee, Lost, RetryLater, Unknown, handles_of
from onceonly.options import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onceonly.events import Steps
    from onceonly.model import Handle, Link, Outcome, Vote
    from onceonly.ports import Clock, QueryContext, Sink
    from onceonly.protocol import CommitHandle

log = logging.getLogger("onceonly")

THREADS_MAX = 16
FEW_MAX = 4
"""How many handles of a sink are committed one by one where a crash is to come between any two of them."""
DELAY_FIRST_S = 0.02
DELAY_MAX_S = 2.0

_CRASHES = ("commit.before_handle", "commit.after_handle", "plan.before_recommit", "plan.after_recommit")


class Commits:
    """Carries out ``CommitHandle`` and ``AbortHandle`` commands, and tells sinks that an epoch is complete. Driver.

    ``timeout_s`` bounds the retries of one commit phase; ``context`` gives that of a sink; ``record`` is given what
    became of each handle.
    """

    def __init__(
        self,
        sinks: Mapping[str, Sink],
        *,
        query: str,
        timeout_s: float,
        clock: Clock,
        context: Callable[[str], QueryContext],
        record: Steps,
    ) -> None:
        self._sinks = sinks
        self._query = query
        self._loop = CommitLoop(sinks, timeout_s=timeout_s, clock=clock)
        self._context = context
        self._record = record

    def commit(self, commands: Sequence[CommitHandle], *, recovery: bool) -> list[protocol.Event]:
        """Commit handles in parallel; one that raises is asked for again."""
        found = list(self._loop.run(commands, recovery=recovery))
        found = [(command, _by_the_log(command, outcome)) for command, outcome in found]
        for place, (command, outcome) in enumerate(found) if self._record.is_heard else ():
            vote = command.vote
            self._record(
                "handle.resolved" if recovery else "handle.committed",
                vote.epoch,
                run=vote.run,
                sink=vote.sink,
                slot=vote.slot,
                transaction=vote.handle.transaction if vote.handle else "",
                outcome=type(outcome).__name__,
                reason=without_secrets(outcome.reason) if isinstance(outcome, Unknown | RetryLater) else "",
                after_ms=round(1000 * self._loop.answered_s[place]),
            )
        return [protocol.Resolved(command.vote, outcome) for command, outcome in found]

    def take_seconds(self) -> float:
        """Say how long the last commit phase took, once."""
        seconds, self._loop.seconds = self._loop.seconds, 0.0
        return seconds

    def complete(self, link: Link) -> None:
        """Tell each sink of a link that its epoch is committed as a whole."""
        for name, committed in handles_of(link.output).items():
            failpoints.hit("complete.before", of=name)
            with self._told(link, name, "complete") as sink:
                context = self._context(name)
                # What was tried once only may not be there, and all else is, whatever the sink promises by now.
                if Guarantee.AT_MOST_ONCE in {link.guarantee, context.guarantee}:
                    context = replace(context, guarantee=link.guarantee)
                sink.complete(context, link.epoch, committed)
            self._record("epoch.completed", link.epoch, run=link.run, sink=name, handles=len(committed))

    def make_durable(self, link: Link) -> None:
        """See that what a link carries outlives a loss of power: nobody commits it again."""
        for name, committed in handles_of(link.carried).items():
            with self._told(link, name, "make_durable") as sink:
                sink.make_durable(committed)

    @contextmanager
    def _told(self, link: Link, name: str, call: str) -> Iterator[Sink]:
        """Give a sink of a link that is to be told something, and tell what it raises with the epoch's name."""
        about = f"Query {self._query}, chk-{link.epoch}"
        if name not in self._sinks:
            raise ConfigurationError(
                f"{about}: it has rows in the sink {name}, which the query has no more, so nobody can complete it",
                next_step=f"Give the query its sink {name} again, and take it away once the epoch is through.",
            )
        try:
            yield self._sinks[name]
        except OnceonlyError:
            raise
        except MISTAKES as error:
            error.add_note(
                f"{about}: raised by the sink {name}, whose code is to be corrected. What is committed stays so; "
                f"{call} is called again at the next start."
            )
            raise
        except Exception as error:
            raise UnavailableError(
                f"{about}: the sink {name} could not do {call}: {type(error).__name__}: {error}",
                next_step=f"Start the query again: what is committed stays so, and {call} is called again.",
            ) from error

    def abort(self, vote: Vote) -> None:
        """Abort a handle that no link names."""
        if vote.handle is None:
            return
        try:
            self._sinks[vote.sink].abort(vote.handle)
        except Exception as error:  # noqa: BLE001  whatever a sink lets slip, what is decided is not touched by it
            # No link names it and none can: the next sweep takes it.
            log.warning("Transaction %s is left to the next sweep: %s", vote.handle.transaction, error)
            return
        self._record(
            "handle.aborted",
            vote.epoch,
            run=vote.run,
            sink=vote.sink,
            slot=vote.slot,
            transaction=vote.handle.transaction,
        )


class CommitLoop:
    """Asks for commits, many handles in parallel, and again while the target says "later". Driver.

    ``timeout_s`` bounds the retries of one run, however many handles it has; each is tried at least once, and
    what still answers ``RetryLater`` then is handed back as that. Of a target that hangs, ``bounded`` says so for all
    handles once one call has not come back. A commit that raises is asked for again, too:
    ``Unknown`` is only what a sink says of itself. ``seconds`` is how long the last run
    took; whoever writes it down sets it back. ``answered_s`` is how long it was until each of its commands, by its
    place, had its last answer: those that a sink takes at once have the same.
    """

    def __init__(self, sinks: Mapping[str, Sink], *, timeout_s: float, clock: Clock) -> None:
        self._sinks = sinks
        self._timeout_s = timeout_s
        self._clock = clock
        self.seconds = 0.0
        self.answered_s: dict[int, float] = {}

    def run(
        self, commands: Sequence[CommitHandle], *, recovery: bool
    ) -> Iterator[tuple[CommitHandle, Outcome]]:
        """Commit all; return each command with its outcome, in the order given."""
        started = self._clock.monotonic()
        shares = self._shares(commands)
        self.answered_s = {}

        def work(places: list[int]) -> dict[int, Outcome]:
            share = {place: commands[place] for place in places}
            return self._commit(share, started, recovery=recovery)

        outcomes: dict[int, Outcome] = {}
        for found in background.spread("onceonly-commit", work, shares, threads_max=THREADS_MAX):
            outcomes |= found
        self.seconds = self._clock.monotonic() - started
        yield from ((command, outcomes[place]) for place, command in enumerate(commands))

    def _shares(self, commands: Sequence[CommitHandle]) -> list[list[int]]:
        """Deal the commands out, by their places: by as many as a sink takes at once."""
        few_max = FEW_MAX if failpoints.is_armed(_CRASHES) else 1
        by_sink: dict[tuple[str, bool], list[int]] = {}
        for place, command in enumerate(commands):
            alone = command.once or command.vote.handle is None
            by_sink.setdefault((command.vote.sink, alone), []).append(place)
        shares: list[list[int]] = []
        for (name, alone), places in by_sink.items():
            size = self._size(name, len(places), few_max=few_max) if not alone else 1
            shares += [places[first : first + size] for first in range(0, len(places), size)]
        return sorted(shares)

    def _size(self, name: str, count: int, *, few_max: int) -> int:
        """Return how many of a sink's handles go into one share."""
        sink = self._sinks.get(name)
        if sink is None:
            return 1
        if sink.capabilities.whole_epochs:
            return count
        return sink.capabilities.commits_at_once if count > few_max else 1

    def _commit(
        self, share: Mapping[int, CommitHandle], started: float, *, recovery: bool
    ) -> dict[int, Outcome]:
        """Commit a share: all of one sink. Those that are to be tried later are asked again within the bound."""
        sinks = [command.vote.sink for command in share.values()]
        failpoints.hit_all("plan.before_recommit" if recovery else "commit.before_handle", of=sinks)
        outcomes: dict[int, Outcome] = {}
        left = dict(share)
        delay = DELAY_FIRST_S
        while True:
            outcomes |= zip(left, self._ask_all(list(left.values())), strict=True)
            self.answered_s |= dict.fromkeys(left, self._clock.monotonic() - started)
            left = {
                place: command
                for place, command in left.items()
                if isinstance(outcomes[place], RetryLater)
                and not command.once
                and command.vote.sink in self._sinks
            }
            if not left:
                break
            if self._clock.monotonic() + delay > started + self._timeout_s:
                for command in left.values():
                    log.warning("Transaction %s: not taken within %s s", _name(command), self._timeout_s)
                break
            self._clock.sleep(delay)
            delay = min(2 * delay, DELAY_MAX_S)
        failpoints.hit_all("plan.after_recommit" if recovery else "commit.after_handle", of=sinks)
        return outcomes

    def _ask_all(self, commands: Sequence[CommitHandle]) -> Sequence[Outcome]:
        handles = [command.vote.handle for command in commands if command.vote.handle is not None]
        sink = self._sinks.get(commands[0].vote.sink)
        if sink is None or len(handles) < len(commands):
            return [self._ask(command) for command in commands]
        if sink.capabilities.whole_epochs and not commands[0].once:
            return _asked(lambda: _each_answered(sink.commit_many(handles), handles), len(handles))
        if len(handles) > 1:
            try:
                return _each_answered(sink.commit_many(handles), handles)
            except Exception as error:  # noqa: BLE001  whatever it was, each one alone is told what it was
                log.debug("%s handles together: %s", len(commands), error)
        return [self._ask(command) for command in commands]

    def _ask(self, command: CommitHandle) -> Outcome:
        handle = command.vote.handle
        if handle is None:
            return Unknown("a vote without a handle cannot be committed")  # a defect, and no answer will come
        sink = self._sinks.get(command.vote.sink)
        if sink is None:
            return RetryLater(
                f"no sink named {command.vote.sink!r} is configured, though handles of it are pending",
                needs=f"give the query its sink {command.vote.sink!r} again",
            )
        return _asked(lambda: [sink.commit(handle)], 1)[0]


def _asked(ask: Callable[[], Sequence[Outcome]], count: int) -> Sequence[Outcome]:
    """Return the outcomes of ``count`` handles, or what an error says of all of them."""
    try:
        return ask()
    except InDoubtError as error:
        return [Unknown(error.what)] * count
    except OnceonlyError as error:
        return [RetryLater(error.what, needs="" if error.restartable else error.next_step)] * count
    except Exception as error:  # noqa: BLE001  a commit may be asked for again, and then there may be an answer
        return [RetryLater(f"{type(error).__name__}: {error}")] * count


def _by_the_log(command: CommitHandle, outcome: Outcome) -> Outcome:
    """Read what a sink does not know by what the log does: what a link repeats was lost, and fenced, before it was put.

    A target may have forgotten that since, or never have known it: an operator may have ended it by hand.
    """
    link = command.link
    if isinstance(outcome, Unknown) and protocol.repeats(link):
        return Lost(f"link {link.name} was put as it was lost ({link.reason}); asked again: {outcome.reason}")
    return outcome


def _each_answered(outcomes: Sequence[Outcome], handles: Sequence[Handle]) -> Sequence[Outcome]:
    if len(outcomes) != len(handles):
        message = f"commit_many gave {len(outcomes)} outcomes for {len(handles)} handles"
        raise ValueError(message)
    return outcomes


def _name(command: CommitHandle) -> str:
    return command.vote.handle.transaction if command.vote.handle else ""
