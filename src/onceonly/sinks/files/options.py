"""The options of the file sink, named as Spark's where it has the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.options import Option, size
from onceonly.sinks.files.paths import HIDDEN, local_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COMPRESSIONS = {
    "parquet": ("snappy", "gzip", "zstd", "none"),
    "json": ("none", "gzip"),
    "csv": ("none", "gzip"),
    "text": ("none", "gzip"),
}
"""What each format can be compressed with; the first is the default."""


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
        name="format", default="parquet", choices=tuple(COMPRESSIONS),
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
        name="compression",
        doc="parquet: snappy (default), gzip, zstd or none; the others: none (default) or gzip",
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
    compression: str
    header: bool
    sep: str

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
        compression = {"uncompressed": "none"}.get(compression, compression)
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
            compression=compression,
            header=values["header"] == "true",
            sep=values["sep"],
        )

    @property
    def extension(self) -> str:
        """The end of the names of data files, as Spark's."""
        form = {"text": "txt"}.get(self.form, self.form)
        short = {"none": "", "gzip": ".gz"}.get(self.compression, f".{self.compression}")
        return f"{short}.{form}" if self.form == "parquet" else f".{form}{short}"


def _doc(name: str) -> str:
    return next(option.doc for option in DECLARED if option.name == name)
