"""One shard, read from a position on: iterators, throttling, and the proof that nothing is missing. Any process."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from onceonly.errors import SourceChangedError
from onceonly.families.kinesis import RefusedCallError
from onceonly.sources.kinesis.positions import AFTER, TIME, TRIM, Position

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onceonly.families.kinesis import Stream

log = logging.getLogger("onceonly")

LIMIT_MAX = 10_000
"""Records of one call, by the service's limit."""
_GONE = ("InvalidArgumentException", "ResourceNotFoundException")
_CALLS_MAX = 5
KEPT_ALWAYS_S = 24 * 3600.0
"""How long any stream keeps records, whatever its retention is and has been."""
FAR_MS = 3_600_000
"""A place so far behind may be trimmed while an iterator of it lives, which would pass over what was there."""


class Shard:
    """A place in a shard that moves on with what is read.

    It begins *at* the last record that was read, and sees that it is there: behind one that is gone, nobody could tell
    what else is.
    """

    def __init__(
        self,
        stream: Stream,
        name: str,
        position: Position,
        *,
        seen_s: float | None = None,
        keeps_s: float = KEPT_ALWAYS_S,
        fails_on_loss: bool = True,
        next_: str | None = None,
    ) -> None:
        self.name = name
        self.position = position
        self.next: str | None = next_
        """The iterator that goes on from here; None where there is none yet, or the shard is at its end."""
        self.is_closed = False
        self.behind_ms = 1
        self.is_at_tip = False
        """Whether nothing follows, by the last answer. A full one does not tell, as a double of the service says 0
        ``behind_ms`` in each."""
        self.seen_s = seen_s
        """What follows here, in this shard or its children, came later, by the service's clock; None: not known."""
        self._stream = stream
        self._keeps_s = keeps_s
        self._fails_on_loss = fails_on_loss
        self._expected: str | None = None

    def read(self, limit: int) -> list[dict[str, Any]]:
        """Read records and move on; an empty list says nothing of what follows: see ``behind_ms`` and ``is_closed``.

        Raises ``SourceChangedError`` where records before them are gone, and what ``Stream.ask`` does.
        """
        found: list[dict[str, Any]] = []
        for _ in range(_CALLS_MAX):
            if self.is_closed:
                break
            if self.next is None:
                self.next = self._iterator()
            asked = min(limit + (self._expected is not None), LIMIT_MAX)
            try:
                answer = self._stream.ask(
                    "get_records",
                    own=("ExpiredIteratorException",),
                    named=False,
                    ShardIterator=self.next,
                    Limit=asked,
                )
            except RefusedCallError:  # of five minutes ago, or of another key's
                self.next = None
                continue
            found = answer["Records"]
            self.next = answer.get("NextShardIterator")
            self.behind_ms = int(answer.get("MillisBehindLatest") or 0)
            self.is_closed = self.next is None
            self.is_at_tip = not self.behind_ms and len(found) < asked
            if self._expected is not None:
                if not found and not self.is_closed and self.behind_ms:
                    continue  # gaps are allowed
                found = self._proven(found, told_s(answer))
            self.seen_s = self._seen(answer)
            if found or self.is_closed or not self.behind_ms:
                break
        if found:
            self.position = Position.after(found[-1]["SequenceNumber"])
        return found

    def _seen(self, answer: Mapping[str, Any]) -> float | None:
        """Return since when there may be more. A closed shard does not tell since when its children have some."""
        if self.is_at_tip and not self.is_closed:
            return told_s(answer)
        return arrival_s(answer["Records"][-1]) if answer["Records"] else self.seen_s

    def _proven(self, found: list[dict[str, Any]], now_s: float | None) -> list[dict[str, Any]]:
        """Return what follows the record that was read last, which must be the first here.

        It may be gone where all was read so lately that what followed is not: there was nothing for long. Otherwise the
        service says nothing by which that could be told from a loss.
        """
        expected, self._expected = self._expected, None
        if found and found[0]["SequenceNumber"] == expected:
            return found[1:]
        if now_s is not None and self.seen_s is not None and self.seen_s > now_s - self._keeps_s:
            return found
        then = f"the next that is kept came on {_utc(arrival_s(found[0]))}" if found else "none is kept"
        upto = "" if now_s is None else f" and before {_utc(now_s - self._keeps_s)}"
        since = "then" if self.seen_s is None else _utc(self.seen_s)
        self._lost(
            f"its record {expected}, up to which was read, is gone, and {then}; what came after {since}{upto} may be "
            f"gone, too, or there may have been nothing: the service does not tell"
        )
        return found

    def require_kept(self, kept_s: float) -> None:
        """See that a place where nothing was read yet, as behind a shard's end, cannot have lost anything.

        The stream keeps what came since ``kept_s``; its oldest record does not tell of those before it. Raises
        ``SourceChangedError``.
        """
        if self.position.kind == AFTER and not self.is_closed:
            return  # its record tells
        if self.seen_s is not None and self.seen_s < kept_s:
            what = "of its children" if self.is_closed else "of it"
            self._lost(
                f"nothing was read {what} yet up to {_utc(self.seen_s)}; what came since then and before "
                f"{_utc(kept_s)} may be gone, or there may have been nothing: the service does not tell"
            )

    def require_parents(self, expired: Collection[str]) -> None:
        """See that no parent has expired before it was read to its end. Raises ``SourceChangedError``."""
        if expired:
            self._lost(f"its parent {', '.join(sorted(expired))} was not read to its end, and has expired")

    def _lost(self, what: str) -> None:
        text = (
            f"shard {self.name} of the stream {self._stream.options.where}: {what}. Records may have been lost: the "
            f"query has not looked for longer than the stream is known to keep them ({self._keeps_s / 3600:g} hours)"
        )
        if self._fails_on_loss:
            raise SourceChangedError(
                text,
                next_step="set failOnDataLoss=false for one start, which goes on with what is kept; before that, read "
                "the time that is gone from elsewhere, unless nothing came in it, as CloudWatch's IncomingRecords of "
                "the stream may show. Where the query is started seldom, give the stream a retention that is longer "
                "than the time between two starts",
            )
        log.warning("%s. It goes on, as failOnDataLoss=false says.", text)

    def _iterator(self) -> str | None:
        kind, value = self.position.kind, self.position.value
        given: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if kind == TIME:
            given = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": float(value)}
        elif kind == AFTER:
            given = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": value}
            self._expected = value
        try:
            answer = self._stream.ask("get_shard_iterator", own=_GONE, ShardId=self.name, **given)
        except RefusedCallError as error:
            self._expected = None
            self._lost(f"its place is gone ({error}), and what followed it may be")
            if error.code == "ResourceNotFoundException":
                self.is_closed = True
                return None
            self.position = Position(TRIM)
            answer = self._stream.ask(
                "get_shard_iterator", ShardId=self.name, ShardIteratorType="TRIM_HORIZON"
            )
        return str(answer["ShardIterator"])


def listed(stream: Stream) -> tuple[dict[str, dict[str, Any]], float | None]:
    """Return the shards of a stream by their names, and when that was, by the service's clock. Raises a typed error."""
    answer = stream.ask("list_shards")
    now_s, found = told_s(answer), list(answer["Shards"])
    while answer.get("NextToken"):
        answer = stream.ask("list_shards", named=False, NextToken=answer["NextToken"])
        found += answer["Shards"]
    return {each["ShardId"]: each for each in found}, now_s


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def arrival_s(record: Mapping[str, Any]) -> float:
    """Return when a record came, in seconds since 1970. Pure."""
    return float(record["ApproximateArrivalTimestamp"].timestamp())


def told_s(answer: Mapping[str, Any]) -> float | None:
    """Return the service's time, in seconds since 1970, as an answer tells it. Pure."""
    told = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return parsedate_to_datetime(told).timestamp() if told else None
