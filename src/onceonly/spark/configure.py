"""``onceonly.configure``: a session's settings that make epochs short, each with its reason and its risk."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onceonly.jars.installed import has_class
from onceonly.spark.processes.start import FOLDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("onceonly")

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
RAW_FILES = ("spark.hadoop.fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
CHANGELOG = {
    PROVIDER: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
"""State in RocksDB, of which an epoch stores what has changed, and a task beside it the whole now and then."""
_STREAMING = "org.apache.spark.sql.execution.streaming."
_FILES = "FileSystemBasedCheckpointFileManager"
_IDLE_JAVA = (
    "-XX:TieredStopAtLevel=1",
    # Java refuses to start a process by a way that its system does not have.
    *(("-Djdk.lang.Process.launchMechanism=VFORK",) if sys.platform == "linux" else ()),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of Spark."""

    name: str
    value: str
    why: str
    risk: str
    only_for: Literal[
        "all", "local checkpoints", "local checkpoints without RocksDB", "small rows", "an idle driver"
    ] = "all"
    """Local checkpoints are on local and mounted file systems; small rows have below 50 KB, most of them; a driver is
    idle between epochs where it works on no rows, or on few."""
    shown: str = ""
    """What pages show instead of a value that differs from machine to machine."""
    before: str = ""
    """Of a value that is a class of Spark's: its name in older versions."""

    def value_here(self) -> str:
        """Return the value for the PySpark that is installed; empty where it lacks the class. Driver."""
        if not self.before:
            return self.value
        # A class that is not there would fail every query.
        return next((name for name in (self.value, self.before) if has_class(name)), "")


SETTINGS = (
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        f"{_STREAMING}checkpointing.{_FILES}",
        "Spark's default looks for symbolic links by starting a process for each file of a checkpoint",
        "a file is written under another name and renamed, as before; on HDFS the default renames more safely, so "
        "leave this one out for a checkpoint there",
        only_for="local checkpoints",
        before=f"{_STREAMING}{_FILES}",
    ),
    Setting(
        *RAW_FILES,
        "Hadoop's default writes a checksum file beside each file, and starts a process for its permissions",
        "damage of Spark's own checkpoint files is no longer told by a checksum (onceonly's files carry their own); "
        "to go back to the default, delete the old checksum files first; Spark cannot store RocksDB's state by it, so "
        "leave this one out where a query keeps its state there: `configure(builder, rocksdb=True)`",
        only_for="local checkpoints without RocksDB",
    ),
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "loopback TCP between the JVM and a Python worker stalls for up to 40 ms on small answers",
        "none known: both are on one machine; its sockets stand in the folder for temporary files, whose path must "
        "be shorter than about 60 letters",
    ),
    Setting(
        "spark.executorEnv.PYTHONPATH",
        str(FOLDER),
        "each Python process that Spark starts would compile PySpark anew from a zip, over a second; a query with a "
        "Python sink starts three, one after the other, before its first rows are visible",
        "replaces a value in `spark-defaults.conf`: then set both, joined by a colon; where PySpark does not come from "
        "pip, nothing changes",
        shown="a folder in onceonly",
    ),
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        str(2**31 - 1),
        "on their way to Python, rows are packed into batches, and by default Spark adds up the size of the batch anew "
        "for every row; this number turns that off",
        "a batch is bounded by its number of rows alone, in the JVM and in Python, and one of over 2 GB fails the "
        "query: call `configure(builder, large_rows=True)` where many rows have over 50 KB",
        only_for="small rows",
    ),
    Setting(
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "4000",
        "bounds the batches in place of their bytes; smaller ones cost a row of 100 bytes more, and Spark's default of "
        "10,000 a row of 1 KB",
        "a Python function of yours that takes batches gets smaller ones",
        only_for="small rows",
    ),
    Setting(
        "spark.driver.extraJavaOptions",
        " ".join(_IDLE_JAVA),
        "what a driver does once an epoch takes its JVM's second compiler for minutes, beside the epochs, and gains "
        "nothing by it; its first one is soon done. And on Linux: for the permissions of each file of a checkpoint "
        "Hadoop starts a process, which takes half as long where Java does not start another one in between",
        "in `local[…]`, where the driver works on rows, each row costs more; replaces a value in "
        "`spark-defaults.conf`; a JVM that runs already does not take it: give `spark-submit` the same as "
        "`--driver-java-options`; a Java after 25 may know `VFORK` no longer, and would not start a process then",
        only_for="an idle driver",
    ),
)


def is_rocksdb(provider: object) -> bool:
    """Say whether a state store's provider is RocksDB, by the name of its class. Pure."""
    return "RocksDB" in str(provider or "")


def configure(
    builder: SparkSession.Builder,
    *,
    local_checkpoints: bool = True,
    large_rows: bool = False,
    idle_driver: bool = False,
    rocksdb: bool = False,
    changelog: bool = False,
) -> SparkSession.Builder:
    """Put the settings that make epochs short into a session's builder, and return it.

    Driver, once, before the session is built. What is set on the builder afterwards wins. A class that the installed
    PySpark lacks is left out; a setting that it does not know does nothing. ``local_checkpoints=False`` leaves out what
    is right only where all checkpoints of the session are on local or mounted file systems; ``large_rows=True`` what is
    right only where rows of over 50 KB are rare. ``idle_driver=True`` adds what is right where the driver works on no
    rows, as on a cluster, or on few. ``rocksdb=True`` leaves out what Spark cannot store RocksDB's state by; it goes
    without saying where the builder has RocksDB as the state store's provider already. ``changelog=True`` keeps the
    state of new queries in RocksDB with its changelog; a query keeps the provider that it began with.
    """
    for name, value in CHANGELOG.items() if changelog else ():
        builder = builder.config(name, value)
    rocksdb = rocksdb or changelog or is_rocksdb(getattr(builder, "_options", {}).get(PROVIDER))
    right = {
        "all": True,
        "local checkpoints": local_checkpoints,
        "local checkpoints without RocksDB": local_checkpoints and not rocksdb,
        "small rows": not large_rows,
        "an idle driver": idle_driver,
    }
    for setting in SETTINGS:
        value = setting.value_here()
        if right[setting.only_for] and value:
            builder = builder.config(setting.name, value)
        elif not value:
            log.debug("%s is left out: this PySpark has no class for it.", setting.name)
    return builder
