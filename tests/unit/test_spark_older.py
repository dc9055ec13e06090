"""PySpark 3.5 has no formats in Python: what needs them is named here, and all the rest is imported without."""

from __future__ import annotations

import json
import os
import subprocess
import sys

FORMATS = {
    "batch",
    "beside_format",
    "collection_source",
    "feed_source",
    "format",
    "kinesis_source",
    "rabbitmq_stream_source",
    "writer",
}
"""Modules of ``onceonly.spark``."""
_IMPORT_ALL = """
import importlib, json, pkgutil, sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name in {"pyspark.sql.datasource", "pyspark.sql.streaming.datasource"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
import onceonly, onceonly.spark
asked = [getattr(onceonly, name) for name in onceonly.__all__]
failed = {}
for found in pkgutil.iter_modules(onceonly.spark.__path__):
    try:
        importlib.import_module("onceonly.spark." + found.name)
    except ModuleNotFoundError as error:
        failed[found.name] = error.name
print(json.dumps([len(asked), failed]))
"""


def test_only_what_makes_formats_needs_a_pyspark_that_has_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT_ALL], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    names, failed = json.loads(done.stdout)
    assert names > 10
    assert set(failed) == FORMATS, failed
    assert all(name.endswith(("sql.datasource", "streaming.datasource")) for name in failed.values())
