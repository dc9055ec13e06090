"""What a streaming query was asked for, and Spark does not tell a Python data source: ``partitionBy``, ``clusterBy``.

Spark hands a Python data source its options and no more, so a query that says ``writeStream.partitionBy("day")``
would be written without partitions, and nobody told. ``install`` makes the Python methods remember their arguments,
and ``start`` give it to formats of onceonly as an option; formats of others get what they always got. It is not seen
where the query is started from Scala or Java, or its writer was partitioned before ``onceonly.register``.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.settings.query import PREFIX
from onceonly.settings.registry import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceonly.options import Option

PARTITION_BY = f"{PREFIX}partitionby"
"""The option, in lower case as Spark gives it, in which ``start`` hands over the columns."""
_ASKED = "_onceonly_asked"


def install() -> None:
    """Let this process's ``DataStreamWriter`` remember. Driver; any number of times."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    wrap(DataStreamWriter)


def wrap(writer: Any, *, more: Callable[[], Mapping[str, str]] = dict) -> None:  # noqa: ANN401  a class of PySpark's
    """Wrap the methods of a writer's class. Idempotent. ``more`` gives further options of each start by our formats."""
    if hasattr(writer.start, _ASKED):
        return
    for name in ("format", "partitionBy", "clusterBy", "outputMode", "foreachBatch"):
        if hasattr(writer, name):
            setattr(writer, name, _remembering(name, getattr(writer, name)))
    writer.start = _telling(writer.start, more)


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


def _remembering(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def method(self: Any, *arguments: Any) -> Any:  # noqa: ANN401  PySpark's own
        done = real(self, *arguments)
        self.__dict__.setdefault(_ASKED, {})[name] = arguments
        return done

    return method


def _telling(real: Callable[..., Any], more: Callable[[], Mapping[str, str]]) -> Callable[..., Any]:
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
        told = {**_told(said), **(more() if _format(said).startswith(PREFIX) else {})}
        return real(self, path, queryName=queryName, **options, **told)

    setattr(start, _ASKED, True)
    return start


def _told(asked: Mapping[str, tuple[Any, ...]]) -> dict[str, str]:
    function = (asked.get("foreachBatch") or (None,))[0]
    mode = str((asked.get("outputMode") or ("",))[0]).lower()
    if mode == "complete" and getattr(function, "sink_class", None) == BUILT_IN["files"]:
        raise no_complete_mode("onceonly.files")
    name = _format(asked)
    if not name.startswith(PREFIX):
        return {}
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
