"""Carrying a feed into a journal: connect, write down, tell the feed; again and again.

The same class runs inside a job, beside the driver, and outside of it in ``onceonly journal run``.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from typing import TYPE_CHECKING, Final

from onceonly.errors import UnavailableError
from onceonly.sources.journal.feeds import FeedBrokenError
from onceonly.sources.journal.lock import WAIT_S
from onceonly.sources.journal.writer import Writer
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.sources.journal.feeds import Batch, Feed
    from onceonly.sources.journal.options import Limits
    from onceonly.sources.journal.place import Journal

log = logging.getLogger("onceonly")

_DELAY_FIRST_S: Final = 0.1
_DELAY_MAX_S: Final = 30.0
_WISH_MAX_S: Final = 24 * 3600.0
"""How long a server is left alone at most, whatever it says: it may say any number."""
_FULL_S: Final = 0.1
_TELL_S: Final = 60.0


class Receiver(threading.Thread):
    """A thread that never keeps its process alive. What ends it is in ``error``, for who asks next."""

    def __init__(self, feed: Feed, journal: Journal, limits: Limits, *, wait_s: float = WAIT_S) -> None:
        super().__init__(name=f"onceonly-{feed.name}", daemon=True)
        self._feed = feed
        self._journal = journal
        self._limits = limits
        self._wait_s = wait_s
        self._stopping = threading.Event()
        self._opened = threading.Event()
        self._at_rest = threading.Event()
        self._tries = 0
        self._was_heard = False
        self._why = "it has not answered"
        self.writer: Writer | None = None
        self.error: BaseException | None = None
        self.doubled = 0
        """Rows that were left out, as their ids are remembered."""
        self._told = 0
        """How many of them were told of, for the last time then."""
        self._told_at = -math.inf
        self._broken = ("", -math.inf)
        """Why a connection had ended when that was last told of, and when that was."""
        self._untold = 0

    def run(self) -> None:
        """Receive until it is stopped, or cannot go on."""
        try:
            with Writer.open(
                self._journal,
                self._limits,
                feed=self._feed.name,
                of=self._feed.of,
                promise=self._feed.guarantee.value,
                named=self._feed.named,
                wait_s=self._wait_s,
            ) as writer:
                self.writer = writer
                if writer.newest:  # what is in the journal has come from there
                    self._feed.is_host_known = True
                self._opened.set()
                while not self._stopping.is_set():
                    # What is taken and not written is lost, or one of so many deliveries that a server makes.
                    if self._is_free(writer.lacks_space, "disk") and self._is_free(writer.is_full):
                        self._connected(writer)
        except BaseException as error:  # noqa: BLE001  it is raised where the query asks next
            self.error = error
        finally:
            self._tell_doubled(now=True)
            self._opened.set()
            self._at_rest.set()

    def opened(self) -> Writer:
        """Wait until the journal is open; return its writer. Raises what ended this thread."""
        self._opened.wait()
        self.require_alive()
        assert self.writer is not None  # noqa: S101  else there is an error
        return self.writer

    def require_alive(self) -> None:
        """Raise what ended this thread."""
        if self.error is not None:
            raise self.error

    def rest(self, within_s: float) -> None:
        """Wait until the feed has nothing to give at the moment, but not longer than ``within_s``.

        As long as it goes on to give what its server had at the beginning, that is waited for. Raises
        ``UnavailableError`` where nothing was heard of it: that is not to have nothing.
        """
        before = -1
        while not self._at_rest.wait(within_s) and self._feed.awaited:
            newest = self.writer.newest if self.writer is not None else before
            if newest == before:
                break
            before = newest
        self.require_alive()
        if not self._was_heard:
            raise UnavailableError(
                f"nothing was heard of {self._feed.name} {self._feed.of} for {within_s:g} s: {self._why}",
                next_step="see to its server, and start the query again: it has read nothing yet",
            )

    def stop(self, within_s: float = 5.0) -> None:
        """Ask it to end, and wait a little. What is not durable was not told to the feed."""
        self._stopping.set()
        if self.is_alive():
            self.join(within_s)

    def _connected(self, writer: Writer) -> None:
        """Receive over one connection.

        Ids are forgotten by the time in which it is heard of: a server that was away may not know what it was told, and
        sends it again, however late it comes back.
        """
        began = time.monotonic()
        writer.clock.stop()
        try:
            given = self._feed.receive(writer.mark)
            try:
                for batch in given:
                    if self._stopping.is_set():
                        return
                    self._was_heard = True
                    writer.clock.go_on()
                    if batch is None:
                        self._at_rest.set()
                        writer.tidy()
                    else:
                        self._write(writer, batch)
            finally:
                given.close()
            why, wait_s = "the server has closed the connection", 0.0
        except FeedBrokenError as broken:
            why, wait_s = str(broken), broken.wait_s
            self._why = why
            self._was_heard |= broken.answered
        writer.clock.stop()
        if time.monotonic() - began >= _DELAY_MAX_S:
            self._tries = 0  # it was a good one, though it may have had no rows
        self._tries += 1
        # Jitter keeps receivers apart; nobody gains from guessing it.
        backoff = min(_DELAY_MAX_S, _DELAY_FIRST_S * 2 ** min(self._tries - 1, 16))
        delay = max(min(wait_s, _WISH_MAX_S), random.uniform(backoff / 2, backoff))  # noqa: S311
        self._tell_broken(why, delay)
        self._stopping.wait(delay)

    def _tell_broken(self, why: str, delay: float) -> None:
        """Say a new reason at once, and the same one now and then: a server may close after each of its answers."""
        told, told_at = self._broken
        if why == told and time.monotonic() - told_at < _TELL_S:
            self._untold += 1
            return
        often = f" ({n(self._untold, 'more connection')} ended since the last word)" if self._untold else ""
        self._broken, self._untold = (why, time.monotonic()), 0
        log.warning("%s: %s%s; connecting again in %.1f s", self._feed.of, why, often, delay)

    def _write(self, writer: Writer, batch: Batch) -> None:
        if self._is_free(writer.is_full):
            self._tries = 0
            taken = writer.append(batch.rows, batch.mark, batch.suspects)
            self.doubled += batch.rows.num_rows - taken  # others look at it while rows are appended
            self._tell_doubled()

    def _tell_doubled(self, *, now: bool = False) -> None:
        """Say now and then how many rows were left out: who gives an id to two rows would look for one of them."""
        count = self.doubled - self._told
        if not count or not (now or time.monotonic() - self._told_at >= _TELL_S):
            return
        self._told, self._told_at = self.doubled, time.monotonic()
        log.warning(
            "%s: %s left out, as their ids came before (%s since the start). A feed gives rows again after a broken "
            "connection or a crash; if these are others, no two rows may share an id within %g s (window).",
            self._feed.of, n(count, "row"), f"{self.doubled:,}", self._limits.window_s,
        )  # fmt: skip

    def _is_free(self, is_full: Callable[[], bool], by: str = "backlogBytes") -> bool:
        """Wait until the journal, or its disk, is not full; say whether it is so, and not that this is to end."""
        told = False
        while is_full():
            if not told:
                log.warning(
                    "The journal %s is full (%s): nothing is taken from %s until the query has read on.",
                    self._journal.where, by, self._feed.of,
                )  # fmt: skip
                told = True
            self._was_heard = True  # it is not asked now
            if self.writer is not None:
                self.writer.clock.stop()
            self._at_rest.set()
            self._feed.pause(_FULL_S)
            if self._stopping.is_set():
                return False
        return True
