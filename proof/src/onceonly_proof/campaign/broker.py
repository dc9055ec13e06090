"""The broker of a campaign: which release, whether sinks come over TLS, whether clients have quotas.

``4.2``, ``3.9+tls``, ``3.3+tls+quotas``: as words, so that a report holds them and a command takes them again.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, SetupError
from onceonly.jars.java import find_java
from onceonly_proof.embedded import kafka_settings
from onceonly_proof.embedded.jars import NEWEST, RELEASES, broker_classpath
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Mapping

_TLS, _QUOTAS = "tls", "quotas"
_PASSWORD = "of-a-test"  # noqa: S105  of a key that lives as long as the round
_TIMEOUT_S = 60.0
# An epoch of some hundred rows of up to 2 KB comes in a moment: it meets the first, and its requests the second.
_BYTES_PER_S = 1_000_000
_REQUEST_PERCENT = 20


@dataclass(frozen=True, slots=True)
class BrokerKind:
    """What kind of broker a campaign attacks."""

    release: str = NEWEST
    tls: bool = False
    quotas: bool = False

    @classmethod
    def parse(cls, text: str) -> BrokerKind:
        """Read one from words: a release, and what it is given. Raises ``ConfigurationError``."""
        release, *more = text.split("+")
        if release not in RELEASES or not set(more) <= {_TLS, _QUOTAS}:
            raise ConfigurationError(
                f"there is no broker {text!r} here",
                next_step=f"use one of {', '.join(RELEASES)}, with +{_TLS} or +{_QUOTAS} behind it, or both",
            )
        return cls(release, tls=_TLS in more, quotas=_QUOTAS in more)

    def __str__(self) -> str:
        return "+".join([self.release, *([_TLS] if self.tls else []), *([_QUOTAS] if self.quotas else [])])


class Broker(EmbeddedKafka):
    """A broker of a kind. ``sink_options`` are what a sink needs beside its address; the others come as always."""

    def __init__(
        self, directory: Path, kind: BrokerKind, *, properties: Mapping[str, str] | None = None
    ) -> None:
        self._kind = kind
        self._keys = directory / "keys"
        self._tls_port = 0
        ports = None
        own: dict[str, str] = {}
        if kind.tls:
            ports = kafka_settings.free_ports()
            self._tls_port, _ = kafka_settings.free_ports()
            own = self._listeners(*ports)
        super().__init__(
            directory, properties={**own, **(properties or {})}, ports=ports, release=kind.release
        )

    @property
    def tls_servers(self) -> str:
        """The address for who comes over TLS; there is none without."""
        return f"127.0.0.1:{self._tls_port}"

    @property
    def certificate(self) -> Path:
        """What who comes over TLS has to trust."""
        return self._keys / "certificate.pem"

    @property
    def sink_servers(self) -> str:
        """The address that sinks are given."""
        return self.tls_servers if self._kind.tls else self.bootstrap_servers

    @property
    def sink_options(self) -> Mapping[str, str]:
        """What sinks are given beside the address."""
        if not self._kind.tls:
            return {}
        return {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.ca.location": str(self.certificate),
        }

    def start(self) -> None:
        """Start it as its parent does; its keys are made, and its quotas set, once."""
        is_new = not self._keys.exists()
        if is_new:
            self._keys.mkdir(parents=True)
            if self._kind.tls:
                self._make_keys()
        super().start()
        if is_new and self._kind.quotas:
            self._set_quotas()

    def _listeners(self, port: int, controller_port: int) -> dict[str, str]:
        store = {"type": "PKCS12", "location": str(self._keys / "store.p12"), "password": _PASSWORD}
        return {
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL",
            "listeners": f"BROKER://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},"
            f"TLS://127.0.0.1:{self._tls_port}",
            "advertised.listeners": f"BROKER://127.0.0.1:{port},TLS://127.0.0.1:{self._tls_port}",
            **{f"ssl.keystore.{name}": value for name, value in store.items()},
        }

    def _make_keys(self) -> None:
        """Draw a key and sign it by itself, with what comes with Java."""
        store = ["-keystore", str(self._keys / "store.p12"), "-storepass", _PASSWORD, "-alias", "broker"]
        certificate = ["-file", str(self._keys / "certificate.pem")]
        _run(
            _keytool(), "-genkeypair", *store, "-storetype", "PKCS12", "-keyalg", "RSA", "-validity", "30",
            "-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1,dns:localhost",
        )  # fmt: skip
        _run(_keytool(), "-exportcert", "-rfc", *store, *certificate)

    def _set_quotas(self) -> None:
        """Bound what each client may write and ask for, by Kafka's own command: the broker throttles who has more."""
        quotas = {
            "producer_byte_rate": _BYTES_PER_S,
            "request_percentage": _REQUEST_PERCENT,
        }
        _run(
            find_java(), "-cp", ":".join(map(str, broker_classpath(release=self.release))), "kafka.admin.ConfigCommand",
            "--bootstrap-server", self.bootstrap_servers, "--alter", "--entity-type", "clients", "--entity-default",
            "--add-config", ",".join(f"{name}={value}" for name, value in quotas.items()),
        )  # fmt: skip


def _keytool() -> str:
    """Return the path of the ``keytool`` beside the Java that is used."""
    tool = Path(find_java()).resolve().parent / "keytool"
    if not tool.is_file():
        raise SetupError(
            f"There is no {tool}, which comes with Java.", next_step="install the whole of a Java"
        )
    return str(tool)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except subprocess.CalledProcessError as error:
        raise SetupError(
            f"{command[0]} failed: {(error.stdout + error.stderr).strip()[-500:]}",
            next_step="read what it says; usual are a full disk and a Java without its tools",
        ) from error
