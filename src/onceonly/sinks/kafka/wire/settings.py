"""What kafka-python is told, translated from librdkafka's configuration: servers, limits, who it is, whom it trusts."""

from __future__ import annotations

import importlib
import platform
import socket
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError, SetupError
from onceonly.sinks.kafka.wire.tokens import tokens

if TYPE_CHECKING:
    import ssl

    from onceonly.sinks.kafka.options import KafkaOptions

CONNECT_S = 10.0
"""How long a new client looks for a broker among those of ``bootstrap.servers``."""
SETUP_S = 4.0
"""How long a connection may take to be made: address, TLS, login. ``socket.connection.setup.timeout.ms`` says else."""
REQUEST_S = 10.0
"""How long an answer is waited for: then its connection is closed, and a new one made."""

# More than the threads that commit at a time have on the wire: beyond it kafka-python refuses to send.
_IN_FLIGHT_MAX = 2048
# A list of all groups or transactions of a broker may be long; without it, some of kafka-python's clients stop at 1 MB.
_ANSWER_BYTES_MAX = 100_000_000
_NEVER_MS = 2**31 - 1
_FAMILIES = {"v4": socket.AF_INET, "v6": socket.AF_INET6}
_BY_TICKET = "GSSAPI"


def family(options: KafkaOptions) -> int:
    """Return the family of addresses that is wanted."""
    return _FAMILIES.get(options.client.get("broker.address.family", "any"), socket.AF_UNSPEC)


def limits(options: KafkaOptions) -> dict[str, Any]:
    """Return kafka-python's limits of connections, as librdkafka's are given, in its own names."""
    client = options.client
    # librdkafka's 0 is never.
    idle_ms = int(client.get("connections.max.idle.ms", "540000")) or _NEVER_MS
    setup_ms = int(client.get("socket.connection.setup.timeout.ms", str(int(SETUP_S * 1000))))
    on_sockets = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    if client.get("socket.keepalive.enable", "true") == "true":
        on_sockets.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    for name, option in (("send", socket.SO_SNDBUF), ("receive", socket.SO_RCVBUF)):
        size = int(client.get(f"socket.{name}.buffer.bytes", "0"))
        if size > 0:
            on_sockets.append((socket.SOL_SOCKET, option, size))
    return {
        "connections_max_idle_ms": idle_ms,
        "socket_connection_setup_timeout_ms": setup_ms,
        "socket_connection_setup_timeout_max_ms": setup_ms,
        "socket_options": on_sockets,
    }


def settings(options: KafkaOptions) -> dict[str, Any]:
    """Return kafka-python's settings. Secrets stay wrapped (it logs them).

    Raises ``ConfigurationError`` for certificates or keys that cannot be read here, ``SetupError`` for what is not
    installed, ``NotAnsweredError`` where there is no token.
    """
    client = options.client
    backoff_ms = int(client.get("reconnect.backoff.ms", "50"))
    return {
        "bootstrap_servers": options.servers.split(","),
        "client_id": client.get("client.id", "onceonly"),
        "client_dns_lookup": client.get("client.dns.lookup", "use_all_dns_ips"),
        "bootstrap_timeout_ms": int(CONNECT_S * 1000),
        "request_timeout_ms": int(REQUEST_S * 1000),
        "metadata_max_age_ms": int(client.get("metadata.max.age.ms", "300000")),
        "reconnect_backoff_ms": backoff_ms,
        "reconnect_backoff_max_ms": int(client.get("reconnect.backoff.max.ms", "1000")),
        "max_in_flight_requests_per_connection": _IN_FLIGHT_MAX,
        "receive_message_max_bytes": _ANSWER_BYTES_MAX,
        **security(options),
    }


def security(options: KafkaOptions) -> dict[str, Any]:
    """Return those of TLS and SASL. Raises as ``settings`` does."""
    client = options.client
    protocol = client.get("security.protocol", "PLAINTEXT")
    settings: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl_context"] = _ssl_context(options)
    if protocol.startswith("SASL"):
        settings["sasl_mechanism"] = client.get("sasl.mechanism", _BY_TICKET)
        if settings["sasl_mechanism"] == _BY_TICKET:
            _require_kerberos()
        settings["sasl_plain_username"] = client.get("sasl.username")
        settings["sasl_plain_password"] = client.get("sasl.password")
        if options.token_provider:
            settings["sasl_oauth_token_provider"] = _provider(options)
        settings["sasl_kerberos_service_name"] = client.get("sasl.kerberos.service.name", "kafka")
    return settings


def _require_kerberos() -> None:
    """See that kafka-python can log in by a ticket; without it each connection fails, as if brokers refused it."""
    if platform.system() == "Windows":  # it has a way of its own there
        return
    try:
        importlib.import_module("gssapi")
    except (ImportError, OSError) as error:  # the library in C that it needs may be missing
        raise SetupError(
            f"kafka.sasl.mechanism={_BY_TICKET}, the one where none is given, needs the Python package gssapi, which "
            f"cannot be used here: {error}.",
            next_step="pip install gssapi on driver and executors (it needs the libraries of Kerberos), or give "
            "kafka.sasl.mechanism as the brokers have it",
        ) from error


def _provider(options: KafkaOptions) -> Any:  # noqa: ANN401  kafka-python is untyped
    """Return tokens as kafka-python asks for them, in its thread; the first one is had before."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    kept = tokens(options.token_provider, options.token_settings)
    kept.get()

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is untyped
        def token(self) -> str:
            return kept.get().text

        def extensions(self) -> dict[str, str]:
            return dict(kept.get().extensions)

    return Provider()


def _ssl_context(options: KafkaOptions) -> ssl.SSLContext:
    import ssl

    client = options.client
    try:
        context = ssl.create_default_context(
            cafile=client.get("ssl.ca.location"), cadata=client.get("ssl.ca.pem")
        )
        context.check_hostname = client.get("ssl.endpoint.identification.algorithm") != "none"
        if "ssl.certificate.location" in client:
            context.load_cert_chain(
                client["ssl.certificate.location"],
                client.get("ssl.key.location"),
                client.get("ssl.key.password"),
            )
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"The certificate or key files of the Kafka sink cannot be used here: {type(error).__name__}: {error}.",
            next_step="see that kafka.ssl.*.location name PEM files that driver and executors can read",
        ) from error
    return context
