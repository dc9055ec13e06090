"""What becomes of each option of Java's producer: the table behind the documentation and the checks.

The names, types and defaults are those of ``ProducerConfig`` in kafka-clients 4.2.0, of which the
driver and the executors use no line: rows go out through librdkafka, commits through kafka-python.
An option means here what it means there, or it is refused with its substitute.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

_JVM = "it names a Java class, and no Java takes part in writing"
_PEM = (
    "use PEM files that driver and executors can read: kafka.ssl.ca.location, "
    "kafka.ssl.certificate.location, kafka.ssl.key.location"
)
_OAUTH = "it is for Java's own login; a token comes from the function that onceonly.token.provider names"
_MSK = (
    "for Amazon MSK give kafka.sasl.mechanism=OAUTHBEARER and "
    "onceonly.token.provider=onceonly.sinks.kafka.wire.logins:msk_iam (pip install 'onceonly[msk]')"
)
_SHORT = {_PEM: "use PEM files", _MSK: "for Amazon MSK see above"}
"""What the reference page says once, above its tables."""
_LOGIN_HANDLERS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}OAuthBearerLoginCallbackHandler"
    for name in ("", "secured.")
)


class Use(enum.StrEnum):
    """What is done with an option."""

    TAKEN = "taken over"
    TRANSLATED = "translated"
    NO_EFFECT = "accepted, no effect"
    REFUSED = "refused"


class Kind(enum.StrEnum):
    """How the value of an option is read."""

    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class ProducerOption:
    """One option, named without ``kafka.``; ``to`` is librdkafka's name, ``note`` the user's help.

    ``only`` lists the values that are accepted where an option is not free; ``least`` and ``most``
    bound an integer to what librdkafka takes: values outside are moved to the bound.
    """

    name: str
    use: Use
    note: str = ""
    to: str = ""
    kind: Kind = Kind.TEXT
    only: tuple[str, ...] = ()
    least: int = 0
    most: int = 2**31 - 1
    divide: int = 1
    secret: bool = False


def _taken(name: str, note: str = "", **more: object) -> ProducerOption:
    return ProducerOption(name, Use.TAKEN, note, name, **more)  # type: ignore[arg-type]


def _number(name: str, note: str = "", **more: object) -> ProducerOption:
    return _taken(name, note, kind=Kind.INTEGER, **more)


def _translated(name: str, to: str, note: str = "", **more: object) -> ProducerOption:
    return ProducerOption(name, Use.TRANSLATED, note, to, **more)  # type: ignore[arg-type]


def _refused(name: str, note: str, *, secret: bool = False) -> ProducerOption:
    return ProducerOption(name, Use.REFUSED, note, secret=secret)


def _no_effect(name: str, note: str) -> ProducerOption:
    return ProducerOption(name, Use.NO_EFFECT, note)


_JAVA = (
    _taken("acks", "every guarantee needs the acknowledgement of all in-sync replicas",
           only=("all", "-1")),
    _number("batch.size", "default 1,000,000, librdkafka's, against Java's 16,384", least=1),
    _taken("bootstrap.servers", "required", kind=Kind.LIST),
    _translated("buffer.memory", "queue.buffering.max.kbytes", "bytes to kilobytes; default 32 MB",
                kind=Kind.INTEGER, divide=1024, least=1),
    _taken("client.dns.lookup", only=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
    _taken("client.id"),
    _translated("compression.gzip.level", "compression.level", "where compression.type is gzip",
                kind=Kind.INTEGER, least=-1, most=9),
    _translated("compression.lz4.level", "compression.level",
                "where compression.type is lz4; above 12 means 12", kind=Kind.INTEGER, most=12),
    _taken("compression.type", only=("none", "gzip", "snappy", "lz4", "zstd")),
    _translated("compression.zstd.level", "compression.level",
                "where compression.type is zstd; above 12 means 12", kind=Kind.INTEGER, least=-1,
                most=12),
    _refused("config.providers", "values are not looked up by Java here; resolve them first, "
             "for instance with dbutils.secrets or an environment variable"),
    _number("connections.max.idle.ms", "-1, never, becomes librdkafka's 0"),
    _number("delivery.timeout.ms", "never above transaction.timeout.ms", least=1000),
    _taken("enable.idempotence", "without it a retry could write a row twice", kind=Kind.BOOLEAN,
           only=("true",)),
    _taken("enable.metrics.push", "default false: a client lives for one transaction only",
           kind=Kind.BOOLEAN),
    _refused("interceptor.classes", f"{_JVM}; change the rows in the query instead"),
    _refused("key.serializer", "keys are written as they are, as Spark's own sink does; cast the "
             "column to binary or string"),
    _number("linger.ms", "default 5, Java's"),
    _translated("max.block.ms", "(bound of our wait for a full buffer and for a new producer)",
                "default 60,000", kind=Kind.INTEGER, least=1),
    _number("max.in.flight.requests.per.connection", "always 1: with more, rows that a broker refuses can be lost "
            "behind rows that it takes", least=1, most=1),
    _translated("max.request.size", "message.max.bytes", "default 1,048,576, Java's; `onceonly.producer=direct` "
                "sends batches of several partitions together, up to 4 MB where it is not given",
                kind=Kind.INTEGER, least=1000, most=1_000_000_000),
    _number("metadata.max.age.ms", least=1, most=86_400_000),
    _no_effect("metadata.max.idle.ms", "librdkafka forgets unused topics by itself"),
    _number("metadata.recovery.rebootstrap.trigger.ms"),
    _taken("metadata.recovery.strategy", "default none in transactions: a client lives for one",
           only=("none", "rebootstrap")),
    _no_effect("metric.reporters", "they would report on a Java producer, and there is none"),
    _no_effect("metrics.num.samples", "as metric.reporters"),
    _no_effect("metrics.recording.level", "as metric.reporters"),
    _no_effect("metrics.sample.window.ms", "as metric.reporters"),
    _no_effect("partitioner.adaptive.partitioning.enable", "rows without a key are spread at random"),
    _no_effect("partitioner.availability.timeout.ms", "rows without a key are spread at random"),
    _refused("partitioner.class", f"{_JVM}; keys go where Java's default partitioner puts them, and a "
             "column 'partition' chooses by itself"),
    _taken("partitioner.ignore.keys", "to spread rows, leave the key out or give a column 'partition'",
           kind=Kind.BOOLEAN, only=("false",)),
    _translated("receive.buffer.bytes", "socket.receive.buffer.bytes", "-1 becomes librdkafka's 0",
                kind=Kind.INTEGER, most=100_000_000),
    _number("reconnect.backoff.max.ms", "never below reconnect.backoff.ms", most=3_600_000),
    _number("reconnect.backoff.ms", "default 1 in transactions: a new client asks for its coordinator at once",
            most=3_600_000),
    _translated("request.timeout.ms", "socket.timeout.ms", "never above transaction.timeout.ms",
                kind=Kind.INTEGER, least=10, most=300_000),
    _number("retries", "0 is refused: an idempotent producer retries", least=1),
    _number("retry.backoff.max.ms", least=1, most=300_000),
    _number("retry.backoff.ms", least=1, most=300_000),
    _refused("sasl.client.callback.handler.class", f"{_JVM}; {_MSK}"),
    _translated("sasl.jaas.config", "(user, password or token)", "one entry of PlainLoginModule, ScramLoginModule or "
                "OAuthBearerLoginModule (clientId, clientSecret, scope; for tests unsecuredLoginStringClaim_sub), with "
                "kafka.sasl.mechanism", secret=True),
    _refused("sasl.kerberos.kinit.cmd", "Java and librdkafka mean different things by it; keep a ticket "
             "in the credential cache of driver and executors"),
    _number("sasl.kerberos.min.time.before.relogin", most=86_400_000),
    _taken("sasl.kerberos.service.name"),
    _no_effect("sasl.kerberos.ticket.renew.jitter", "the ticket is renewed outside"),
    _no_effect("sasl.kerberos.ticket.renew.window.factor", "the ticket is renewed outside"),
    ProducerOption("sasl.login.callback.handler.class", Use.NO_EFFECT, "Java's own, whose work is done here; "
                   f"{_MSK}", only=_LOGIN_HANDLERS),
    _refused("sasl.login.class", _JVM),
    *(_no_effect(f"sasl.login.{name}", "a token is asked for beside the work, once 0.7 of its life are over")
      for name in ("connect.timeout.ms", "read.timeout.ms", "refresh.buffer.seconds",
                   "refresh.min.period.seconds", "refresh.window.factor", "refresh.window.jitter",
                   "retry.backoff.max.ms", "retry.backoff.ms")),
    _taken("sasl.mechanism", f"OAUTHBEARER with onceonly.token.provider or kafka.sasl.jaas.config; {_MSK}",
           only=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")),
    _translated("sasl.oauthbearer.client.credentials.client.id", "(client.id of the token endpoint)",
                "with kafka.sasl.oauthbearer.token.endpoint.url"),
    _translated("sasl.oauthbearer.client.credentials.client.secret", "(client.secret of the token endpoint)",
                "with kafka.sasl.oauthbearer.token.endpoint.url", secret=True),
    _translated("sasl.oauthbearer.scope", "(scope of the token endpoint)",
                "with kafka.sasl.oauthbearer.token.endpoint.url"),
    _translated("sasl.oauthbearer.token.endpoint.url", "(url of the token endpoint)",
                "OAuth 2, by client credentials: id and secret in kafka.sasl.jaas.config, or by the options for them"),
    *(_refused(f"sasl.oauthbearer.{name}", _OAUTH, secret=name.endswith(("passphrase", "secret")))
      for name in ("assertion.algorithm", "assertion.claim.aud", "assertion.claim.exp.seconds",
                   "assertion.claim.iss", "assertion.claim.jti.include",
                   "assertion.claim.nbf.seconds", "assertion.claim.sub", "assertion.file",
                   "assertion.private.key.file", "assertion.private.key.passphrase",
                   "assertion.template.file", "clock.skew.seconds", "expected.audience",
                   "expected.issuer", "header.urlencode", "jwks.endpoint.refresh.ms",
                   "jwks.endpoint.retry.backoff.max.ms", "jwks.endpoint.retry.backoff.ms",
                   "jwks.endpoint.url", "jwt.retriever.class", "jwt.validator.class",
                   "scope.claim.name", "sub.claim.name")),
    _taken("security.protocol", only=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    _refused("security.providers", _JVM),
    _translated("send.buffer.bytes", "socket.send.buffer.bytes", "-1 becomes librdkafka's 0",
                kind=Kind.INTEGER, most=100_000_000),
    _no_effect("socket.connection.setup.timeout.max.ms", "librdkafka knows one bound only"),
    _number("socket.connection.setup.timeout.ms", least=1000),
    _refused("ssl.cipher.suites", "Java's names are not OpenSSL's; restrict the ciphers on the broker"),
    _no_effect("ssl.enabled.protocols", "OpenSSL agrees on the newest that both sides have"),
    _translated("ssl.endpoint.identification.algorithm", "ssl.endpoint.identification.algorithm",
                "the empty text, no check, becomes librdkafka's none", only=("https", "")),
    _refused("ssl.engine.factory.class", _JVM),
    _taken("ssl.key.password", "of kafka.ssl.key.location", secret=True),
    _no_effect("ssl.keymanager.algorithm", "names a part of the JVM"),
    _refused("ssl.keystore.certificate.chain", _PEM),
    _refused("ssl.keystore.key", _PEM, secret=True),
    _translated("ssl.keystore.location", "ssl.certificate.location and ssl.key.location",
                f"with ssl.keystore.type=PEM only; else {_PEM}"),
    _refused("ssl.keystore.password", f"a PEM file takes ssl.key.password; {_PEM}", secret=True),
    _translated("ssl.keystore.type", "(PEM only)", _PEM, only=("PEM",)),
    _no_effect("ssl.protocol", "OpenSSL agrees on the newest that both sides have"),
    _no_effect("ssl.provider", "names a part of the JVM"),
    _no_effect("ssl.secure.random.implementation", "names a part of the JVM"),
    _no_effect("ssl.trustmanager.algorithm", "names a part of the JVM"),
    _translated("ssl.truststore.certificates", "ssl.ca.pem", "PEM text"),
    _translated("ssl.truststore.location", "ssl.ca.location",
                f"with ssl.truststore.type=PEM only; else {_PEM}"),
    _refused("ssl.truststore.password", f"a PEM file of certificates has none; {_PEM}", secret=True),
    _translated("ssl.truststore.type", "(PEM only)", _PEM, only=("PEM",)),
    _number("transaction.timeout.ms", "default 15 minutes, the broker's usual maximum, or that maximum "
            "where it is lower", least=1000),
    _refused("transaction.two.phase.commit.enable", "the two phases are this sink's own"),
    _refused("transactional.id", "one id carries one transaction at a time; choose "
             "onceonly.transactional.id.prefix"),
    _refused("value.serializer", "values are written as they are, as Spark's own sink does; cast the "
             "column to binary or string"),
)  # fmt: skip

_LIBRDKAFKA = (
    _taken("broker.address.family", only=("any", "v4", "v6")),
    _number("queue.buffering.max.messages", "default 500,000", least=1),
    _taken("sasl.password", "for PLAIN and SCRAM", secret=True),
    _taken("sasl.username", "for PLAIN and SCRAM"),
    _taken("socket.keepalive.enable", kind=Kind.BOOLEAN),
    _taken("ssl.ca.location", "PEM file, on driver and executors"),
    _taken("ssl.certificate.location", "PEM file, on driver and executors"),
    _taken("ssl.key.location", "PEM file, on driver and executors"),
    _number("sticky.partitioning.linger.ms", most=900_000),
)

JAVA_OPTIONS = {option.name: option for option in _JAVA}
"""Every option of Java's producer, by its name there."""

LIBRDKAFKA_OPTIONS = {option.name: option for option in _LIBRDKAFKA}
"""What may be said with librdkafka's own names, as Java has no counterpart that works here."""

OPTIONS = JAVA_OPTIONS | LIBRDKAFKA_OPTIONS


def told(use: Use) -> dict[str, list[str]]:
    """Return what the reference page says of the options of one treatment: names, by what is said of them."""
    found: dict[str, list[str]] = {}
    for option in OPTIONS.values():
        if option.use is use:
            found.setdefault(_said(option), []).append(option.name)
    return found


def _said(option: ProducerOption) -> str:
    """Return what the page says of an option besides its treatment."""
    target = "" if option.to in {"", option.name} else option.to
    target = f"`{target}`" if target and not target.startswith("(") else target
    only = " or ".join(f"`{value}`" if value else "empty" for value in option.only)
    said = "; ".join(filter(None, (target, only, option.note, "secret" if option.secret else "")))
    for text, short in _SHORT.items():
        said = said.replace(text, short)
    return said
