"""Credentials that a machine's own server gives: one that is silent for a moment may pass, one that has none is final.

The server stands in for those of EC2, of containers, of Azure and of Google Cloud, each asked by the real client.
"""

from __future__ import annotations

import json
import os
import socket
from collections import deque
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest
from tests.unit.http_double import served
from tests.unit.s3_double import BUCKET, S3Double, serve

from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError
from onceonly.families import kinesis
from onceonly.stores import answers, opened, profiles
from onceonly.stores.access import Hadoop
from onceonly.stores.address import Kind, parse
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Cloud = Callable[[pytest.MonkeyPatch, str, str], str]

ROLE = {
    "Code": "Success",
    "Type": "AWS-HMAC",
    "AccessKeyId": "ak",
    "SecretAccessKey": "sk",
    "Token": "t",
    "LastUpdated": "2026-01-01T00:00:00Z",
    "Expiration": (datetime.now(UTC) + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ"),
}
SAID = "those of this machine cannot be got now"
NONE = "the machine has no role to ask for any"


class Machine:
    """What the server says: first each of ``next``, then always ``status``; 200 is a role."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.next: deque[int] = deque()

    def answer(self, method: str, path: str) -> tuple[int, bytes]:
        status = self.next.popleft() if self.next else self.status
        if status == 200 and not (method == "PUT" or path.endswith("security-credentials/")):
            return status, json.dumps(ROLE).encode()
        # Of EC2, a token is given to whoever asks, also where there is no role.
        return (200, b"role") if status == 200 or (method == "PUT" and status == 404) else (status, b"SECRET")


class _Handler(BaseHTTPRequestHandler):
    machine: Machine

    def do_GET(self) -> None:
        status, body = self.machine.answer(self.command, self.path)
        if status:  # else it is closed without an answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def do_PUT(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        """Kinesis itself, which knows everybody who has signed."""
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base's name
        pass


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    for address in served(type("Handler", (_Handler,), {"machine": made})):
        made.url = f"http://{address}"
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[S3Double]:
    yield from serve(S3Double())


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in [
        name for name in os.environ if name.startswith(("AWS_", "AZURE_", "IDENTITY_", "GOOGLE_", "GCE_"))
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_SERVICE_TIMEOUT", "1")
    monkeypatch.setattr(opened, "_RETRIES", {"max_retries": 0, "retry_timeout": timedelta(seconds=1)})
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    monkeypatch.setattr(opened, "_clients", {})
    monkeypatch.setattr(
        profiles, "_FIRMWARE", tmp_path / "none"
    )  # this machine may be proven to be of no cloud
    monkeypatch.setattr(opened, "_uploads", {})
    yield
    opened.tell(Hadoop())


def of_ec2(monkeypatch: pytest.MonkeyPatch, url: str, store: str) -> str:
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", url)  # obstore's name
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)  # boto3's
    opened.tell(Hadoop({"fs.s3a.endpoint": store, "fs.s3a.endpoint.region": "eu-west-1"}))
    return f"s3a://{BUCKET}/chk"


def of_azure(_: pytest.MonkeyPatch, url: str, store: str) -> str:
    opened.tell(
        Hadoop(
            {
                "fs.azure.account.auth.type": "OAuth",
                "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider",
                "fs.azure.account.oauth2.msi.endpoint": f"{url}/metadata/identity/oauth2/token",
                "fs.azure.always.use.https": "false",
                "fs.azure.abfs.endpoint": store.removeprefix("http://"),
            }
        )
    )
    return f"abfs://{BUCKET}@acc.dfs.core.windows.net/chk"


def of_google(monkeypatch: pytest.MonkeyPatch, url: str, store: str) -> str:
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):
        monkeypatch.setenv(name, url.removeprefix("http://"))
    opened.tell(Hadoop({"fs.gs.storage.root.url": store}))
    return f"gs://{BUCKET}/chk"


CLOUDS: list[Cloud] = [of_ec2, of_azure, of_google]


@pytest.mark.parametrize("status", [503, 429, 0])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_machines_server_that_is_busy_may_come_back(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, server: S3Double, cloud: Cloud, status: int
) -> None:
    machine.status = status
    address = cloud(monkeypatch, machine.url, server.url)
    with pytest.raises(UnavailableError, match=SAID) as caught:
        opened.open_store(parse(address)).get("x")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_machines_server_that_refuses_connections_may_come_back(
    monkeypatch: pytest.MonkeyPatch, server: S3Double, cloud: Cloud
) -> None:
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = cloud(monkeypatch, f"http://127.0.0.1:{nobody.getsockname()[1]}", server.url)
        with pytest.raises(UnavailableError, match=SAID):
            opened.open_store(parse(address)).get("x")


@pytest.mark.parametrize(
    ("cloud", "status"), [(of_ec2, 404), (of_ec2, 403), (of_azure, 400), (of_google, 404)]
)
def test_a_machine_that_has_no_role_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, server: S3Double, cloud: Cloud, status: int
) -> None:
    machine.status = status
    address = cloud(monkeypatch, machine.url, server.url)
    with pytest.raises(ConfigurationError, match=NONE):
        opened.open_store(parse(address)).get("x")


@pytest.mark.parametrize("status", [404, 410])
def test_azures_own_server_is_brought_up_to_date_now_and_then(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, server: S3Double, status: int
) -> None:
    machine.status = status
    address = of_azure(monkeypatch, machine.url, server.url)
    with pytest.raises(UnavailableError, match=SAID):
        opened.open_store(parse(address)).get("x")


def test_a_decision_is_put_once_the_machines_server_answers_again(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, server: S3Double
) -> None:
    server.reset()
    machine.next.extend([503, 429])
    store = opened.open_store(parse(of_ec2(monkeypatch, machine.url, server.url)))
    assert put_once(store, "links/1.json", b"x") == b"x"
    assert server.objects == {"chk/links/1.json": b"x"}


@pytest.mark.parametrize("status", [503, 0])
def test_no_client_of_uploads_is_kept_that_found_the_machines_server_silent(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, server: S3Double, status: int
) -> None:
    server.reset()
    machine.status = status
    address = parse(of_ec2(monkeypatch, machine.url, server.url))
    with pytest.raises(UnavailableError, match=SAID):
        opened.open_uploads(address)
    machine.status = 200
    assert opened.open_uploads(address).begin("f", "t")


def test_uploads_of_a_machine_without_a_role_are_refused(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, server: S3Double
) -> None:
    machine.status = 404
    address = parse(of_ec2(monkeypatch, machine.url, server.url))
    with pytest.raises(ConfigurationError, match="no credentials are given, and the machine has none"):
        opened.open_uploads(address)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert not profiles.is_role_unknown()


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [(503, UnavailableError, SAID), (0, UnavailableError, SAID), (403, ConfigurationError, NONE)],
)
def test_a_containers_server_is_told_apart_as_well(
    monkeypatch: pytest.MonkeyPatch,
    machine: Machine,
    server: S3Double,
    status: int,
    kind: type[OnceonlyError],
    said: str,
) -> None:
    machine.status = status
    address = parse(of_ec2(monkeypatch, machine.url, server.url))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{machine.url}/v1/credentials")
    with pytest.raises(kind, match=said):
        opened.open_uploads(address)


@pytest.mark.parametrize(
    ("host", "status", "kind"),
    [
        ("169.254.170.2/v2/credentials/1", "Server returned non-2xx status code: 503 x", UnavailableError),
        ("169.254.170.23/v1/credentials", "HTTP error: error sending request", UnavailableError),
        ("[fd00:ec2::23]/v1/credentials", "HTTP error: error sending request", UnavailableError),
        ("169.254.170.2/v2/credentials/1", "Server returned non-2xx status code: 404 Not Found: ", ConfigurationError),
    ],
)  # fmt: skip
def test_containers_are_known_by_the_addresses_of_their_servers(
    host: str, status: str, kind: type[OnceonlyError]
) -> None:
    text = f"Generic S3 error: Error performing GET http://{host} in 7ms, after 5 retries, max_retries: 5  - {status}"
    assert isinstance(_refusal(text), kind)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "token request: Error performing POST https://login/t in 7ms, after 5 retries - HTTP error: error sending",
            UnavailableError,
            "logs in does not answer",
        ),
        (
            "token request: Error performing POST https://login/t in 7ms - Server returned non-2xx status code: 503 x",
            UnavailableError,
            "logs in does not answer",
        ),
        (
            "token request: Error performing POST https://login/t in 7ms - Server returned non-2xx status code: 400 x",
            ConfigurationError,
            "not known there",
        ),
        (
            "Failed to read token file '/x': No such file",
            ConfigurationError,
            "workload identity cannot be read",
        ),
        (
            "status code: 403 Forbidden: Not authorized to perform sts:AssumeRoleWithWebIdentity",
            ConfigurationError,
            "the role of its web identity",
        ),
        (
            "an error occurred while loading credentials: HTTP connect timeout occurred",
            UnavailableError,
            SAID,
        ),
        (
            "an error occurred while loading credentials: IMDS is disabled",
            ConfigurationError,
            "no credentials",
        ),
    ],
)
def test_logins_that_may_pass_are_told_apart_from_those_that_do_not(
    text: str, kind: type[OnceonlyError], said: str
) -> None:
    error = _refusal(text)
    assert isinstance(error, kind)
    assert said in error.what


def _refusal(text: str) -> OnceonlyError:
    return answers.refusal(Exception(text), kind=Kind.S3, where="s3://b/x", verb="put", denied=False)


class _Clock:
    """A clock that goes on while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("container", [False, True])
def test_a_stream_of_kinesis_finds_credentials_once_the_machines_server_answers(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, server: S3Double, *, container: bool
) -> None:
    monkeypatch.setattr(kinesis, "_clients", {})
    of_ec2(monkeypatch, machine.url, server.url)
    if container:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{machine.url}/v1/credentials")
    told = kinesis.StreamOptions(stream="orders", region="eu-west-1", endpoint=machine.url, timeout_s=1)
    stream = kinesis.Stream(told, "the sink", _Clock())
    machine.status = 503
    with pytest.raises(UnavailableError, match="redentials"):
        stream.ask("describe_stream_summary")
    machine.status = 200
    with pytest.raises(UnavailableError, match="what answers describe_stream_summary there is no Kinesis"):
        stream.ask("describe_stream_summary")


def test_a_stream_of_kinesis_without_any_role_is_refused(
    monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    monkeypatch.setattr(kinesis, "_clients", {})
    of_ec2(monkeypatch, machine.url, machine.url)
    told = kinesis.StreamOptions(stream="orders", region="eu-west-1", endpoint=machine.url)
    machine.status = 404
    with pytest.raises(ConfigurationError, match="has no credentials"):
        kinesis.Stream(told, "the sink", _Clock()).ask("describe_stream_summary")


ASKED = (
    "Error performing PUT http://169.254.169.254/latest/api/token in 1s - HTTP error: error sending request"
)
GOOGLES = (
    "Error performing token request: Error performing GET http://metadata.google.internal/computeMetadata/v1/x in 1s - "
    "HTTP error"
)
X86, IMITATED = "processor: 0\nflags\t\t: fpu sse2 ht\n", "processor: 0\nflags\t\t: fpu hypervisor ht\n"


@pytest.mark.parametrize(
    ("maker", "processor", "environment", "proven"),
    [
        ("LENOVO\n", X86, "", True),
        ("Amazon EC2\n", X86, "", False),
        ("Google\n", X86, "", False),
        ("VMware, Inc.\n", IMITATED, "", False),
        ("LENOVO\n", "Features: fp asimd\n", "", False),
        ("\n", X86, "", False),
        (None, X86, "", False),
        ("LENOVO\n", X86, "AWS_EC2_METADATA_SERVICE_ENDPOINT", False),
    ],
)
def test_a_machine_that_is_proven_to_be_of_no_cloud_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    maker: str | None,
    processor: str,
    environment: str,
    proven: bool,  # noqa: FBT001  a table
) -> None:
    """A restart helps where a server is silent for a moment, not where there never is one."""
    if maker is not None:
        (tmp_path / "sys_vendor").write_text(maker, encoding="utf-8")
    (tmp_path / "cpuinfo").write_text(processor, encoding="utf-8")
    monkeypatch.setattr(profiles, "_FIRMWARE", tmp_path)
    monkeypatch.setattr(profiles, "_PROCESSOR", tmp_path / "cpuinfo")
    monkeypatch.delenv("METADATA_HOST", raising=False)
    if environment:
        monkeypatch.setenv(environment, "http://localhost:1")
    for kind, said in ((Kind.S3, ASKED), (Kind.GCS, GOOGLES)):
        error = answers.refusal(Exception(said), kind=kind, where="b", verb="read", denied=False)
        assert isinstance(error, ConfigurationError if proven else UnavailableError), error
        assert ("none of a cloud's" in error.what) is proven
        assert (SAID in error.what) is (not proven)
        assert (answers.cause(Exception(said)) is not None) is proven
