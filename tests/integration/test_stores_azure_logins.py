"""Logins to Azure as a job's Hadoop has them, over TLS: SAS, a client's secret, a workload identity; against Azurite.

Azurite looks at a token's claims and not at its signature. The server that gives tokens is a double.
"""

from __future__ import annotations

import base64
import itertools
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest
from tests.unit.certificates import certificate

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.objects import ObjectStore
from onceonly.stores.port import put_once
from onceonly_proof.embedded.azure import HOST, KEY, EmbeddedAzure
from onceonly_proof.stores.laws import NAME, RewritableLaws

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.long]  # a further server

_CONTAINER = "checkpoints"
_ACCOUNT = "fs.azure.account."
_PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2."
_ALL = "rcwdl"
_folders = itertools.count()


@dataclass
class Logins:
    """Gives a token to who shows the right secret, or the right token of a workload."""

    host: str = ""
    asked: list[dict[str, list[str]]] = field(default_factory=list)


def _token() -> str:
    now = int(time.time())
    claims = {"aud": "https://storage.azure.com", "iss": "https://sts.windows.net/ten-ant/"}
    times = {"iat": now - 5, "nbf": now - 5, "exp": now + 3600}
    parts = (json.dumps(each).encode() for each in ({"alg": "none", "typ": "JWT"}, claims | times))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + ".c2ln"


def _handler(logins: Logins) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            logins.asked.append({"path": [self.path], **told})
            right = ["right"] in (told.get("client_secret"), told.get("client_assertion"))
            answer = {"access_token": _token(), "expires_in": 3600} if right else {"error": "invalid_client"}
            body = json.dumps(answer).encode()
            self.send_response(200 if right else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base's name
            pass

    return Handler


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"), "basicConstraints=critical,CA:FALSE")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tls: tuple[Path, Path]) -> Iterator[EmbeddedAzure]:
    with EmbeddedAzure(tmp_path_factory.mktemp("azure"), tls=tls) as found:
        found.make_container(_CONTAINER)
        yield found


@pytest.fixture(autouse=True)
def trusted(tls: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))


@pytest.fixture(scope="module")
def logins(tls: tuple[Path, Path]) -> Iterator[Logins]:
    found = Logins()
    served = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls)
    served.socket = context.wrap_socket(served.socket, server_side=True)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found.host = f"https://127.0.0.1:{served.server_address[1]}"
    yield found
    served.shutdown()
    served.server_close()
    thread.join()


def store_of(server: EmbeddedAzure, given: dict[str, str]) -> ObjectStore:
    address = parse(server.address(_CONTAINER, f"laws-{next(_folders)}"))
    access = Hadoop({**server.hadoop(""), **given}).access(address)
    return ObjectStore(opened.make_client(address, access), address)


def by_sas(token: str) -> dict[str, str]:
    return {f"{_ACCOUNT}auth.type": "SAS", "fs.azure.sas.fixed.token": token}


def by_client(logins: Logins, secret: str = "right") -> dict[str, str]:  # noqa: S107  of a double
    return {
        f"{_ACCOUNT}auth.type.{HOST}": "OAuth",
        f"{_ACCOUNT}oauth.provider.type.{HOST}": f"{_PROVIDERS}ClientCredsTokenProvider",
        f"{_ACCOUNT}oauth2.client.id.{HOST}": "app",
        f"{_ACCOUNT}oauth2.client.secret.{HOST}": secret,
        f"{_ACCOUNT}oauth2.client.endpoint.{HOST}": f"{logins.host}/ten-ant/oauth2/token",
    }


def by_workload(logins: Logins, token: Path) -> dict[str, str]:
    return {
        f"{_ACCOUNT}auth.type": "OAuth",
        f"{_ACCOUNT}oauth.provider.type": f"{_PROVIDERS}WorkloadIdentityTokenProvider",
        f"{_ACCOUNT}oauth2.client.id": "app",
        f"{_ACCOUNT}oauth2.msi.tenant": "ten-ant",
        f"{_ACCOUNT}oauth2.msi.authority": f"{logins.host}/",
        f"{_ACCOUNT}oauth2.token.file": str(token),
    }


class TestBySas(RewritableLaws):
    @pytest.fixture
    def store(self, server: EmbeddedAzure) -> ObjectStore:
        return store_of(server, by_sas(server.sas(_CONTAINER, _ALL)))


class TestByClientsSecret(RewritableLaws):
    @pytest.fixture
    def store(self, server: EmbeddedAzure, logins: Logins) -> ObjectStore:
        return store_of(server, by_client(logins))


def test_a_workload_logs_in_by_the_file_that_its_pod_was_given(
    server: EmbeddedAzure, logins: Logins, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("right")
    store = store_of(server, by_workload(logins, token))
    store.prepare([])
    assert put_once(store, NAME, b"x") == b"x"
    assert logins.asked[-1]["path"] == ["/ten-ant/oauth2/v2.0/token"]
    token.unlink()
    with pytest.raises(
        ConfigurationError, match=r"token of the workload identity cannot be read.*token\.file"
    ):
        store_of(server, by_workload(logins, token)).prepare([])


@pytest.mark.parametrize(
    ("rights", "verb"), [("rdl", "put"), ("cwdl", "read"), ("rcwd", "listed"), ("rcwl", "removed")]
)
def test_a_right_that_a_sas_lacks_is_named_before_the_first_record(
    server: EmbeddedAzure, rights: str, verb: str
) -> None:
    token = server.sas(_CONTAINER, rights)
    with pytest.raises(
        ConfigurationError, match=rf"could not be {verb}: Azure.*permit.*rights rcwdl"
    ) as caught:
        store_of(server, by_sas(token)).prepare([])
    assert token.partition("sig=")[2] not in str(caught.value)


def test_a_sas_that_has_ended_or_was_changed_is_told_so(server: EmbeddedAzure) -> None:
    ended = server.sas(_CONTAINER, _ALL, until="2020-01-01T00:00:00Z")
    changed = server.sas(_CONTAINER, _ALL).replace("sig=", "sig=x")
    for token in (ended, changed):
        with pytest.raises(ConfigurationError, match=r"not have ended \(se\)"):
            store_of(server, by_sas(token)).prepare([])


def test_a_client_with_another_secret_is_told_so(server: EmbeddedAzure, logins: Logins) -> None:
    with pytest.raises(ConfigurationError, match=r"their secret is another \(401") as caught:
        store_of(server, by_client(logins, "wrong")).prepare([])
    assert "wrong" not in str(caught.value)


def test_a_server_of_logins_that_is_away_is_told_from_a_login_that_is_missing(
    server: EmbeddedAzure, logins: Logins
) -> None:
    away = by_client(logins) | {
        f"{_ACCOUNT}oauth2.client.endpoint.{HOST}": "https://127.0.0.1:1/t/oauth2/token"
    }
    with pytest.raises(UnavailableError, match="the server where the job logs in does not answer"):
        store_of(server, away).get(NAME)


def test_a_certificate_that_is_not_trusted_is_told_so(
    server: EmbeddedAzure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ConfigurationError, match=r"does not trust.*SSL_CERT_FILE"):
        store_of(server, {f"{_ACCOUNT}key.{HOST}": KEY}).prepare([])
