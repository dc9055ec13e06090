"""The commit phase: many handles in parallel, retried within a bound while the target says "later"."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from onceonly import failpoints
from onceonly.errors import CommitDelayedError, OnceonlyError, UnavailableError
from onceonly.model import RetryLater, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onceonly.model import Outcome
    from onceonly.ports import Clock, Sink
    from onceonly.protocol import CommitHandle

log = logging.getLogger("onceonly")

THREADS_MAX = 16
DELAY_FIRST_S = 0.02
DELAY_MAX_S = 2.0


class CommitLoop:
    """Carries out ``CommitHandle`` commands. Driver.

    ``timeout_s`` bounds the retries of one run, however many handles it has; each is tried at least once, and
    what still answers ``RetryLater`` then is handed back as that. ``seconds`` is how long the last run
    took; whoever writes it down sets it back.
    """

    def __init__(self, sinks: Mapping[str, Sink], *, timeout_s: float, clock: Clock) -> None:
        self._sinks = sinks
        self._timeout_s = timeout_s
        self._clock = clock
        self.seconds = 0.0

    def run(
        self, commands: Sequence[CommitHandle], *, recovery: bool
    ) -> Iterator[tuple[CommitHandle, Outcome]]:
        """Commit all; give each command with its outcome, in the order given."""
        started = self._clock.monotonic()
        with ThreadPoolExecutor(
            min(THREADS_MAX, len(commands)), thread_name_prefix="onceonly-commit"
        ) as pool:
            deadline = started + self._timeout_s
            outcomes = list(
                pool.map(lambda command: self._one(command, deadline, recovery=recovery), commands)
            )
        self.seconds = self._clock.monotonic() - started
        yield from zip(commands, outcomes, strict=True)

    def _one(self, command: CommitHandle, deadline: float, *, recovery: bool) -> Outcome:
        handle = command.vote.handle
        if handle is None:
            return Unknown("a vote without a handle cannot be committed")
        sink = self._sinks.get(command.vote.sink)
        if sink is None:
            return Unknown(
                f"no sink named {command.vote.sink!r} is configured, though handles of it are pending"
            )
        failpoints.hit("plan.before_recommit" if recovery else "commit.before_handle", of=command.vote.sink)
        delay = DELAY_FIRST_S
        while True:
            outcome = self._ask(sink, command)
            if not isinstance(outcome, RetryLater) or command.once:
                break
            if self._clock.monotonic() + delay > deadline:
                log.warning("Transaction %s: not taken within %s s", handle.transaction, self._timeout_s)
                break
            self._clock.sleep(delay)
            delay = min(2 * delay, DELAY_MAX_S)
        failpoints.hit("plan.after_recommit" if recovery else "commit.after_handle", of=command.vote.sink)
        return outcome

    @staticmethod
    def _ask(sink: Sink, command: CommitHandle) -> Outcome:
        handle = command.vote.handle
        assert handle is not None  # noqa: S101  checked by the caller; for the type checker
        try:
            return sink.commit(handle)
        except OnceonlyError as error:
            if isinstance(error, UnavailableError | CommitDelayedError):
                return RetryLater(error.what)
            return Unknown(error.what)
        except Exception as error:  # noqa: BLE001  anything a sink lets slip is an unknown outcome, not a failure
            return Unknown(f"{type(error).__name__}: {error}")
