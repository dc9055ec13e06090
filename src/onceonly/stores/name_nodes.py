"""Where the name nodes of an HDFS, or HttpFS, answer by HTTP, by Hadoop's own settings. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from onceonly.stores.access import Hadoop
    from onceonly.stores.address import Address

_PORT = re.compile(r"(?<!:):(\d{1,5})$")
_PORTS = {False: 9870, True: 9871}


@dataclass(frozen=True, slots=True)
class Server:
    """Where a name node, or HttpFS, answers."""

    host: str
    port: int
    tls: bool

    @property
    def text(self) -> str:
        return f"{self.host}:{self.port}"


def servers(address: Address, hadoop: Hadoop) -> tuple[Server, ...]:
    """Return who answers for an address, as Hadoop's own settings say, or its default ports. Pure.

    Raises ``ConfigurationError`` where no name node is named.
    """
    service = service_of(address, hadoop)
    tls = hadoop.get("dfs.http.policy").upper() == "HTTPS_ONLY"
    option = f"dfs.namenode.http{'s' if tls else ''}-address"
    nodes = [each.strip() for each in hadoop.get(f"dfs.ha.namenodes.{service}").split(",") if each.strip()]
    host = _PORT.sub("", service)
    told = [each for node in nodes if (each := hadoop.get(f"{option}.{service}.{node}"))]
    told = told or [each for each in [hadoop.get(f"{option}.{service}")] if each]
    # An address that names no service is that of the job's default cluster: of another, it tells the port at most.
    foreign = not told and host.lower() != _default(hadoop, host.lower())
    if not told and not (foreign and nodes):
        told = [each for each in [hadoop.get(option)] if each]
    if not told and not nodes:
        told = [host] if host else []
    found = [_server(each, tls) for each in told]
    # What a name node listens to is no address to call.
    nowhere = {"0.0.0.0", ""}  # noqa: S104
    found = [Server(host, each.port, each.tls) if foreign or each.host in nowhere else each for each in found]
    if not found:
        raise ConfigurationError(
            f"{address.text} names the name service {service!r}, and no HTTP address of a name node is known",
            next_step=f"give the session spark.hadoop.{option}{'.' + service if service else ''}=<host:port>, or "
            "HADOOP_CONF_DIR with hdfs-site.xml, a command --hadoop-conf FILE",
        )
    return tuple(found)


def service_of(address: Address, hadoop: Hadoop) -> str:
    """Return the name service, or the host and port, of an address. Pure."""
    return address.container or hadoop.file_system.partition("://")[2].partition("/")[0]


def _default(hadoop: Hadoop, otherwise: str) -> str:
    """Return the host of the job's default HDFS; the other where its default is none."""
    scheme, _, rest = hadoop.file_system.partition("://")
    return (
        _PORT.sub("", rest.partition("/")[0].lower()) or otherwise if scheme.lower() == "hdfs" else otherwise
    )


def _server(text: str, tls: bool) -> Server:  # noqa: FBT001
    port = _PORT.search(text)
    return Server(_PORT.sub("", text), int(port[1]) if port else _PORTS[tls], tls)
