"""Python runs this when it starts; in Spark's daemons it imports what workers need, before the first is forked.

A campaign's workers die by the hundred, and each new one would spend most of a second on imports. The folder is put
on the path of a campaign's jobs alone.
"""  # noqa: INP001  it is found by its folder, and is no package

import importlib
import sys

# None of these starts a thread when it is imported, as pyarrow and numpy do, so they outlive a fork.
_FORMAT = ("onceonly.spark.format", "onceonly.sinks.files.sink", "onceonly.sinks.kafka.sink")
_DRIVER = (*_FORMAT, "kafka")
# Most daemons start in a query's recovery: they import what workers of their module need, and no more.
NEEDED = {
    "pyspark.worker": (*_DRIVER, "confluent_kafka.admin"),
    "pyspark.sql.worker.write_into_data_source": _DRIVER,
    "pyspark.sql.worker.create_data_source": _FORMAT,
    "pyspark.sql.worker.python_streaming_sink_runner": _DRIVER,
}

if "pyspark.daemon" in sys.orig_argv:
    worker = sys.orig_argv[-1]
    for name in (worker, *NEEDED.get(worker, ())):
        importlib.import_module(name)
