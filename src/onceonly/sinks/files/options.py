"""The options of the file sink, named as Spark's where it has the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.families import behind
from onceonly.families.columns import names
from onceonly.options import Option, boolean, some_bytes, span, whole
from onceonly.sinks.files.formats.texts import Texts
from onceonly.sinks.files.paths import HIDDEN, RemotePath, target_path
from onceonly.stores.address import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OF_LINES = ("none", "gzip", "bzip2", "deflate", "zstd")
COMPRESSIONS = {
    "parquet": ("snappy", "gzip", "zstd", "lz4", "none"),
    "orc": ("zstd", "snappy", "zlib", "lz4", "none"),
    "json": _OF_LINES,
    "csv": _OF_LINES,
    "text": _OF_LINES,
}
"""What each format can be compressed with so that Spark and others read it; the first is the default."""
_LINES = ("json", "csv", "text")
_HADOOPS = (
    "take zstd, which is as quick; what Hadoop names lz4 and snappy are framings of its own, which other readers do "
    "not know and nothing here writes"
)
_SAME = {"uncompressed": "none", "lz4_raw": "lz4", "lz4raw": "lz4"}
_ENDINGS = {"none": "", "gzip": ".gz", "bzip2": ".bz2"}
_CSV = ("header", "sep", "delimiter", "quote", "escape", "quoteall", "nullvalue", "emptyvalue")
_TIMES = ("dateformat", "timestampformat", "timestampntzformat")
_FOR = {
    **dict.fromkeys(_CSV, ("csv",)),
    **dict.fromkeys(_TIMES, ("json", "csv")),
    "ignorenullfields": ("json",),
    "encoding": _LINES,
}
"""The formats that an option is for; one that is not here is for all."""
_NONE_YET = {
    # Spark's own file sinks know these; what of it we can write, we say by other means.
    "charset": "texts are UTF-8",
    "linesep": "lines end in a line feed",
    "escapequotes": "csv is quoted where a value needs it, or everywhere by quoteAll",
    "chartoescapequoteescaping": "the character of escape is escaped by itself",
    "timezone": "times are written in the session's zone, spark.sql.session.timeZone",
    "locale": "names of months are English",
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
    """Read the name of a format. Raises ``ConfigurationError`` for Avro, which pyarrow cannot write."""
    if text.lower() == "avro":
        raise ConfigurationError(
            "The sink files cannot write Avro: pyarrow has no writer for it.",
            next_step="set format to parquet, which keeps the same types",
        )
    return text


def separator(text: str) -> str:
    r"""Read a separator: one character, ``\t`` for a tab."""
    found = {"\\t": "\t"}.get(text, text)
    if len(found) != 1 or found in "\r\n\0" or not found.isascii():
        raise ValueError(text)
    return found


def sign(text: str) -> str:
    """Read a character that quotes or escapes."""
    if len(text) != 1 or not text.isascii() or not text.isprintable() or text.isalnum() or text in " #":
        raise ValueError(text)
    return text


def one_line(text: str) -> str:
    """Read a text that makes no line of its own. Raises ``ValueError`` for one that does."""
    if set(text) & set("\r\n"):
        raise ValueError(text)
    return text


def utf8(text: str) -> str:
    """Read the name of the only encoding. Raises ``ValueError`` for another."""
    if text.lower() not in {"utf-8", "utf8"}:
        raise ValueError(text)
    return "UTF-8"


DECLARED = (
    Option(
        name="path", required=True, read=target_path,
        doc="the folder of the target: a path that all machines share, also as file:///path; s3a://bucket/path; "
        "hdfs://namenode/path",
    ),
    Option(
        name="format", default="parquet", choices=tuple(COMPRESSIONS), read=form_of,
        doc="what the files are: parquet, orc, json (lines), csv or text",
    ),
    Option(
        name="partitionBy", default="", read=names, form="names of columns, separated by commas, none twice",
        doc="the columns that name folders, as in df.write.partitionBy; separated by commas",
    ),
    Option(
        name="maxFileSize", default="128m", read=some_bytes,
        doc="a file that has grown to this size is closed, and the rows go on in another",
    ),
    Option(
        name="maxRecordsPerFile", default="0", read=whole, form="a whole number; 0 for no limit",
        doc="a file with so many rows is closed, and the rows go on in another; 0 for no limit",
    ),
    Option(
        name="compression",
        doc="parquet: snappy (default), gzip, zstd, lz4 or none; orc: zstd (default), snappy, zlib, lz4 or none; the "
        "others: none (default), gzip, bzip2, deflate or zstd",
    ),
    Option(
        name="header", default="false", read=boolean,
        doc="csv only: true writes the names of the columns as the first line of each file",
    ),
    Option(
        name="sep", read=separator, form="one ASCII character, or \\t",
        doc="csv only: what stands between two values; a comma by default",
    ),
    Option(
        name="delimiter", read=separator, form="one ASCII character, or \\t", doc="csv only: another name of sep",
    ),
    Option(
        name="quote", default='"', read=sign, form="one ASCII character that is no letter, digit, blank or #",
        doc="csv only: what stands around a value that needs it",
    ),
    Option(
        name="escape", default="\\", read=sign, form="one ASCII character that is no letter, digit, blank or #",
        doc="csv only: what stands before a quote inside a quoted value; the quote itself doubles it",
    ),
    Option(
        name="quoteAll", default="false", read=boolean,
        doc="csv only: true quotes every value, nulls too",
    ),
    Option(
        name="nullValue", default="", read=one_line, form="a text of one line",
        doc="csv only: the text of null",
    ),
    Option(
        name="emptyValue", read=one_line, form="a text of one line",
        doc="csv only: the text of the empty text; two quotes by default",
    ),
    Option(
        name="ignoreNullFields", default="true", read=boolean,
        doc="json only: false writes a field that is null as null, instead of leaving it out",
    ),
    Option(
        name="dateFormat",
        doc="json and csv: the pattern of dates; by default 2026-11-21",
    ),
    Option(
        name="timestampFormat",
        doc="json and csv: the pattern of times with a zone, written in the session's; by default ISO 8601 in UTC",
    ),
    Option(
        name="timestampNTZFormat",
        doc="json and csv: the pattern of times without a zone; by default ISO 8601",
    ),
    Option(
        name="encoding", default="UTF-8", read=utf8, form="UTF-8",
        doc="text, json and csv: UTF-8, and nothing else",
    ),
    Option(
        name="retention", read=span,
        doc="epochs that are older than this time, such as 7 days, leave the manifests, and an hour later their files "
        "are deleted; by default all stay",
    ),
    Option(
        name=behind.OPTION, default=behind.STOP, choices=(behind.STOP, behind.GO_ON),
        doc=behind.DOC,
    ),
    Option(
        name="staging", read=target_path,
        doc="the folder of temporary files, on the target's file system; default _onceonly/staging in the target; none "
        "on S3",
    ),
)  # fmt: skip


_UPLOAD_BYTES_MAX = 64 << 30
"""Less than 10,000 parts, so that the last rows of a file, and its end, find room, too."""


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
    texts: Texts
    retention_s: float | None = None
    """None for ever."""
    goes_on_behind: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any], given: Mapping[str, str]) -> FilesOptions:
        """Take values that ``read_options`` has read. Raises ``ConfigurationError``. Pure."""
        form: str = values["format"]
        for name in given:
            forms = _FOR.get(name.lower(), (form,))
            if form not in forms:
                raise ConfigurationError(
                    f"The option {_option(name).name} of the sink files is for {' and '.join(forms)}, and format is "
                    f"{form}.",
                    next_step=f"remove it, or set format to {' or '.join(forms)}; {_option(name).doc}",
                )
        _refuse_elsewhere(values["staging"], values["path"])
        _refuse_too_long(values["maxFileSize"], values["path"])
        compression = (values["compression"] or COMPRESSIONS[form][0]).lower()
        compression = _SAME.get(compression, compression)
        if compression not in COMPRESSIONS[form]:
            hadoops = form in _LINES and compression in {"lz4", "snappy"}
            raise ConfigurationError(
                f"The option compression of the sink files is {compression!r}, and must be one of "
                f"{', '.join(COMPRESSIONS[form])} for {form}.",
                next_step=_HADOOPS if hadoops else _option("compression").doc,
            )
        return cls(
            target=values["path"],
            staging=values["staging"] or values["path"] / HIDDEN / "staging",
            form=form,
            partition_by=values["partitionBy"],
            file_bytes_max=values["maxFileSize"],
            file_rows_max=values["maxRecordsPerFile"],
            compression=compression,
            header=values["header"],
            texts=Texts.of(values),
            retention_s=values["retention"],
            goes_on_behind=values[behind.OPTION] == behind.GO_ON,
        )

    @property
    def extension(self) -> str:
        """The end of the names of data files, as Spark's."""
        form = {"text": "txt"}.get(self.form, self.form)
        short = _ENDINGS.get(self.compression, f".{self.compression}")
        if self.form in {"parquet", "orc"}:
            return f"{short}.{form}"
        return f".{form}{'.zst' if self.compression == 'zstd' else short}"


def _refuse_too_long(bytes_max: int, target: Path) -> None:
    """Refuse files that no upload can hold: the store would say so hours later, at each try."""
    if bytes_max > _UPLOAD_BYTES_MAX and isinstance(target, RemotePath) and target.address.kind is Kind.S3:
        raise ConfigurationError(
            f"The option maxFileSize of the sink files is {bytes_max} bytes, and an upload to S3 has no more than "
            "10,000 parts, here of 8 MB.",
            next_step="set it to 64g or less",
        )


def _refuse_elsewhere(staging: Path | None, target: Path) -> None:
    """Refuse a folder of temporary files from which no file can be moved into the target."""
    if staging is not None and isinstance(target, RemotePath) and target.address.kind is Kind.S3:
        raise ConfigurationError(
            f"The target {target} is in a bucket, where temporary files have no folder: they are uploads that wait.",
            next_step="leave the option staging out",
        )
    if staging is not None and _system(staging) != _system(target):
        raise ConfigurationError(
            f"The folder of temporary files {staging} is not where the target {target} is.",
            next_step="leave the option staging out, or name a folder on the target's file system",
        )


def _system(path: Path) -> object:
    return path.address.container if isinstance(path, RemotePath) else None


def _option(name: str) -> Option:
    return next(option for option in DECLARED if option.name.lower() == name.lower())
