"""End-to-end exactly-once for Apache Spark Structured Streaming.

Names are loaded at their first use, so that ``import onceonly`` works, and is quick, where PySpark or a
sink's client library is not installed. ``__init__.pyi`` tells the type checker the same.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [
    "AdoptionError",
    "AlreadyCommitted",
    "Capabilities",
    "CheckpointMovedError",
    "CommitDelayedError",
    "CommitRefusedError",
    "Committed",
    "ConfigurationError",
    "EpochTimeoutError",
    "ExponentialDelay",
    "FailureRate",
    "FixedDelay",
    "Guarantee",
    "Handle",
    "InDoubtError",
    "Leftover",
    "LogError",
    "Lost",
    "NoRestart",
    "OnceonlyError",
    "Option",
    "ProtocolError",
    "QueryContext",
    "RecordRefusedError",
    "Refused",
    "ReplayMismatchError",
    "RetryLater",
    "SetupError",
    "SourceChangedError",
    "StagedRows",
    "StagedSink",
    "SupersededError",
    "TargetBehindError",
    "TransactionLostError",
    "TwoPhaseCommitSink",
    "UnavailableError",
    "Unknown",
    "WriteContext",
    "WriteFailedError",
    "collection",
    "configure",
    "epoch",
    "explain",
    "files",
    "look",
    "packages",
    "register",
    "sink",
    "spark_jars",
    "supervise",
]

_HOMES: dict[str, tuple[str, ...]] = {
    "onceonly.families.staged": ("StagedRows", "StagedSink"),
    "onceonly.jars.locked": ("packages", "spark_jars"),
    "onceonly.looking": ("look",),
    "onceonly.model": (
        "AlreadyCommitted",
        "Capabilities",
        "Committed",
        "Guarantee",
        "Handle",
        "Lost",
        "RetryLater",
        "Unknown",
    ),
    "onceonly.options": ("Option",),
    "onceonly.ports": ("Leftover", "QueryContext", "Refused", "TwoPhaseCommitSink", "WriteContext"),
    "onceonly.settings.restart": ("ExponentialDelay", "FailureRate", "FixedDelay", "NoRestart"),
    "onceonly.spark.collection": ("collection",),
    "onceonly.spark.configure": ("configure",),
    "onceonly.spark.epoch": ("epoch",),
    "onceonly.spark.foreach_batch": ("sink",),
    "onceonly.spark.register": ("register",),
    "onceonly.spark.supervise": ("explain", "supervise"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever the name stands for
    if name not in __all__:
        message = f"module 'onceonly' has no attribute {name!r}"
        raise AttributeError(message)
    if name == "files":
        return importlib.import_module("onceonly.files")
    value = getattr(importlib.import_module(_HOME_OF.get(name, "onceonly.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
