"""A job with its checkpoint on an HDFS that asks for logins by Kerberos: Spark's JVM and Python have one ticket."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from savepoint_job import newest
from test_savepoints import CUT, assert_alike, end_after, finished, start
from test_savepoints_on_stores import Bench

from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
from onceonly_proof.embedded.kerberos import EmbeddedKdc, gssapi_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]  # apt, a KDC, a further HDFS

OPERATOR, PROVIDER, MORE = "dedup", "hdfs", 3


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedHdfs]:
    library = gssapi_folder()
    if library is not None:
        monkeypatch.syspath_prepend(str(library))
        monkeypatch.setenv(
            "PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(library)]))
        )
    with EmbeddedKdc(tmp_path / "kdc") as kdc, EmbeddedHdfs(tmp_path / "server", kdc=kdc) as found:
        for name, value in kdc.environment.items():
            monkeypatch.setenv(name, value)
        # The JVM logs in before it reads a session's settings.
        monkeypatch.setenv("HADOOP_CONF_DIR", str(found.directory / "conf"))
        monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.krb5.conf={kdc.configuration}")
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
        kdc.ticket("hdfs/localhost", kdc.keytab("job.keytab", "hdfs/localhost"), tmp_path / "tickets")
        opened.tell(Hadoop(found.hadoop()))
        yield found
    opened.tell(Hadoop())


def test_a_job_with_a_ticket_is_killed_and_goes_on_and_its_commands_find_it(
    server: EmbeddedHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(server, tmp_path, OPERATOR, PROVIDER)
    checkpoint = f"{server.url}/one"
    run = bench.start(checkpoint, tmp_path / "ledger")
    try:
        run.until(lambda: newest(checkpoint) >= CUT, "epochs were noted", poll_s=1)
    finally:
        run.kill_tree()
    at = newest(checkpoint)
    assert bench.onceonly("checkpoints", "list", checkpoint)
    bench.goes_on(checkpoint, tmp_path / "ledger", at + MORE)
    monkeypatch.delenv("HADOOP_CONF_DIR")  # for what it is compared with, a path is one of this machine
    whole = tmp_path / "whole"
    end_after(whole, at + MORE)
    finished(start(tmp_path, whole, tmp_path / "ledger2", OPERATOR, PROVIDER))
    assert_alike(tmp_path / "ledger2", tmp_path / "ledger", range(at + MORE + 1))
