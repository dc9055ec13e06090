"""The format by which a client of Spark Connect asks the server's Python how its query stands: see ``beside``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StringType, StructField, StructType

from onceonly.spark.beside import FORMAT, answer
from onceonly.stores.access import Hadoop
from onceonly.stores.opened import tell

if TYPE_CHECKING:
    from collections.abc import MutableMapping


class Beside(DataSource):
    """The format that answers. Its options may hold secrets of the source's and are never shown."""

    hadoop: ClassVar[Hadoop] = Hadoop()

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._given = {name.lower(): text for name, text in options.items()}

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Answer, by the name of a column. Once a question; idempotent."""
        tell(self.hadoop)
        return StructType([StructField(json.dumps(answer(self._given)), StringType())])


def make_format(hadoop: Hadoop) -> type[Beside]:
    """Make the format; ``hadoop`` is how the stores of checkpoints are reached, and travels in the class alone."""
    return type("BesideFormat", (Beside,), {"hadoop": hadoop})
