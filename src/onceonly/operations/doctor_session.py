"""What ``onceonly doctor`` sees of the Spark that is installed here: its version, and its Kafka connector.

A checkpoint holds no settings of the job's session. So of jars, only those of ``spark-defaults.conf`` and of Spark's
own folder are known.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import SetupError
from onceonly.guards.source import KAFKA
from onceonly.jars.installed import installed, jars
from onceonly.operations import before_start
from onceonly.operations.probes import Unasked
from onceonly.stores.configuration import properties

if TYPE_CHECKING:
    from onceonly.operations.find import Checkpoint

_ARTIFACT = "spark-sql-kafka-0-10"


def spark() -> None:
    """See that the Spark of this machine is not too old."""
    try:
        before_start.spark_fits()
    except SetupError as error:
        raise Unasked(error.what, "run this where the job runs, to have its Spark looked at, too") from None


def reads_kafka(checkpoint: Checkpoint) -> bool:
    """Say whether the newest start has found a Kafka source of Spark's."""
    known = checkpoint.sources
    return known is not None and any(each.split(",")[0] == KAFKA for each in known.formats)


def connector() -> None:
    """See that the Kafka connector that sessions here get is that of this Spark."""
    try:
        installed()
    except SetupError as error:
        raise Unasked(error.what, "run this where the job runs, to have its jars looked at, too") from None
    settings = _defaults()
    own = [str(path) for path in jars(f"{_ARTIFACT}_*.jar")]
    given = ",".join(filter(None, [settings.get("spark.jars", ""), *own]))
    if _ARTIFACT not in given + settings.get("spark.jars.packages", ""):
        raise Unasked(
            "the source is Kafka's, and which jars the job's session gets stands in no file of this Spark's",
            "compare spark.jars of the job with what `onceonly jars --spark` prints, or describe the job with --for",
        )
    before_start.connector_fits({**settings, "spark.jars": given})


def _defaults() -> dict[str, str]:
    folder = os.environ.get("SPARK_CONF_DIR") or (
        f"{os.environ['SPARK_HOME']}/conf" if os.environ.get("SPARK_HOME") else ""
    )
    try:
        return dict(properties((Path(folder) / "spark-defaults.conf").read_text("utf-8"))) if folder else {}
    except (OSError, UnicodeDecodeError):
        return {}
