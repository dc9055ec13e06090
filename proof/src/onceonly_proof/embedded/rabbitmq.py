"""A real RabbitMQ server on loopback, out of Debian's packages: gone with the process. Linux with apt.

::

    with EmbeddedRabbit() as rabbit:
        ...  # rabbit.uri
        rabbit.kill()  # SIGKILL
        rabbit.start()  # the same queues at the same address

The packages are fetched by ``apt-get download`` and unpacked into the cache.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from onceonly.errors import SetupError
from onceonly_proof.embedded.debian import unpacked
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer, GuardedProcess

if TYPE_CHECKING:
    from pathlib import Path

_READY_S = 90.0
_POLL_S = 0.05
_QUIET_S = 5.0
_ACK_EVERY = 500
_USUAL = "/usr/lib/erlang"
_ERLANG = (
    "base", "asn1", "crypto", "eldap", "ftp", "inets", "mnesia", "os-mon", "parsetools", "public-key",
    "runtime-tools", "snmp", "ssl", "syntax-tools", "tftp", "tools", "xmerl",
)  # fmt: skip
_SETTINGS = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users.guest = true
log.file = false
log.console = true
log.console.level = warning
vm_memory_high_watermark.absolute = 400MB
disk_free_limit.absolute = 50MB
"""


class EmbeddedRabbit(EmbeddedServer):
    """One server that keeps what is durable through a SIGKILL. Not shared between threads."""

    title = "the RabbitMQ server"
    lines_shown = 8

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory, prefix="rabbitmq")
        self._ports: list[int] = []
        self._names: GuardedProcess | None = None

    @property
    def port(self) -> int:
        """Its port, the same through restarts. Known once it was started."""
        return self._ports[0]

    @property
    def uri(self) -> str:
        """The address for the feed's option ``uri``. Known once it was started."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def start(self) -> None:
        """Start it and wait until it answers; after a kill, with the same queues. Idempotent while it runs.

        Raises:
            SetupError: there is no RabbitMQ and none to be fetched, or it did not come up; shows its last words.
        """
        if self._process is not None:
            return
        self._ports = self._ports or free_ports(3)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "rabbitmq.conf").write_text(_SETTINGS.format(port=self.port))
        (self.directory / "plugins").write_text("[].")
        # Its names are kept by a server of their own, which it would leave behind.
        names = ["epmd", "-address", "127.0.0.1", "-port", str(self._ports[2])]
        self._names = GuardedProcess([*self._environment(), *names], self._log)
        self._process = self._launch([*self._environment(), _script("rabbitmq-server")])
        self._await(self._answers, within_s=_READY_S, poll_s=_POLL_S)

    def control(self, *told: str) -> None:
        """Do as an operator does with the server's own command, ``rabbitmqctl``. Raises ``SetupError``."""
        command = [*self._environment(), _script("rabbitmqctl"), *told]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetupError(
                f"rabbitmqctl {told[0]} failed: {done.stdout}{done.stderr}", next_step="see to what it says"
            )

    def _environment(self) -> list[str]:
        """Return the command that gives its environment, and no other, to what follows."""
        port, of_node, of_names = self._ports
        environment = {
            "PATH": f"{_unpacked() / 'usr/lib/erlang/bin'}:/usr/bin:/bin",
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            # As under systemd the server is one process, which takes the signals itself.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": f"rabbit{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(of_node),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "data"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "none.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(of_names),
            "ERL_MAX_PORTS": "4096",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        return ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]

    def declare(self, name: str, kind: str) -> None:
        """Make a durable queue that is ``classic``, ``quorum`` or a ``stream``. Idempotent."""
        import pika

        with pika.BlockingConnection(pika.URLParameters(self.uri)) as connection:
            connection.channel().queue_declare(name, durable=True, arguments={"x-queue-type": kind})

    def content(self, stream: str) -> list[tuple[int, str | None, bytes]]:
        """Read all of a stream, as any consumer does: offset, message id and body of each."""
        import pika

        with pika.BlockingConnection(pika.URLParameters(self.uri)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1000)
            found: list[tuple[int, str | None, bytes]] = []
            for method, properties, body in channel.consume(
                stream, inactivity_timeout=_QUIET_S, arguments={"x-stream-offset": "first"}
            ):
                if method is None:
                    break
                found.append((int(properties.headers["x-stream-offset"]), properties.message_id, body))
                if len(found) % _ACK_EVERY == 0:
                    channel.basic_ack(method.delivery_tag, multiple=True)
            # It would reject what is on its way, which no stream allows.
            channel._consumer_infos.clear()  # noqa: SLF001  it has no other way
            return found

    def kill(self) -> None:
        """End it with SIGKILL; what is durable stays. Idempotent."""
        super().kill()
        if self._names is not None:
            self._names.kill()
            self._names = None

    def _answers(self) -> bool:
        import pika

        try:
            pika.BlockingConnection(pika.URLParameters(self.uri)).close()
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True


def _script(name: str) -> str:
    (found,) = _unpacked().glob(f"usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/{name}")
    return str(found)


def _unpacked() -> Path:
    packages = ["rabbitmq-server", *(f"erlang-{name}" for name in _ERLANG)]
    return unpacked("rabbitmq", "RabbitMQ", packages, finish=_at_home)


def _at_home(root: Path, folder: Path) -> None:
    """Tell Erlang where it will be."""
    script = root / "usr/lib/erlang/bin/erl"
    script.write_text(script.read_text().replace(f"={_USUAL}\n", f"={folder}{_USUAL}\n"))
