"""Who logs in: JAAS lines, tokens and their providers; what each refusal says, and that no secret shows."""

from __future__ import annotations

import http.server
import sys
import threading
import time
import urllib.parse
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from onceonly.errors import ConfigurationError, SetupError
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.wire import logins, tokens
from onceonly.sinks.kafka.wire.answers import NotAnsweredError
from onceonly.sinks.kafka.wire.settings import security

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECRET = "s3cr3t-4f0a"  # noqa: S105  a canary
KAFKA = "org.apache.kafka.common.security"
PLAIN = f"{KAFKA}.plain.PlainLoginModule"
ENDPOINT = {"sasl__oauthbearer__token__endpoint__url": "https://idp/token"}


def parse(**options: str) -> KafkaOptions:
    named = {f"kafka.{name.replace('__', '.')}": value for name, value in options.items()}
    return KafkaOptions.parse({"kafka.bootstrap.servers": "h:1", "topic": "t", **named})


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", f"{KAFKA}.plain.PlainLoginModule"),
        ("PLAIN", f"kafkashaded.{KAFKA}.plain.PlainLoginModule"),
        ("SCRAM-SHA-512", f"{KAFKA}.scram.ScramLoginModule"),
    ],
)
@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_line_of_user_and_password_is_read(mechanism: str, module: str, quote: str) -> None:
    line = f"{module} required\n  username={quote}u ser{quote} password={quote}{SECRET};=\\{quote}{quote} ;"
    options = parse(sasl__mechanism=mechanism, sasl__jaas__config=line)
    assert options.client["sasl.username"] == "u ser"
    assert options.client["sasl.password"] == f"{SECRET};={quote}"
    assert "sasl.jaas.config" not in options.client
    assert SECRET not in repr(options)


def test_a_line_for_a_token_endpoint_is_read() -> None:
    line = (
        f'{KAFKA}.oauthbearer.OAuthBearerLoginModule required clientId="me" clientSecret="{SECRET}" scope="kafka" '
        'extension_logicalCluster="lkc-1";'
    )
    options = parse(
        sasl__mechanism="OAUTHBEARER",
        sasl__jaas__config=line,
        **ENDPOINT,
    )
    assert options.token_provider == logins.CLIENT_CREDENTIALS
    assert dict(options.token_settings) == {
        "url": "https://idp/token", "client.id": "me", "client.secret": SECRET, "scope": "kafka",
        "extension_logicalCluster": "lkc-1", "bootstrap.servers": "h:1",
    }  # fmt: skip
    assert SECRET not in repr(options)


@pytest.mark.parametrize(
    ("mechanism", "line", "says", "advice"),
    [
        ("PLAIN", f"{PLAIN} required password='{SECRET}';", "no username", "kafka.sasl.username"),
        ("PLAIN", f"{PLAIN} required password='{SECRET}'", "cannot be read", "leave the line out"),
        ("PLAIN", f"{PLAIN} required a={SECRET} b;", "cannot be read", "leave the line out"),
        ("GSSAPI", f"com.sun.security.auth.module.Krb5LoginModule required x='{SECRET}';", "Krb5LoginModule", "GSSAPI"),
        ("OAUTHBEARER", "software.amazon.msk.auth.iam.IAMLoginModule required;", "IAMLoginModule", "msk_iam"),
        ("OAUTHBEARER", f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required;", "where tokens come from", "clientId"),
        ("PLAIN", f"{KAFKA}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub='{SECRET}';",
         "does not go with", "once"),
        ("", f"{PLAIN} required username='u' password='{SECRET}';", "without kafka.sasl.mechanism", "PLAIN"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_read_is_refused_by_name_and_shows_no_secret(
    mechanism: str, line: str, says: str, advice: str
) -> None:
    options = {"sasl__jaas__config": line, **({"sasl__mechanism": mechanism} if mechanism else {})}
    with pytest.raises(ConfigurationError, match=says) as caught:
        parse(**options)
    assert advice in caught.value.next_step
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.sasl.mechanism": "OAUTHBEARER"},
        {"kafka.sasl.mechanism": "PLAIN", "onceonly.token.provider": "a:b"},
        {"onceonly.token.provider": "a:b"},
        {
            "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u",
            "kafka.sasl.jaas.config": f"{KAFKA}.plain.PlainLoginModule required username='u' password='p';",
        },
    ],
)  # fmt: skip
def test_a_login_that_is_said_half_or_twice_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        KafkaOptions.parse({"kafka.bootstrap.servers": "h:1", "topic": "t", **options})


def test_amazons_own_mechanism_is_refused_with_the_way_that_works() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(sasl__mechanism="AWS_MSK_IAM")
    assert logins.MSK in caught.value.next_step


# --- tokens ------------------------------------------------------------------------------------------------------


class Given:
    """A provider that is told how long its tokens live."""

    def __init__(self) -> None:
        self.asked = 0
        self.life_s: float = 3600.0
        self.wait = threading.Event()
        self.wait.set()

    def __call__(self, settings: Mapping[str, str]) -> Any:  # noqa: ANN401
        self.asked += 1
        self.wait.wait(10)
        return f"token-{self.asked}-{settings['x']}", time.time() + self.life_s


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    found = Given()
    monkeypatch.setattr(tokens, "load", lambda _name: found)
    return found


def test_a_token_is_kept_and_its_successor_comes_beside_the_work(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tokens.Tokens("a:b", {"x": "1"})
    first = kept.get()
    assert kept.get() is first
    assert given.asked == 1
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 0.8 * 3600)
    given.wait.clear()
    assert kept.get() is first, "nobody waits while it is good"
    assert kept.get() is first
    given.wait.set()
    deadline = time.monotonic() + 10
    while kept.get() is first:
        assert time.monotonic() < deadline
    assert given.asked == 2, "one successor, however many ask"


def test_one_that_has_expired_is_not_given_out(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tokens.Tokens("a:b", {"x": "1"})
    first = kept.get()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    assert kept.get() is not first
    assert given.asked == 2


def test_a_clock_that_is_set_back_does_not_let_a_token_last_longer(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tokens.Tokens("a:b", {"x": "1"})
    first = kept.get()
    now, at = time.time(), time.monotonic()
    monkeypatch.setattr(time, "time", lambda: now - 3000)
    monkeypatch.setattr(time, "monotonic", lambda: at + 3600)
    assert kept.get() is not first


@pytest.mark.parametrize(
    "answer", [None, "text", ("text",), ("", 9e9), ("text", True), ("text", 1.0), ("t", 9e9, "x")]
)
def test_what_is_no_token_is_refused_and_not_shown(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "load", lambda _name: lambda _settings: answer)
    with pytest.raises(ConfigurationError, match="token provider a:b gave"):
        tokens.Tokens("a:b", {}).get()


def test_a_provider_that_fails_is_named_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(settings: Mapping[str, str]) -> Any:  # noqa: ANN401
        raise ValueError(f"403 for {settings['client.secret']}")

    monkeypatch.setattr(tokens, "load", lambda _name: fails)
    kept = tokens.Tokens("a:b", {"client.secret": SECRET})
    with pytest.raises(NotAnsweredError, match=r"a:b failed: ValueError: 403 for \[redacted\]") as caught:
        kept.get()
    assert caught.value.__cause__ is None
    assert SECRET not in repr(kept)
    assert SECRET not in repr(tokens.Token(SECRET, 1.0))


@pytest.mark.parametrize("name", ["nothing", "no.such.module:f", "json:no_such_function"])
def test_a_provider_that_is_not_there_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        tokens.load(name)


# --- the providers that come along -------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    asked: list[tuple[str, str]] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"access_token": "abc", "expires_in": 60, "token_type": "Bearer"}')

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", asked
        server.shutdown()
        thread.join()


def test_a_token_endpoint_is_asked_by_client_credentials(endpoint: tuple[str, list[tuple[str, str]]]) -> None:
    url, asked = endpoint
    token, expires_s, *_ = logins.client_credentials(
        {"url": url, "client.id": "me", "client.secret": SECRET, "scope": "a b"}
    )
    assert token == "abc"  # noqa: S105  not a secret
    assert 50 < expires_s - time.time() <= 60
    ((authorization, body),) = asked
    assert authorization.startswith("Basic ")
    assert urllib.parse.parse_qs(body) == {"grant_type": ["client_credentials"], "scope": ["a b"]}


class Signer:
    """Stands for Amazon's signer, and notes what it is asked for."""

    asked: ClassVar[list[tuple[str, ...]]] = []

    @classmethod
    def generate_auth_token(cls, region: str) -> tuple[str, int]:
        cls.asked.append(("own", region))
        return "signed", 9_000_000_000_500

    @classmethod
    def generate_auth_token_from_role_arn(cls, region: str, role: str) -> tuple[str, int]:
        cls.asked.append(("role", region, role))
        return "signed", 9_000_000_000_500


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({"bootstrap.servers": "b-1.x.abc.c2.kafka.eu-west-1.amazonaws.com:9098"}, ("own", "eu-west-1")),
        ({"bootstrap.servers": "boot-1.kafka-serverless.us-east-2.amazonaws.com:9098"}, ("own", "us-east-2")),
        (
            {"bootstrap.servers": "h:1", "region": "eu-central-1", "role": "arn"},
            ("role", "eu-central-1", "arn"),
        ),
    ],
)
def test_amazons_signer_is_asked_for_the_region_that_is_given_or_that_the_servers_names_tell(
    settings: dict[str, str], asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", SimpleNamespace(MSKAuthTokenProvider=Signer))
    Signer.asked.clear()
    assert logins.msk_iam(settings) == ("signed", 9_000_000_000.5)
    assert Signer.asked == [asked]


def test_a_region_that_nobody_tells_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", SimpleNamespace(MSKAuthTokenProvider=Signer))
    with pytest.raises(ConfigurationError, match="region"):
        logins.msk_iam({"bootstrap.servers": "h:1"})


def test_without_the_extra_amazons_provider_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(SetupError) as caught:
        logins.msk_iam({"bootstrap.servers": "h:1"})
    assert "onceonly[msk]" in caught.value.next_step


@pytest.mark.parametrize("mechanism", [{}, {"sasl__mechanism": "GSSAPI"}])
def test_a_login_by_ticket_without_its_package_is_refused_and_no_broker_is_blamed(
    monkeypatch: pytest.MonkeyPatch, mechanism: dict[str, str]
) -> None:
    """Each connection failed before, and the query was started again and again for brokers that were well."""
    options = parse(security__protocol="SASL_PLAINTEXT", **mechanism)
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(SetupError, match="needs the Python package gssapi") as caught:
        security(options)
    assert "kafka.sasl.mechanism" in caught.value.next_step
    monkeypatch.setitem(sys.modules, "gssapi", SimpleNamespace())
    assert security(options)["sasl_mechanism"] == "GSSAPI"
