"""How kafka-python proves who it is, and whom it trusts: translated from librdkafka's configuration."""

from __future__ import annotations

import importlib
import platform
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError, SetupError
from onceonly.sinks.kafka.wire.tokens import tokens

if TYPE_CHECKING:
    import ssl

    from onceonly.sinks.kafka.options import KafkaOptions


_BY_TICKET = "GSSAPI"


def security(options: KafkaOptions) -> dict[str, Any]:
    """Return kafka-python's settings of TLS and SASL. Secrets stay wrapped (it logs them).

    Raises ``ConfigurationError`` for certificates or keys that cannot be read here, ``SetupError`` for what is not
    installed.
    """
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
