"""Checkpoints on the S3 double for the tests of the operator's view: copied there as an operator copies them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.unit.s3_double import BUCKET, S3Double, serve

from onceonly.log import heartbeat
from onceonly.log.opening import accept_move
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.configuration import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest
    from tests.unit.operator_bench import QueryCoordinator

SECRET = "hunter2/with+letters="  # noqa: S105  of nobody


def told(monkeypatch: pytest.MonkeyPatch, file: Path, text: str) -> None:
    """Write what a job gives to Hadoop into a file, and let all commands and this process take it from there."""
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("ONCEONLY_HADOOP_CONF", str(file))
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.setattr(heartbeat, "_hearts", {})
    monkeypatch.setattr(opened, "_clients", {})
    monkeypatch.setattr(opened, "_told", Hadoop())
    opened.tell(settings([file]))


def serving(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[S3Double]:
    """Serve a bucket that every command here knows by a file of settings."""
    for double in serve(S3Double()):
        told(
            monkeypatch,
            folder / "spark-defaults.conf",
            f"# of the job\nspark.hadoop.fs.s3a.endpoint {double.url}\n"
            "spark.hadoop.fs.s3a.path.style.access=true\nspark.hadoop.fs.s3a.endpoint.region us-east-1\n"
            f"spark.hadoop.fs.s3a.access.key ak\nspark.hadoop.fs.s3a.secret.key {SECRET}\n",
        )
        yield double
        heartbeat.end()


def upload(double: S3Double, folder: Path, prefix: str, *, exclude: str = "") -> None:
    """Copy a folder to the bucket, as ``aws s3 cp --recursive`` does."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not (exclude and path.match(exclude)):
            double.objects[f"{prefix}/{path.relative_to(folder)}"] = path.read_bytes()


def download(double: S3Double, prefix: str, folder: Path) -> None:
    """Copy what has a prefix to a folder."""
    for name, data in list(double.objects.items()):
        if name.startswith(prefix + "/"):
            path = folder / name.removeprefix(prefix + "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def remove(double: S3Double, prefix: str) -> None:
    for name in list(double.objects):
        if name.startswith(prefix + "/"):
            double.objects.pop(name, None)


def at_home(double: S3Double, coordinator: QueryCoordinator, name: str) -> str:
    """Bring a checkpoint to the bucket, and make it at home there; give its address."""
    upload(double, coordinator.path, name)
    shutil.rmtree(coordinator.path)
    accept_move(f"s3a://{BUCKET}/{name}")
    return f"s3a://{BUCKET}/{name}"
