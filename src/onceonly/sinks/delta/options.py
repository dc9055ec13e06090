"""The options of the Delta sink."""

from __future__ import annotations

from onceonly.families import loaded
from onceonly.options import Option
from onceonly.sinks.delta.place import read_place

DECLARED = (
    Option(
        name="path", required=True, read=read_place,
        doc="where the table is: s3a://bucket/folder, gs://…, abfss://…, or a folder that all machines share, also as "
        "file:///path",
    ),
    *loaded.DECLARED,
)  # fmt: skip
