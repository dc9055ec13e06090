"""What a write was asked for, and Spark does not tell a Python data source: ``partitionBy``, ``clusterBy``.

Spark hands a Python data source its options and no more, so a query that says ``writeStream.partitionBy("day")``
would be written without partitions, and nobody told; a batch that says so is refused in words about tables. ``install``
makes the Python methods remember their arguments, and ``start`` and ``save`` give it to formats of onceonly as an
option; formats of others get what they always got. It is not seen where the query is started from Scala or Java, or its
writer was partitioned before ``onceonly.register``.
Where a format's word is written by ``foreachBatch``, the output modes are those of the format.

The errors of a batch come out of ``save`` as they are, and those of a start out of ``start``: there is no supervisor
to find them in Spark's.
"""

from __future__ import annotations

import difflib
import re
from functools import wraps
from typing import TYPE_CHECKING, Any

import pyspark

from onceonly.errors import ConfigurationError, SetupError, find_error
from onceonly.settings.query import JOB, PREFIX
from onceonly.settings.registry import APPEND_COMPLETE, BUILT_IN, given
from onceonly.sources.known import SOURCES
from onceonly.spark import unused
from onceonly.spark.versions import has_formats, has_read_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceonly.errors import OnceonlyError
    from onceonly.options import Option

PARTITION_BY = f"{PREFIX}partitionby"
"""The option, in lower case as Spark gives it, in which ``start`` hands over the columns."""
_ASKED = "_onceonly_asked"
_NO_FORMAT = re.compile(r"Failed to find the data source: (onceonly(?:\.\w+)+)")
"""What Spark says, before it advises to look whether the provider is on its class path."""
_NO_MODE, _MODE = "[UNSUPPORTED_DATA_SOURCE_SAVE_MODE]", "mode append"
_LAYOUT = ("partitionBy", "clusterBy")


def install() -> None:
    """Let this process's ``DataStreamWriter`` and ``DataFrameWriter`` remember. Driver; any number of times."""
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    wrap(DataStreamWriter, first=_found_here)
    wrap_batch(DataFrameWriter, first=_found_here)


def wrap(
    writer: Any,  # noqa: ANN401  a class of PySpark's
    *,
    first: Callable[[Any], None] = lambda _writer: None,
    more: Callable[[], Mapping[str, str]] = dict,
    after: Callable[[Any, Any], None] = lambda _writer, _query: None,
) -> None:
    """Wrap the methods of a stream writer's class. Idempotent.

    For our formats, ``first`` is called with the writer before it starts, and ``more`` gives further options; ``after``
    is called with the writer and its query, when that has started.
    """
    if hasattr(writer.start, _ASKED):
        return
    # Spark takes neither together with foreachBatch, which stands in for a format where PySpark has no writer for it.
    later = (
        {} if has_formats() else {name: getattr(writer, name) for name in _LAYOUT if hasattr(writer, name)}
    )
    for name in ("format", *_LAYOUT, "outputMode", "foreachBatch"):
        if hasattr(writer, name):
            real = getattr(writer, name)
            setattr(writer, name, _remembering(name, _nothing(real) if name in later else real))
    writer.start = _telling(writer.start, later, first, more, after)


def function_of(writer: object) -> Any:  # noqa: ANN401  a user's
    """Return what a stream writer was given for ``foreachBatch`` last; None where nothing was. Pure."""
    return (getattr(writer, _ASKED, {}).get("foreachBatch") or (None,))[0]


def wrap_batch(writer: Any, *, first: Callable[[Any], None] = lambda _writer: None) -> None:  # noqa: ANN401  a class of PySpark's
    """Wrap the methods of a batch writer's class. Idempotent; ``first`` as above."""
    if hasattr(writer.save, _ASKED):
        return
    writer.save = _saving(writer.save, writer.partitionBy, first)
    for name in ("format", *_LAYOUT):
        if hasattr(writer, name):
            setattr(writer, name, _remembering(name, getattr(writer, name)))


def take_partition_by(
    options: Mapping[str, str], declared: tuple[Option, ...], *, who: str
) -> dict[str, str]:
    """Return the options with what ``start`` handed over in its place. Anywhere; pure.

    Raises ``ConfigurationError`` where the sink has no partitions, or its option says something else.
    """
    found = {name: value for name, value in options.items() if name.lower() != PARTITION_BY}
    columns = next((value for name, value in options.items() if name.lower() == PARTITION_BY), None)
    if columns is None:
        return found
    option = next((option for option in declared if option.name == "partitionBy"), None)
    if option is None:
        raise ConfigurationError(
            f"{who} has no partition columns, and the query calls partitionBy({columns}).",
            next_step="leave out partitionBy; Spark itself would drop it without a word",
        )
    given = next((value for name, value in found.items() if name.lower() == "partitionby"), None)
    if given is not None and option.read(given) != option.read(columns):
        raise ConfigurationError(
            f"{who} is given partitionBy twice: {columns} by the query, {given} as an option.",
            next_step="leave out one of them",
        )
    return {name: value for name, value in found.items() if name.lower() != "partitionby"} | {
        "partitionby": columns
    }


def no_complete_mode(who: str) -> ConfigurationError:
    """Make the error for files in complete mode."""
    return ConfigurationError(
        f"{who} cannot replace what it has written, as complete mode asks: every epoch would be added to the files of "
        "those before.",
        next_step="use update mode, by foreachBatch, and let readers take the newest row of each key; or append mode "
        "with a watermark; or, where the last result alone is wanted, df.write.mode('overwrite') in a foreachBatch of "
        "yours",
    )


def require_mode(sink: str, mode: str) -> None:
    """See that a format takes an output mode. Anywhere; pure. Raises ``ConfigurationError``.

    The mode is in lower case. ``update`` is refused by Spark itself to formats of Python.
    """
    who = PREFIX + sink
    if mode == "complete" and sink == "files":
        raise no_complete_mode(who)
    if mode == "complete" and sink not in APPEND_COMPLETE:
        raise ConfigurationError(
            f"the sink {who} cannot replace its former output, as complete mode asks",
            next_step="use append mode, or .foreachBatch(onceonly.sink(...)), where every epoch appends "
            "the whole result",
        )
    if mode == "update":
        raise ConfigurationError(
            f"the format {who} takes no update mode",
            next_step="use .foreachBatch(onceonly.sink(...)), which does",
        )


def no_format(text: str) -> OnceonlyError | None:
    """Return what a format of ours is that Spark says it has not found: misspelt, or not registered. Anywhere; pure."""
    match = _NO_FORMAT.search(text)
    if match is None:
        return None
    name = match[1].removeprefix(PREFIX)
    sinks = {*BUILT_IN, *given()}
    if name in SOURCES and name not in sinks and not has_read_limits():
        return no_read_limits(match[1])
    if name in sinks or name in SOURCES:
        return ConfigurationError(
            f"the format {match[1]} is not registered in this session",
            next_step="call onceonly.register(spark) before it is used",
        )
    near = difflib.get_close_matches(name, sorted({*sinks, *SOURCES}), n=1)
    hint = f"did you mean {PREFIX + near[0]!r}? " if near else ""
    return ConfigurationError(
        f"there is no format named {match[1]!r}",
        next_step=f"{hint}Sources: {', '.join(sorted(SOURCES))}; sinks: {', '.join(sorted(sinks))}; register your own",
    )


def no_read_limits(who: str) -> SetupError:
    """Make the error for a source under a PySpark that is too old for it."""
    return SetupError(
        f"PySpark {pyspark.__version__} does not tell a source of Python how much to read, which {who} needs",
        next_step="use PySpark 4.2 or newer",
    )


def only_streams(who: str) -> ConfigurationError:
    """Make the error for a source that is read by ``spark.read``."""
    return ConfigurationError(
        f"{who} is a stream, and spark.read reads what has an end",
        next_step="use spark.readStream, with .trigger(availableNow=True) for what is there now",
    )


def _known(error: Exception) -> OnceonlyError | None:
    text = str(error)
    return find_error(error) or no_format(text) or (_no_mode() if _NO_MODE in text else None)


def _no_mode() -> ConfigurationError:
    return ConfigurationError(
        f"a batch is written without {_MODE}, and Spark's default is none that Python formats have",
        next_step="write with .mode('append')",
    )


def _found_here(writer: Any) -> None:  # noqa: ANN401  PySpark's
    """Let Spark find our formats: it looks in its thread's session, and a thread has none before it makes a frame."""
    writer._spark.createDataFrame([], "n int")  # noqa: SLF001  there is no other way to it


def _nothing(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def method(self: Any, *_: Any) -> Any:  # noqa: ANN401  PySpark's own
        return self

    return method


def _remembering(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  PySpark's own
        done = real(self, *arguments, **named)
        self.__dict__.setdefault(_ASKED, {})[name] = (*arguments, *named.values())
        return done

    return method


def _telling(
    real: Callable[..., Any],
    later: Mapping[str, Callable[..., Any]],
    first: Callable[[Any], None],
    more: Callable[[], Mapping[str, str]],
    after: Callable[[Any, Any], None],
) -> Callable[..., Any]:
    @wraps(real)
    def start(
        self: Any,  # noqa: ANN401
        path: str | None = None,
        format: str | None = None,  # noqa: A002  Spark's name
        outputMode: str | None = None,  # noqa: N803
        partitionBy: str | list[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        if format is not None:
            self.format(format)
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        said = self.__dict__.get(_ASKED, {})
        told = _told(said)
        is_ours = _format(said).startswith(PREFIX)
        if is_ours:
            first(self)
            told |= more()
        else:
            for name in later.keys() & said.keys():
                later[name](self, *said[name])
        try:
            query = real(self, path, queryName=queryName, **options, **told)
        except Exception as error:
            known = _known(error) if is_ours else None
            if known is None:
                raise
            raise known.with_traceback(None) from None
        if is_ours:
            after(self, query)
        return query

    setattr(start, _ASKED, True)
    return start


def _saving(
    real: Callable[..., Any], partition_by: Callable[..., Any], first: Callable[[Any], None]
) -> Callable[..., Any]:
    @wraps(real)
    def save(
        self: Any,  # noqa: ANN401
        path: str | None = None,
        format: str | None = None,  # noqa: A002  Spark's name
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803
        **options: Any,  # noqa: ANN401
    ) -> None:
        if format is not None:
            self.format(format)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        said = self.__dict__.get(_ASKED, {})
        is_ours = _format(said).startswith(PREFIX)
        if is_ours and not has_formats():
            raise SetupError(
                f"PySpark {pyspark.__version__} has no writer for formats of Python, so a batch cannot be written by "
                f"{_format(said)}",
                next_step="use PySpark 4.0 or newer; streams are written with this one, too",
            )
        told = _told(said)
        if told:
            partition_by(self)  # of no column: Spark compares them with those of a table, and there is none
        if is_ours:
            first(self)
        try:
            real(self, path, mode=mode, **options, **told)
        except Exception as error:
            known = _known(error) if is_ours else None
            if known is None:
                raise
            if unused.is_within() and (JOB in known.what or _MODE in known.what):
                raise unused.no_batch(_format(said)) from None
            raise known.with_traceback(None) from None

    setattr(save, _ASKED, True)
    return save


def _told(asked: Mapping[str, tuple[Any, ...]]) -> dict[str, str]:
    function = (asked.get("foreachBatch") or (None,))[0]
    mode = str((asked.get("outputMode") or ("",))[0]).lower()
    if mode == "complete" and getattr(function, "sink_class", None) == BUILT_IN["files"]:
        raise no_complete_mode("onceonly.files")
    name = _format(asked)
    if not name.startswith(PREFIX):
        return {}
    if mode == "update" or not has_formats():  # else it is said with the plan, of a sink that is known
        require_mode(name.removeprefix(PREFIX), mode)
    if asked.get("clusterBy"):
        raise ConfigurationError(
            f"{name} cannot cluster rows, and the query calls clusterBy.",
            next_step="leave out clusterBy; partitionBy names folders of the file sink",
        )
    columns: list[str] = []
    for each in asked.get("partitionBy", ()):
        columns += [each] if isinstance(each, str) else list(each)
    # Backquotes keep a comma in a name.
    return {PARTITION_BY: ",".join(f"`{each}`" for each in columns)} if columns else {}


def _format(asked: Mapping[str, tuple[Any, ...]]) -> str:
    return str((asked.get("format") or ("",))[0])
