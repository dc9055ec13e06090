"""A real HDFS on loopback: a name node and a data node, each a process that can be killed. Gone with the process.

::

    with EmbeddedHdfs() as hdfs:
        ...  # hdfs.url, hdfs.hadoop()
        hdfs.kill("namenode")
        hdfs.start()  # the same files at the same address

With a KDC it asks for logins, and is called by the name of its principals, ``localhost``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen
from xml.sax.saxutils import escape

from onceonly.errors import SetupError
from onceonly.jars.java import find_java
from onceonly.jars.locked import ensure_jars
from onceonly_proof.embedded.kerberos import REALM
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import Embedded, GuardedProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly_proof.embedded.kerberos import EmbeddedKdc

NODES: Final = ("namenode", "datanode")
_CLASSES = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
}
_READY_S = 90.0
_CALL_S = 10.0
_POLL_S = 0.1
_NOT_FOUND = 404
_SETTINGS = {
    "dfs.replication": "1",
    "dfs.permissions.enabled": "false",
    "dfs.datanode.hostname": "127.0.0.1",
    "dfs.client.use.datanode.hostname": "false",
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    # A name node that comes back answers as soon as it knows where the blocks are.
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.safemode.min.datanodes": "1",
    "dfs.heartbeat.interval": "1",
    "dfs.namenode.handler.count": "4",
    "dfs.namenode.fs-limits.min-block-size": "1024",
    "dfs.blocksize": "16777216",
    "dfs.http.client.retry.policy.enabled": "false",
}
_PRINCIPAL = f"hdfs/localhost@{REALM}"
_SECURE = {
    "hadoop.security.authentication": "kerberos",
    "dfs.data.transfer.protection": "authentication",
}
_SECURE_NODES = {
    **_SECURE,
    "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
    "dfs.block.access.token.enable": "true",
    "dfs.permissions.enabled": "true",
    # Else its data node wants TLS, or ports that root alone may open.
    "ignore.secure.ports.for.testing": "true",
}


class EmbeddedHdfs(Embedded):
    """One name node and one data node. Not shared between threads. ``names`` and ``read`` ask without a login."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        kdc: EmbeddedKdc | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """``kdc`` runs, and outlives it; ``settings`` are some of its own, over those chosen here."""
        self._is_temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="onceonly-hdfs-"))
        self._ports: list[int] = []
        self._processes: dict[str, GuardedProcess] = {}
        self._kdc = kdc
        self._said = 0  # what the name node had logged before it was started last
        self._settings = {**_SETTINGS, **(settings or {})}
        self._host = "127.0.0.1" if kdc is None else "localhost"

    @property
    def url(self) -> str:
        """The file system's address, the same through restarts. Known once it was started."""
        return f"hdfs://{self._host}:{self._ports[0]}"

    @property
    def web(self) -> str:
        """Where the name node answers by HTTP, ``host:port``."""
        return f"{self._host}:{self._ports[1]}"

    @property
    def data_web(self) -> str:
        """Where the data node answers by HTTP, ``host:port``."""
        return f"127.0.0.1:{self._ports[3]}"

    def hadoop(self) -> dict[str, str]:
        """Return what a client's Hadoop is told of it."""
        asked = {} if self._kdc is None else {**_SECURE, "dfs.namenode.kerberos.principal": _PRINCIPAL}
        return {"dfs.namenode.http-address": self.web, "dfs.replication": "1", **asked}

    def start(self) -> None:
        """Start the nodes that are down, and wait until a file can be written. The first start formats the folder.

        Raises:
            SetupError: no Java, no jars, or it did not come up; shows its last words.
        """
        if len(self._processes) == len(NODES):
            return
        if not self._ports:
            self._ports = free_ports(5)
            self._configure()
            self._format()
        log = self._log(NODES[0])
        self._said = log.stat().st_size if log.exists() else 0
        for node in NODES:
            if node not in self._processes:
                self._processes[node] = GuardedProcess([*self._java(), _CLASSES[node]], self._log(node))
        deadline = time.monotonic() + _READY_S
        while not self._is_ready():
            ended = [node for node, process in self._processes.items() if process.has_ended(_POLL_S)]
            if ended or time.monotonic() > deadline:
                node = ended[0] if ended else NODES[0]
                raise self._failure(node, "ended" if ended else f"was not ready after {_READY_S:g} s")

    def names(self, folder: str) -> list[str]:
        """Return the names of files and folders in a folder, these with a slash behind; none where there is none."""
        try:
            found = self._ask(folder, "LISTSTATUS")["FileStatuses"]["FileStatus"]
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                return []
            raise
        return [each["pathSuffix"] + ("/" if each["type"] == "DIRECTORY" else "") for each in found]

    def read(self, name: str) -> bytes | None:
        """Read a file; None where there is none."""
        try:
            with urlopen(f"http://{self.web}/webhdfs/v1/{quote(name)}?op=OPEN", timeout=_CALL_S) as answer:
                found: bytes = answer.read()
                return found
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    def fetch_token(self, file: Path) -> None:
        """Have Hadoop write a token of who has the environment's ticket, as YARN does for a container.

        Raises ``CalledProcessError``.
        """
        self._run("DelegationTokenFetcher", str(file))

    def admin(self, *arguments: str) -> None:
        """Have Hadoop do what its operator types behind ``hdfs dfsadmin``. Raises ``CalledProcessError``."""
        self._run("DFSAdmin", *arguments)

    def kill(self, node: str) -> None:
        """End one of ``NODES`` with SIGKILL; its data stay. Idempotent."""
        process = self._processes.pop(node, None)
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End both, and remove the folder, unless that was given. Idempotent."""
        for node in NODES:
            self.kill(node)
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, tool: str, *arguments: str) -> None:
        command = [*self._java(), f"org.apache.hadoop.hdfs.tools.{tool}", *arguments]
        # By whoever runs the nodes, and not as whom a job here asks.
        environment = {name: value for name, value in os.environ.items() if name != "HADOOP_USER_NAME"}
        subprocess.run(command, timeout=_READY_S, check=True, capture_output=True, env=environment)

    def _ask(self, path: str, operation: str) -> Any:  # noqa: ANN401  JSON
        with urlopen(f"http://{self.web}/webhdfs/v1/{quote(path)}?op={operation}", timeout=_CALL_S) as answer:
            return json.load(answer)

    def _is_ready(self) -> bool:
        """Say whether the name node is out of its safe mode and has a living data node."""
        if self._kdc is not None:  # it answers by HTTP only those who have logged in
            said = self._log(NODES[0]).read_bytes()[self._said :]
            return (
                said.rfind(b"Safe mode is OFF") >= said.rfind(b"Safe mode ON") and b" from storage " in said
            )
        try:
            with urlopen(
                f"http://{self.web}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo", timeout=_CALL_S
            ) as answer:
                told = json.load(answer)["beans"][0]
        except (OSError, LookupError, ValueError):
            return False
        return not told["Safemode"] and bool(json.loads(told["LiveNodes"]))

    def _configure(self) -> None:
        here, ports = self.directory, self._ports
        (here / "conf").mkdir(parents=True, exist_ok=True)
        site = {
            **self._settings,
            "dfs.namenode.name.dir": f"file://{here}/name",
            "dfs.datanode.data.dir": f"file://{here}/data",
            "dfs.namenode.rpc-bind-host": "127.0.0.1",
            "dfs.namenode.http-address": self.web,
            "dfs.datanode.address": f"127.0.0.1:{ports[2]}",
            "dfs.datanode.http.address": self.data_web,
            "dfs.datanode.ipc.address": f"127.0.0.1:{ports[4]}",
        }
        core = {"fs.defaultFS": self.url, "hadoop.tmp.dir": f"{here}/own"}
        if self._kdc is not None:  # Hadoop's own defaults stand between the two files
            logins = _logins(self._kdc)
            core, site = core | logins, site | logins
        for name, settings in (("core-site.xml", core), ("hdfs-site.xml", site)):
            (here / "conf" / name).write_text(_xml(settings))

    def _format(self) -> None:
        if (self.directory / "name" / "current" / "VERSION").exists():
            return  # data of an earlier life, in a folder that was given
        with self._log("format").open("ab") as log:
            try:
                subprocess.run(
                    [*self._java(), _CLASSES["namenode"], "-format", "-nonInteractive", "-force"],
                    stdout=log, stderr=subprocess.STDOUT, timeout=_READY_S, check=True,
                )  # fmt: skip
            except subprocess.SubprocessError as error:
                raise self._failure("format", "failed") from error

    def _java(self) -> list[str]:
        jars = ":".join(map(str, ensure_jars(used_by="store-hdfs")))
        log4j = resources.files("onceonly_proof.embedded").joinpath("log4j.properties")
        realm = [] if self._kdc is None else [f"-Djava.security.krb5.conf={self._kdc.configuration}"]
        return [
            find_java(), *realm, "-Xms64m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", f"-Dlog4j.configuration=file:{log4j}",
            f"-Dhadoop.log.dir={self.directory}", f"-Dhadoop.home.dir={self.directory}",
            f"-Djava.io.tmpdir={self.directory}", "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "-cp", f"{self.directory / 'conf'}:{jars}",
        ]  # fmt: skip

    def _log(self, node: str) -> Path:
        return self.directory / f"{node}.log"

    def _failure(self, node: str, what: str) -> SetupError:
        log = self._log(node)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return SetupError(
            f"the {node} of the HDFS in {self.directory} {what}: {' '.join(lines[-3:]) or 'it said nothing'}",
            next_step="read its log there; usual are a full disk and too little memory",
        )


def _logins(kdc: EmbeddedKdc) -> dict[str, str]:
    """Return what the nodes log in by and ask for, and make them known to the KDC."""
    web = f"HTTP/localhost@{REALM}"
    keys = str(kdc.keytab("nodes.keytab", _PRINCIPAL, web))
    found = dict(_SECURE_NODES)
    for node in NODES:
        found |= {f"dfs.{node}.kerberos.principal": _PRINCIPAL, f"dfs.{node}.keytab.file": keys}
    for who in ("dfs.web", "hadoop.http"):
        found |= {
            f"{who}.authentication.type": "kerberos",
            f"{who}.authentication.kerberos.principal": web,
            f"{who}.authentication.kerberos.keytab": keys,
        }
    return found


def _xml(settings: Mapping[str, str]) -> str:
    each = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    return f"<configuration>\n{chr(10).join(each)}\n</configuration>\n"
