"""The options of the Kafka sink: read, checked and translated, without touching the network."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.families import behind
from onceonly.options import Option, Secret, unknown_option
from onceonly.sinks.kafka.producer_options import OPTIONS, Kind, ProducerOption, Use
from onceonly.sinks.kafka.wire import jaas, logins

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX_OPTION = "onceonly.transactional.id.prefix"
MARKER_OPTION = "onceonly.marker.topic"
PRODUCER_OPTION = "onceonly.producer"
TOKEN_OPTION = "onceonly.token.provider"  # noqa: S105  a name
TOKEN_CONFIG_OPTION = "onceonly.token.config"  # noqa: S105  as above
_SINK, _SOURCE = "the sink kafka", "the Kafka source"
BY_DIRECT, BY_ROW = "direct", "row"
_BY_ROW_TOO = "batch"
"""What a producer was called that gave whole batches to librdkafka."""
OWN_OPTIONS = {
    "topic": "the topic of all rows; without it, a column 'topic' gives each row's",
    "includeheaders": "accepted, no effect: as in Spark's own sink, a column 'headers' is written "
    "wherever there is one",
    PREFIX_OPTION: "the beginning of all transactional ids and groups; default onceonly",
    MARKER_OPTION: "the topic whose partition 0 the markers name; default `{prefix}.markers`, which is made where it "
    "is not there, and the option topic where that is refused",
    behind.OPTION: behind.DOC,
    PRODUCER_OPTION: f"{BY_DIRECT}, the default: record batches are made out of Arrow's memory and sent as they are; "
    f"{BY_ROW}: librdkafka takes one Python object a row, several times more slowly, also where what the first needs "
    f"cannot be had; {_BY_ROW_TOO}: another name of {BY_ROW}",
    TOKEN_OPTION: "with kafka.sasl.mechanism=OAUTHBEARER: package.module:function, which driver and executors "
    "call with a dict of settings, and which gives (token, Unix time of its expiry), and a dict of extensions behind "
    "them if it wants; "
    f"{logins.MSK} is for Amazon MSK",
    TOKEN_CONFIG_OPTION: "settings for that function, as key=value, several separated by commas; secret",
}
"""The options without ``kafka.``, and what they mean."""

TRANSACTION_TIMEOUT_MS = 900_000
"""The default, equal to the broker's default ``transaction.max.timeout.ms``."""

BATCH_BYTES = 1_000_000
"""The default of ``batch.size``, librdkafka's."""

# Room for a batch each of some partitions: half of what kafka-python takes for a request does not depend on its size.
_REQUEST_BYTES = 4 << 20
_DEFAULTS = {
    # Java's default partitioner, so that a key stays where Spark's own sink put it.
    "partitioner": "murmur2_random",
    "acks": "all",
    "enable.idempotence": "true",
    # A broker that knows nothing of a producer takes any sequence number for its first. Refused rows that wait for
    # their retry would then be taken for delivered, as soon as rows behind them are (ADR 9).
    "max.in.flight.requests.per.connection": "1",
    # Java's defaults where librdkafka's differ and a row could be refused for it.
    "message.max.bytes": "1048576",
    "queue.buffering.max.kbytes": "32768",
    # The bound above is the one that is meant; with librdkafka's 100,000, small rows would wait for each other.
    "queue.buffering.max.messages": "500000",
    "delivery.timeout.ms": "120000",
    "reconnect.backoff.max.ms": "1000",
    # A client carries one transaction; telemetry would be asked for anew with each.
    "enable.metrics.push": "false",
    # To standard error, critical only: what fails is raised. Its debug lines may show the configuration.
    "log_level": "2",
}


# Options of Java's login by a token, and what the provider for a token endpoint calls them.
_OF_TOKEN_ENDPOINT = {
    "sasl.oauthbearer.token.endpoint.url": "url",
    "sasl.oauthbearer.client.credentials.client.id": "client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "client.secret",
    "sasl.oauthbearer.scope": "scope",
}

SOURCE_OPTIONS = frozenset({
    "subscribe", "subscribepattern", "assign", "startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp",
    "startingoffsetsbytimestampstrategy", "endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp",
    "failondataloss", "minpartitions", "maxrecordsperpartition", "maxoffsetspertrigger", "minoffsetspertrigger",
    "maxtriggerdelay", "groupidprefix", "kafkaconsumer.polltimeoutms", "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
})  # fmt: skip
"""Options of Spark's Kafka source, in lower case: its sink ignores them, and so does ours."""

CONSUMER_OPTIONS = frozenset({
    "group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "isolation.level", "auto.offset.reset",
    "enable.auto.commit", "auto.commit.interval.ms", "allow.auto.create.topics", "check.crcs", "default.api.timeout.ms",
    "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "heartbeat.interval.ms",
    "key.deserializer", "value.deserializer", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
    "partition.assignment.strategy", "session.timeout.ms", "client.rack",
})  # fmt: skip
"""Options of Java's consumer that its producer does not have, without ``kafka.``."""

IGNORED = "of Spark's Kafka source: no effect on the sink, as in Spark; a warning names it"

# The case of names is Spark's business, and the values are read by ``KafkaOptions``, whose table knows more.
DECLARED = (
    *(Option(name=name, doc=doc, secret=name == TOKEN_CONFIG_OPTION) for name, doc in OWN_OPTIONS.items()),
    *(Option(name=name, doc=IGNORED) for name in sorted(SOURCE_OPTIONS)),
    *(Option(name=f"kafka.{name}", doc=IGNORED) for name in sorted(CONSUMER_OPTIONS)),
    *(Option(name=f"kafka.{each.name}", doc=each.note, secret=each.secret) for each in OPTIONS.values()),
)


_LOGIN = re.compile(r".*@")
"""What some write before a server: it may hold a password."""
# As Java's clients read it; a protocol before it is passed over.
_SERVER = re.compile(r"(?:.*://)?(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:/\s@]+)(?::(?P<port>[0-9]{1,5}))?")
_PORT = "9092"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """The checked options. Its ``repr`` shows no secret.

    ``client`` is librdkafka's configuration without the timeouts of a transaction and without a
    transactional id; ``transaction_timeout_ms`` is None where the user left it to the broker.
    ``token_provider`` is called with ``token_settings`` where the mechanism is OAUTHBEARER, and empty elsewhere.
    ``marker_topic`` is the one to fall back on unless ``marker_is_given``: what ``check`` chose is in its facts.
    ``request_bytes_max`` bounds a request with batches for several partitions.
    """

    servers: str
    topic: str | None = None
    prefix: str = "onceonly"
    marker_topic: str | None = None
    marker_is_given: bool = False
    transaction_timeout_ms: int | None = None
    max_block_ms: int = 60_000
    producer: str = BY_DIRECT
    goes_on_behind: bool = False
    ignored: tuple[str, ...] = ()
    request_bytes_max: int = _REQUEST_BYTES
    token_provider: str = ""
    token_settings: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)

    @property
    def delivery_timeout_ms(self) -> int:
        return int(self.client["delivery.timeout.ms"])

    @property
    def record_bytes_max(self) -> int:
        return int(self.client["message.max.bytes"])

    @classmethod
    def of_source(cls, options: Mapping[str, str]) -> KafkaOptions:
        """Read how the cluster of a Kafka source is reached, from all of the source's options. As ``parse``."""
        of_cluster = {name: text for name, text in options.items() if name.lower().startswith("kafka.")}
        return cls.parse(of_cluster, who=_SOURCE)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, who: str = _SINK) -> KafkaOptions:
        """Read the options of a query. Pure; raises ``ConfigurationError`` that names a wrong one, and whose it is."""
        own: dict[str, str] = {}
        java: dict[str, str] = {}
        # Spark hands options over in the case that the user typed, or in lower case.
        for name, value in options.items():
            key = name.lower()
            if key.startswith("kafka."):
                java[key.removeprefix("kafka.")] = value
            else:
                own[key] = value
        ignored = [
            *(own.keys() & SOURCE_OPTIONS),
            *(f"kafka.{name}" for name in java.keys() & CONSUMER_OPTIONS),
        ]
        own = {name: value for name, value in own.items() if name not in SOURCE_OPTIONS}
        java = {name: value for name, value in java.items() if name not in CONSUMER_OPTIONS}
        _refuse_unknown(own, java, who)
        if not java.get("bootstrap.servers", "").strip():
            raise ConfigurationError(
                f"The option kafka.bootstrap.servers of {who} is missing.",
                next_step="give it as host:port, several separated by commas",
            )
        _check_servers(java["bootstrap.servers"])
        prefix = own.get(PREFIX_OPTION, "onceonly")
        if not prefix.strip():
            raise ConfigurationError(
                f"The option {PREFIX_OPTION} is empty.", next_step="leave it out or give it a name"
            )
        producer = own.get(PRODUCER_OPTION, BY_DIRECT).strip().lower()
        if producer not in {BY_DIRECT, BY_ROW, _BY_ROW_TOO}:
            raise ConfigurationError(
                f"The option {PRODUCER_OPTION} is {producer!r}, and must be {BY_DIRECT} or {BY_ROW}.",
                next_step="leave it out",
            )
        if_behind = own.get(behind.OPTION, behind.STOP).strip().lower()
        if if_behind not in {behind.STOP, behind.GO_ON}:
            raise ConfigurationError(
                f"The option {behind.OPTION} is {if_behind!r}, and must be {behind.STOP} or {behind.GO_ON}.",
                next_step="leave it out",
            )
        read = {name: _value(OPTIONS[name], text, who) for name, text in java.items()}
        timeout = read.pop("transaction.timeout.ms", None)
        by_password, provider, token_settings = _login(own, read)
        return cls(
            servers=read["bootstrap.servers"],
            topic=own.get("topic") or None,
            prefix=prefix,
            marker_topic=own.get(MARKER_OPTION) or own.get("topic") or None,
            marker_is_given=bool(own.get(MARKER_OPTION)),
            transaction_timeout_ms=None if timeout is None else int(timeout),
            max_block_ms=int(read.pop("max.block.ms", "60000")),
            producer=BY_DIRECT if producer == BY_DIRECT else BY_ROW,
            ignored=tuple(sorted(ignored)),
            goes_on_behind=if_behind == behind.GO_ON,
            request_bytes_max=int(read.get("max.request.size", _REQUEST_BYTES)),
            token_provider=provider,
            token_settings=token_settings,
            client=_client(read) | by_password,
        )


def _refuse_unknown(own: Mapping[str, str], java: Mapping[str, str], who: str) -> None:
    known = [*OWN_OPTIONS, *(f"kafka.{name}" for name in OPTIONS)]
    for name in (*own, *(f"kafka.{name}" for name in java)):
        if name not in known:
            raise unknown_option(name, known, who=who, of_sink=who == _SINK)


def _check_servers(text: str) -> None:
    """Refuse servers whose ports no client can read: it would fail with an error of its own, again and again."""
    for server in filter(None, map(str.strip, text.split(","))):
        matched = _SERVER.fullmatch(server)
        if matched is None or not 0 < int(matched["port"] or _PORT) < 1 << 16:
            shown = _LOGIN.sub("…@", server)
            raise ConfigurationError(
                f"The option kafka.bootstrap.servers names {shown!r}, which is no host:port.",
                next_step="give it as host:port, several separated by commas; an address of IPv6 in brackets",
            )


def _value(option: ProducerOption, text: str, who: str) -> str:
    """Check one option of the producer and bring its value into librdkafka's form."""
    name = f"kafka.{option.name}"
    if option.use is Use.REFUSED:
        raise ConfigurationError(f"{who} refuses {name}.", next_step=option.note)
    value = text if option.secret else text.strip()
    if option.kind is Kind.BOOLEAN or option.name == "compression.type":
        value = value.lower()
    elif option.kind is Kind.LIST:
        value = ",".join(part.strip() for part in value.split(",") if part.strip())
    if option.name in {"security.protocol", "sasl.mechanism", "ssl.keystore.type", "ssl.truststore.type"}:
        value = value.upper()
    allowed = option.only or (("true", "false") if option.kind is Kind.BOOLEAN else ())
    if allowed and value not in allowed:
        shown = " or ".join(entry or "the empty text" for entry in allowed)
        raise ConfigurationError(
            f"The option {name} is {value!r}, and must be {shown}.", next_step=option.note or "change it"
        )
    if option.kind is not Kind.INTEGER:
        return Secret(value) if option.secret else value
    return str(_integer(option, value))


def _integer(option: ProducerOption, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        raise ConfigurationError(
            f"The option kafka.{option.name} is {value!r}, and must be a whole number.",
            next_step="change it",
        ) from None
    if option.name == "retries" and number < 1:
        raise ConfigurationError(
            "The option kafka.retries is 0, and no guarantee holds without retries.",
            next_step="leave it out; kafka.delivery.timeout.ms bounds the retries",
        )
    return min(max(number // option.divide, option.least), option.most)


def _login(own: Mapping[str, str], read: Mapping[str, str]) -> tuple[dict[str, str], str, dict[str, str]]:
    """Return what a JAAS line says of user and password, the provider of tokens, and its settings."""
    mechanism = read.get("sasl.mechanism", "")
    oauth = {name: read[option] for option, name in _OF_TOKEN_ENDPOINT.items() if option in read}
    by_password: dict[str, str] = {}
    provider, settings = own.get(TOKEN_OPTION, "").strip(), _pairs(own.get(TOKEN_CONFIG_OPTION, ""))
    line = read.get("sasl.jaas.config")
    if line is not None:
        if not mechanism:
            raise ConfigurationError(
                "The option kafka.sasl.jaas.config is given without kafka.sasl.mechanism.",
                next_step="give it: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, as the broker has it",
            )
        other = provider or "sasl.username" in read or "sasl.password" in read
        by_password, found, found_settings = jaas.login(line, oauth)
        if other or (mechanism == "OAUTHBEARER") != bool(found):
            raise ConfigurationError(
                f"The option kafka.sasl.jaas.config does not go with kafka.sasl.mechanism={mechanism} and the other "
                "options of the login.",
                next_step="say who logs in once: by the line, by kafka.sasl.username and kafka.sasl.password, or by "
                f"{TOKEN_OPTION}, and give the mechanism that goes with it",
            )
        provider, settings = found, found_settings
    elif not provider and "url" in oauth:
        provider, settings = logins.CLIENT_CREDENTIALS, oauth
    if bool(provider) != (mechanism == "OAUTHBEARER"):
        missing = TOKEN_OPTION if mechanism == "OAUTHBEARER" else "kafka.sasl.mechanism=OAUTHBEARER"
        raise ConfigurationError(
            f"The login by a token lacks {missing}.",
            next_step=f"give both kafka.sasl.mechanism=OAUTHBEARER and {TOKEN_OPTION}=package.module:function, or "
            "kafka.sasl.oauthbearer.token.endpoint.url; or neither",
        )
    if provider:
        settings = {**settings, "bootstrap.servers": read["bootstrap.servers"]}
    return by_password, provider, settings


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, pair in enumerate(filter(None, (each.strip() for each in text.split(","))), 1):
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigurationError(
                f"Part {number} of the option {TOKEN_CONFIG_OPTION} is not key=value.", next_step="correct it"
            )
        found[name.strip()] = Secret(value.strip())
    return found


def _client(read: Mapping[str, str]) -> dict[str, str]:
    """Put librdkafka's configuration together from checked values."""
    client = dict(_DEFAULTS)
    level = f"compression.{read.get('compression.type', 'none')}.level"
    for name, value in read.items():
        option = OPTIONS[name]
        is_for_us = option.to.startswith("(") or option.use is Use.NO_EFFECT
        if is_for_us or name.endswith(("store.type", "store.location", ".ignore.keys")):
            continue
        if option.to == "compression.level" and name != level:
            continue
        client[option.to] = value
    if client.get("ssl.endpoint.identification.algorithm") == "":
        client["ssl.endpoint.identification.algorithm"] = "none"
    for store, targets in (
        ("keystore", ("ssl.certificate.location", "ssl.key.location")),
        ("truststore", ("ssl.ca.location",)),
    ):
        location = read.get(f"ssl.{store}.location")
        if location is None:
            continue
        if read.get(f"ssl.{store}.type") != "PEM":
            raise ConfigurationError(
                f"The option kafka.ssl.{store}.location names a Java {store}, which only Java reads.",
                next_step=OPTIONS[f"ssl.{store}.type"].note,
            )
        client |= dict.fromkeys(targets, location)
    if "reconnect.backoff.ms" in client:
        client["reconnect.backoff.max.ms"] = str(
            max(int(client["reconnect.backoff.max.ms"]), int(client["reconnect.backoff.ms"]))
        )
    return client
