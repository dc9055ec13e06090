"""The options of the file sink, named as Spark's where it has the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.options import Option, size, span, whole
from onceonly.sinks.files.paths import HIDDEN, local_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OF_LINES = ("none", "gzip", "bzip2", "deflate")
COMPRESSIONS = {
    "parquet": ("snappy", "gzip", "zstd", "lz4", "none"),
    "json": _OF_LINES,
    "csv": _OF_LINES,
    "text": _OF_LINES,
}
"""What each format can be compressed with so that Spark and others read it; the first is the default."""
_SAME = {"uncompressed": "none", "lz4_raw": "lz4", "lz4raw": "lz4"}
_ENDINGS = {"none": "", "gzip": ".gz", "bzip2": ".bz2"}
_NONE_YET = {
    # Spark's own file sinks know these; what of it we can write, we say by other means.
    "nullvalue": "a null is an empty field of csv, and left out of json; coalesce the column for another text",
    "emptyvalue": "the empty text is two quotes in csv",
    "timestampformat": "times are written as ISO 8601; for another form, write a column made by date_format(…)",
    "timestampntzformat": "times are written as ISO 8601; for another form, write a column made by date_format(…)",
    "dateformat": "dates are written as 2026-11-21; for another form, write a column made by date_format(…)",
    "linesep": "lines end in a line feed",
    "encoding": "texts are UTF-8",
    "charset": "texts are UTF-8",
    "quote": "csv is quoted by the double quote",
    "escape": "csv is escaped by the backslash",
    "quoteall": "csv is quoted where a value needs it",
    "escapequotes": "csv is quoted where a value needs it",
    "ignorenullfields": "a null field is left out of json",
    "ignoreleadingwhitespace": "values are written as they are; trim the column",
    "ignoretrailingwhitespace": "values are written as they are; trim the column",
    "mergeschema": "it is for reading; onceonly.files.read puts columns of different epochs together",
    "cleansource": "it is an option of a source",
}


def refuse_sparks_own(given: Mapping[str, str]) -> None:
    """Name an option that Spark's file sinks have and this one has not. Raises ``ConfigurationError``."""
    for name in given:
        why = _NONE_YET.get(name.lower())
        if why is None and name.lower().startswith(("parquet.", "orc.", "mapreduce.", "spark.")):
            why = "files are written by pyarrow, which does not know settings of Hadoop's writers"
        if why is not None:
            raise ConfigurationError(
                f"The option {name} of Spark's file sinks is none of the sink files: {why}.",
                next_step="leave it out",
            )


def form_of(text: str) -> str:
    """Read the name of a format. Raises ``ConfigurationError`` for Avro, which pyarrow cannot write, and for ORC."""
    if text.lower() == "orc":
        raise ConfigurationError(
            "The sink files cannot write ORC: of what pyarrow writes, Spark reads no timestamp_ntz.",
            next_step="set format to parquet, which keeps the same types",
        )
    if text.lower() == "avro":
        raise ConfigurationError(
            "The sink files cannot write Avro: pyarrow has no writer for it.",
            next_step="set format to parquet, which keeps the same types",
        )
    return text


def names(text: str) -> tuple[str, ...]:
    """Read names separated by commas; backquotes around a name keep a comma in it."""
    found, name, quoted = [], "", False
    for letter in text:
        if letter == "`":
            quoted = not quoted
        elif letter == "," and not quoted:
            found.append(name.strip())
            name = ""
        else:
            name += letter
    found.append(name.strip())
    # Columns are found whatever their case, and no two differ in it only.
    if quoted or (text.strip() and not all(found)) or len({each.lower() for each in found}) < len(found):
        raise ValueError(text)
    return tuple(found) if text.strip() else ()


def some_bytes(text: str) -> int:
    """Read a size of at least one byte."""
    found = size(text)
    if not found:
        raise ValueError(text)
    return found


def separator(text: str) -> str:
    r"""Read a separator: one character, ``\t`` for a tab."""
    found = {"\\t": "\t"}.get(text, text)
    if len(found) != 1 or found in '"\\\r\n\0' or not found.isascii():
        raise ValueError(text)
    return found


DECLARED = (
    Option(
        name="path", required=True, read=local_path,
        doc="the folder of the target: a local path or a mount that all machines share, also as file:///path",
    ),
    Option(
        name="format", default="parquet", choices=tuple(COMPRESSIONS), read=form_of,
        doc="what the files are: parquet, json (lines), csv or text",
    ),
    Option(
        name="partitionBy", default="", read=names, form="names of columns, separated by commas, none twice",
        doc="the columns that name folders, as in df.write.partitionBy; separated by commas",
    ),
    Option(
        name="maxFileSize", default="128m", read=some_bytes, form="a number of bytes such as 64m or 1g",
        doc="a file that has grown to this size is closed, and the rows go on in another",
    ),
    Option(
        name="maxRecordsPerFile", default="0", read=whole, form="a whole number; 0 for no limit",
        doc="a file with so many rows is closed, and the rows go on in another; 0 for no limit",
    ),
    Option(
        name="compression",
        doc="parquet: snappy (default), gzip, zstd, lz4 or none; the "
        "others: none (default), gzip, bzip2 or deflate",
    ),
    Option(
        name="header", default="false", choices=("true", "false"),
        doc="csv only: true writes the names of the columns as the first line of each file",
    ),
    Option(
        name="sep", default=",", read=separator, form="one ASCII character, or \\t",
        doc="csv only: what stands between two values",
    ),
    Option(
        name="retention", read=span,
        doc="epochs that are older than this time, such as 7 days, leave the manifests, and an hour later their files "
        "are deleted; by default all stay",
    ),
    Option(
        name="staging", read=local_path,
        doc="the folder of temporary files, on the target's file system; default _onceonly/staging in the target",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOptions:
    """The checked options. ``target`` and ``staging`` are absolute; links are not resolved."""

    target: Path
    staging: Path
    form: str
    partition_by: tuple[str, ...]
    file_bytes_max: int
    file_rows_max: int
    """0 for no limit."""
    compression: str
    header: bool
    sep: str
    retention_s: float | None = None
    """None for ever."""

    @classmethod
    def of(cls, values: Mapping[str, Any], given: Mapping[str, str]) -> FilesOptions:
        """Take values that ``read_options`` has read. Raises ``ConfigurationError``. Pure."""
        form: str = values["format"]
        for name in ("header", "sep"):
            if form != "csv" and name in {each.lower() for each in given}:
                raise ConfigurationError(
                    f"The option {name} of the sink files is for csv, and format is {form}.",
                    next_step=f"remove it, or set format to csv; {_doc(name)}",
                )
        compression = (values["compression"] or COMPRESSIONS[form][0]).lower()
        compression = _SAME.get(compression, compression)
        if compression not in COMPRESSIONS[form]:
            raise ConfigurationError(
                f"The option compression of the sink files is {compression!r}, and must be one of "
                f"{', '.join(COMPRESSIONS[form])} for {form}.",
                next_step=_doc("compression"),
            )
        return cls(
            target=values["path"],
            staging=values["staging"] or values["path"] / HIDDEN / "staging",
            form=form,
            partition_by=values["partitionBy"],
            file_bytes_max=values["maxFileSize"],
            file_rows_max=values["maxRecordsPerFile"],
            compression=compression,
            header=values["header"] == "true",
            sep=values["sep"],
            retention_s=values["retention"],
        )

    @property
    def extension(self) -> str:
        """The end of the names of data files, as Spark's."""
        form = {"text": "txt"}.get(self.form, self.form)
        short = _ENDINGS.get(self.compression, f".{self.compression}")
        return f"{short}.{form}" if self.form == "parquet" else f".{form}{short}"


def _doc(name: str) -> str:
    return next(option.doc for option in DECLARED if option.name == name)
