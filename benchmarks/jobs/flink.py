"""The Flink job of a contender: ``python -m benchmarks.jobs.flink FOLDER``, in an environment of its own. SQL only.

No record passes through Python, as Flink's SQL runs in the JVM: its best case.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from benchmarks.jobs.orders import serve
from onceonly_proof.parent import die_with_parent


class Job:
    """What the orders act on."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._client: Any = None
        self._number = 0

    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        """Start the statement that the order describes."""
        from pyflink.common import Configuration
        from pyflink.table import EnvironmentSettings, TableEnvironment

        conf = Configuration()
        own = {
            "execution.checkpointing.interval": f"{order['interval_ms']} ms",
            "execution.checkpointing.dir": f"file://{order['checkpoint']}",
        }
        for name, setting in {**self._told["conf"], **own}.items():
            conf.set_string(name, setting)
        settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build()
        tables = TableEnvironment.create(settings)
        self._number += 1
        for statement in _tables(order, self._number):
            tables.execute_sql(statement)
        self._client = tables.execute_sql(_insert(order, self._number)).get_job_client()
        return {}

    def check(self, _order: dict[str, Any]) -> dict[str, Any]:
        """Say whether the job goes on, and why not."""
        status = str(self._client.get_job_status().result())
        if any(word in status for word in ("FAILED", "FAILING", "CANCELED", "FINISHED")):
            return {"error": f"the job is {status}"}
        return {}

    def stop(self, _order: dict[str, Any]) -> dict[str, Any]:
        """End the job; what of it is not committed is dropped."""
        if self._client is not None:
            self._client.cancel().result()
            self._client = None
        return {"epochs": []}


def _tables(order: dict[str, Any], number: int) -> list[str]:
    source = {
        "connector": "kafka",
        "topic": order["source"],
        "properties.bootstrap.servers": order["servers"],
        "properties.group.id": f"flink-{order['name']}",
        "scan.startup.mode": "earliest-offset",
        **_RAW,
        **order["source_options"],
    }
    sink = {
        "connector": "kafka",
        "topic": order["target"],
        "properties.bootstrap.servers": order["servers"],
        "sink.transactional-id-prefix": f"flink-{order['name']}",
        **_RAW,
        **order["sink"],
    }
    is_window = order["kind"] == "window"
    event_time = (
        ", ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', "
        f"WATERMARK FOR ts AS ts - INTERVAL '{order['late_ms'] / 1000:.3f}' SECOND"
        if is_window
        else ""
    )
    key, value = ("STRING", "STRING") if is_window else ("BYTES", "BYTES")
    return [
        f"CREATE TABLE source_{number} (k {key}, v {value}{event_time}) WITH ({_with(source)})",
        f"CREATE TABLE sink_{number} (k {key}, v {value}) WITH ({_with(sink)})",
    ]


def _insert(order: dict[str, Any], number: int) -> str:
    if order["kind"] != "window":
        return f"INSERT INTO sink_{number} SELECT k, v FROM source_{number}"  # noqa: S608  names of our own
    length = f"INTERVAL '{order['window_ms'] / 1000:.3f}' SECOND"
    begin = "DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss.SSS')"
    return (
        f"INSERT INTO sink_{number} SELECT k, CONCAT({begin}, ',', CAST(COUNT(*) AS STRING)) "  # noqa: S608  as above
        f"FROM TABLE(TUMBLE(TABLE source_{number}, DESCRIPTOR(ts), {length})) "
        "GROUP BY k, window_start, window_end"
    )


_RAW = {
    "key.format": "raw",
    "key.fields": "k",
    "value.format": "raw",
    "value.fields-include": "EXCEPT_KEY",
}


def _with(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def main() -> None:
    """Take orders."""
    die_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    told: dict[str, Any] = json.loads((folder / "session.json").read_text(encoding="utf-8"))
    os.environ["JVM_ARGS"] = f"{os.environ.get('JVM_ARGS', '')} {told['java']}".strip()
    # Started before the job says that it is ready, as Spark's session is.
    from pyflink.java_gateway import get_gateway

    get_gateway()
    job = Job(told)
    serve(folder, {"start": job.start, "check": job.check, "stop": job.stop})


if __name__ == "__main__":
    main()
