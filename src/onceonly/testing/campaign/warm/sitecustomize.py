"""Python runs this when it starts; in Spark's daemons it imports what workers need, before the first is forked.

A campaign's workers die by the hundred, and each new one would spend most of a second on imports. The folder is put
on the path of a campaign's jobs alone.
"""  # noqa: INP001  it is found by its folder, and is no package

import importlib
import sys

# None of them starts a thread when it is imported, so they outlive a fork.
_NEEDED = (
    "confluent_kafka.admin",
    "kafka",
    "onceonly.sinks.files.sink",
    "onceonly.sinks.kafka.sink",
    "onceonly.spark.format",
    "pyarrow",
    "pyspark.worker",
)

if "pyspark.daemon" in sys.orig_argv:
    for name in _NEEDED:
        importlib.import_module(name)
