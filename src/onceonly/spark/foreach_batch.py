"""``onceonly.sink``: the foreachBatch way, for output modes that Spark refuses to Python formats."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.settings.query import CHECKPOINT, no_checkpoint
from onceonly.settings.registry import find, load, settings_of
from onceonly.spark import kept_back, unused
from onceonly.spark.asked import take_partition_by
from onceonly.spark.epoch import Epoch
from onceonly.spark.running import session_checkpoint
from onceonly.spark.versions import require_pyspark
from onceonly.telemetry import watching

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from onceonly.settings.query import QuerySettings, SinkSettings


def sink(name: object, **options: str) -> ForeachBatch:
    """Return a function for ``foreachBatch`` that writes with a sink, exactly as its format would; from PySpark 3.5 on.

    Driver. ``name`` is ``"onceonly.kafka"``, or a class made from ``TwoPhaseCommitSink``. The options are
    those of the format, ``checkpointLocation`` included: the same as the query's. Names with dots are given
    as ``**{"kafka.bootstrap.servers": …}``. Spark must run the function for every epoch of the query; it
    evaluates the DataFrame exactly once, also when the epoch's output is already there. For ``epoch.write``,
    ``onceonly.epoch`` knows the checkpoint, so it is left out here. On Spark Connect the server calls it, in a Python
    beside its driver.
    """
    try:
        require_pyspark()
        return ForeachBatch(name, options)
    except BaseException as error:
        unused.failed(str(name), error)
        raise


def in_place_of(form: str, options: Mapping[str, str]) -> ForeachBatch:
    """Return the function that writes what the format of this name would. Driver."""
    declared = load(find(form)[1]).declared
    return ForeachBatch(form, take_partition_by(options, declared, who=form))


class ForeachBatch:
    """A callable ``(df, batch_id)``. Driver's Python, once a try at an epoch, in Spark's callback thread."""

    def __init__(self, name: object, options: dict[str, str]) -> None:
        self._name, self.sink_class = find(name)
        self._options = options
        unused.made(self._name)
        parsed = settings_of(options, self._name, self.sink_class)
        self._query = parsed.query
        self._of_query = [name for name in parsed.of_query if name != CHECKPOINT]
        self.settings: SinkSettings = parsed.sink
        if self._query is not None and self._query.telemetry.is_asked:
            watching.ask(self._query)  # what is missing is said here, not in an epoch
        letters = self.settings.letters
        self.letters = None if letters is None else find(letters.format)[1]

    def __repr__(self) -> str:
        where = f", checkpointLocation={self._query.checkpoint!r}" if self._query else ""
        return f"onceonly.sink({self._name!r}{where}, …)"

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write the epoch. Raises a typed error; the query fails then, and its restart resolves the epoch."""
        with kept_back.noting(df):
            epoch = Epoch(df, batch_id, self._query or self._by_session(df))
            epoch.add(df, self.settings.name, self)
            epoch.carry_out()

    def _by_session(self, df: DataFrame) -> QuerySettings:
        location = session_checkpoint(df)
        given = {**self._options, CHECKPOINT: location or ""}
        query = settings_of(given, self._name, self.sink_class).query if location else None
        if query is None:
            raise no_checkpoint()
        return query

    @property
    def query_options(self) -> Mapping[str, str]:
        """What it was given, the query's own options among it; may hold secrets."""
        return self._options

    def named(self, name: str) -> SinkSettings:
        """Return the sink's settings under the name that it has in an epoch."""
        return replace(self.settings, name=name)

    def require_no_query(self, checkpoint: str) -> None:
        """See that no option of the query is given here, where ``onceonly.epoch`` is what has a query."""
        if self._of_query:
            raise ConfigurationError(
                f"the option {self._of_query[0]} is the query's, and the sink {self.settings.name!r} is one of "
                "several that it may have",
                next_step="give it to onceonly.epoch(df, batch_id, log=..., ...) instead",
            )
        if self._query is not None and self._query.checkpoint != checkpoint:
            raise ConfigurationError(
                f"the sink {self.settings.name!r} names the checkpoint {self._query.checkpoint}, the epoch "
                f"{checkpoint}",
                next_step="leave checkpointLocation to onceonly.epoch(..., log=...)",
            )
