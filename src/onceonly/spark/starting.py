"""A look at a checkpoint just before Spark reads it: PySpark's ``DataStreamWriter.start`` is wrapped.

Spark reads its own files before it plans, so what a power loss has torn of them must be mended before; and it plans
nothing before something new comes in, so another sink's epochs must be refused before. A query is one of ours if it
writes by a format of ours, or if its checkpoint holds our log. The processes that plan and commit outlive a query, and
Spark does not tell them of a start; so a query by a format of ours carries one option more, drawn for each start: what
was found out in the start before is then found out again. It begins with where this process answers them.
Where PySpark has no writer for formats, a query by one of ours becomes one by ``foreachBatch`` here, with its options.
A function for ``foreachBatch`` is wrapped, too, so that it keeps back no error (``kept_back``) and
leaves no sink alone (``unused``).
The wrapping is done once in a process, by ``register``.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import uuid
from concurrent.futures import TimeoutError as WaitTimeoutError
from typing import TYPE_CHECKING, Any

from onceonly import background
from onceonly.checkpoint.inputs import SparkInputs
from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.checkpoint.torn import mend
from onceonly.coordinator.adoption import refusal
from onceonly.errors import OnceonlyError, SetupError
from onceonly.log.place import FOLDER, elsewhere, home_of
from onceonly.settings.query import (
    ADOPT,
    CHECKPOINT,
    COMMIT_TIMEOUT,
    REPORT,
    START,
    parse_query,
    with_checkpoint,
)
from onceonly.settings.registry import BUILT_IN, build, load, settings_of
from onceonly.settings.savepoints import OPTIONS as SAVEPOINTS
from onceonly.settings.telemetry import NAMES
from onceonly.spark import guarding, lag, reporting, saving, spans
from onceonly.spark.asked import take_partition_by
from onceonly.spark.configure import PROVIDER, RAW_FILES, is_rocksdb
from onceonly.spark.noted import forget, remember
from onceonly.spark.versions import has_formats
from onceonly.telemetry import watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger("onceonly")

_LOCATION, _NAME = CHECKPOINT, "queryname"
_BUFFERED = ("s3a:", "s3:", "s3n:")
"""Where Hadoop's client puts blocks on a local disk first."""
_SESSION = "spark.sql.streaming.checkpointLocation"
_NOTED = "_onceonly_noted"
_FORMATS = "onceonly."
_WATCHED = (COMMIT_TIMEOUT, *SAVEPOINTS, *NAMES)
"""What of a query's options this process itself makes use of."""
_STORE_S = 2.0
# What is no option: a sink may have one that is called format.
_FORMAT, _OURS = ".format()", ".foreachbatch()"
_PARAMETERS = ("path", "format", "outputMode", "partitionBy")
"""Of ``start``, besides options and the query's name."""
_SPARKS = {_LOCATION: "checkpointLocation", _NAME: "queryName"}
"""What Spark's start takes of a query's options, whoever writes it, by its own names."""


def install() -> None:
    """Wrap what PySpark's writer is told of a query, and its start. Driver, idempotent; never fails."""
    try:
        from pyspark.sql.streaming.readwriter import DataStreamWriter

        if not hasattr(DataStreamWriter, _NOTED):
            _wrap(DataStreamWriter)
            setattr(DataStreamWriter, _NOTED, {})
    except Exception as error:  # noqa: BLE001  a PySpark of another make: only this help is missing
        log.debug("Queries start without a look at their checkpoint: %s", error)


def _wrap(writer: Any) -> None:  # noqa: ANN401  a class of PySpark's
    def noting(real: Callable[..., Any], read: Callable[..., Mapping[str, object]]) -> Callable[..., Any]:
        @functools.wraps(real)
        def wrapped(self: Any, *args: Any, **more: Any) -> Any:  # noqa: ANN401  as PySpark's
            _note(self, lambda: read(*args, **more))
            return real(self, *args, **more)

        return wrapped

    writer.option = noting(writer.option, lambda key, value: {key: value})
    writer.options = noting(writer.options, lambda **options: options)
    writer.format = noting(writer.format, lambda source: {_FORMAT: source})
    # The later of the two is what Spark writes by.
    writer.foreachBatch = noting(
        _guarding(writer.foreachBatch),
        lambda func: {
            _FORMAT: "",
            _OURS: guarding.is_ours(func) or None,
            **lag.options_of(func),
            **saving.options_of(func),
            **_taken_by(func),
        },
    )
    writer.queryName = noting(writer.queryName, lambda queryName: {_NAME: queryName})  # noqa: N803  PySpark's
    real_start = writer.start

    @functools.wraps(real_start)
    def start(self: Any, *args: Any, **more: Any) -> Any:  # noqa: ANN401  as PySpark's
        _note(self, lambda: {name: value for name, value in more.items() if name not in _PARAMETERS})
        _note(self, lambda: {_FORMAT: args[1] if len(args) > 1 else more.get("format")})
        noted = getattr(self, _NOTED)
        location = _location(self, noted)
        if _look(noted, location):
            _warn(self, location)
            _require_lists(location)
        lag.want(location, noted)
        saving.want(location, noted)
        _refuse(noted, location, args[0] if args else more.get("path"))
        _refuse_foreign(noted, location)
        if noted.get(_FORMAT, "").startswith(_FORMATS):
            if location:
                reporting.ask(location, noted.get(REPORT, ""))
                told = {name: noted[name] for name in _WATCHED if name in noted}
                watching.ask(parse_query({**told, CHECKPOINT: location}))
            if not has_formats():
                return by_batch(self, noted, args[0] if args else more.get("path"))
            address = spans.serve()
            if not address:  # who decides its epochs does not know of anybody who hears of them
                saving.want(location, {})
            self.option(START, f"{address}.{uuid.uuid4().hex}")
        return real_start(self, *args, **more)

    def by_batch(self: Any, noted: Mapping[str, str], path: str | None) -> Any:  # noqa: ANN401  as PySpark's
        from onceonly.spark.foreach_batch import in_place_of

        self.foreachBatch(in_place_of(noted[_FORMAT], _options(noted, path)))
        given = {spark: noted[name] for name, spark in _SPARKS.items() if name in noted}
        return real_start(self, **given)

    writer.start = start


def _guarding(real: Callable[..., Any]) -> Callable[..., Any]:
    """Let functions of the user's keep no error of an epoch back."""

    @functools.wraps(real)
    def wrapped(self: Any, func: Any) -> Any:  # noqa: ANN401  as PySpark's
        is_users = callable(func) and not guarding.is_ours(func)
        return real(self, guarding.guarded(func) if is_users else func)

    return wrapped


def _note(writer: Any, read: Callable[[], Mapping[str, object]]) -> None:  # noqa: ANN401  PySpark's
    """Remember what a writer was told. Wrong arguments are PySpark's to refuse."""
    try:
        told = {key.lower(): _text(value) for key, value in read().items() if value is not None}
    except (TypeError, AttributeError):
        return
    object.__setattr__(writer, _NOTED, {**getattr(writer, _NOTED), **told})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _location(writer: Any, told: Mapping[str, str]) -> str:  # noqa: ANN401  PySpark's
    """Return where Spark will have the query's checkpoint; empty where that cannot be told."""
    given = {name: told[name] for name in (_LOCATION, _NAME) if told.get(name)}
    if _LOCATION in given:
        return given[_LOCATION]
    try:
        session = writer._spark.conf.get(_SESSION, None)  # noqa: SLF001  there is no other way to it
        return with_checkpoint(given, session).get(_LOCATION, "")
    except Exception as error:  # noqa: BLE001  a query without a name is refused later
        log.debug("Where the query's checkpoint will be is not known: %s", error)
        return ""


def _look(told: Mapping[str, str], location: str) -> bool:
    """Mend the checkpoint of a query of ours; say whether it is one."""
    if not location:
        return False
    try:
        home, checkpoint = home_of(location), SparkCheckpoint.at(location)
    except OnceonlyError:
        return False  # refused by name, later
    folder = checkpoint.files.folder
    is_ours = _is_by_us(told)
    if folder is not None:
        is_ours = is_ours or (folder / FOLDER).is_dir()
        if is_ours:
            mend(folder)
    forget(home)
    # Of any query: a function of the user's may write by onceonly.epoch. A store may be out of reach, and the query one
    # that is no concern of ours.
    with contextlib.suppress(OnceonlyError, WaitTimeoutError):
        committed = background.begin("onceonly-look", checkpoint.committed).result(_STORE_S)
        remember(home, max(committed, default=-1))
    return is_ours


def _is_by_us(told: Mapping[str, str]) -> bool:
    """Say whether a query is written by a format of ours, or by a function of ``onceonly.sink`` itself."""
    return _OURS in told or told.get(_FORMAT, "").startswith(_FORMATS)


def _refuse(told: Mapping[str, str], location: str, path: str | None) -> None:
    """See that a format takes the options that it is given. Raises ``ConfigurationError``.

    The planner would say the same, but after the session has warmed up, and in the midst of Spark's own words. What
    this machine lacks is left to it: it may have another Python.
    """
    word = told.get(_FORMAT, "")
    form = word.removeprefix(_FORMATS)
    sink = BUILT_IN.get(form)
    if form == word or sink is None:
        return
    with contextlib.suppress(SetupError):
        options = take_partition_by(_options(told, path), load(sink).declared, who=word)
        where = {CHECKPOINT: location} if location else {}
        build(settings_of({**options, **where}, form, sink).sink, sink).close()


def _refuse_foreign(told: Mapping[str, str], location: str) -> None:
    """See that a query of ours does not go on from another sink's epochs unasked. Raises ``AdoptionError``.

    The first plan would say the same; but it comes with the first new row.
    """
    if not location or not _is_by_us(told):
        return
    if parse_query({ADOPT: told.get(ADOPT, "false"), CHECKPOINT: location}).adopt:
        return
    refused = None
    with contextlib.suppress(OnceonlyError, WaitTimeoutError):  # what cannot be told now, the plan tells
        refused = background.begin("onceonly-look", refusal, location).result(_STORE_S)
    if refused is not None:
        raise refused


def _require_lists(location: str) -> None:
    """See that a source of files goes on where it was. Raises ``LogError``.

    No plan would say it: Spark plans nothing where the lists that it makes anew come no further than before.
    """
    lost = None
    with contextlib.suppress(OnceonlyError, WaitTimeoutError):  # a store may be out of reach
        inputs = SparkInputs(SparkCheckpoint.at(location).files)
        lost = background.begin("onceonly-look", inputs.lost_list).result(_STORE_S)
    if lost is not None:
        raise lost


def _taken_by(function: object) -> dict[str, str]:
    """Say whether a function of ``onceonly.sink`` takes a checkpoint over; nothing of other functions."""
    told: Mapping[str, str] = getattr(function, "query_options", None) or {}
    return {name: text for name, text in told.items() if name.lower() == ADOPT}


def _options(told: Mapping[str, str], path: str | None) -> dict[str, str]:
    given = {name: value for name, value in told.items() if name not in (_FORMAT, _OURS, START)}
    return given if path is None else {**given, "path": path}


def _warn(writer: Any, location: str) -> None:  # noqa: ANN401  PySpark's
    """Say it before a query begins anew, or fails in Spark by a cast that nobody understands."""
    if where := elsewhere(location):
        log.warning("%s", where)
    try:
        spark = writer._spark  # noqa: SLF001  there is no other way to it
        name, raw = RAW_FILES
        if spark.sparkContext.getConf().get(name, "") != raw:
            return
        is_stored_raw = is_rocksdb(spark.conf.get(PROVIDER, ""))
    except Exception as error:  # noqa: BLE001  a warning is no reason to fail
        log.debug("What the session is told of its file systems is not known: %s", error)
        return
    if is_stored_raw:
        log.warning(
            "A query that keeps state in RocksDB fails in this session: Spark stores it by a file system that %s=%s "
            "has replaced. Build the session with onceonly.configure(builder, rocksdb=True).", name, raw,
        )  # fmt: skip
    if location.startswith(_BUFFERED):
        log.warning(
            "A checkpoint on S3 fails in this session: Hadoop buffers what it sends there by a file system that %s=%s "
            "has replaced. Build the session with onceonly.configure(builder, local_checkpoints=False).", name, raw,
        )  # fmt: skip
