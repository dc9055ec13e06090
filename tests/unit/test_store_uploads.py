"""Uploads into a bucket: the client is made of what the job gave to Hadoop, and what fails is one sentence."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit import s3_double
from tests.unit.s3_double import BUCKET, Fault, S3Double, serve

from onceonly.errors import ConfigurationError, OnceonlyError, SetupError, UnavailableError
from onceonly.stores import opened, uploads
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.uploads import Completion, Object, S3Uploads, make_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "sksksk"  # noqa: S105  of nobody


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(uploads, "_TRIES", 1)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Double]:
    yield from serve(S3Double())


@pytest.fixture
def double(server: S3Double) -> S3Double:
    server.reset()
    return server


def hadoop(url: str, **more: str) -> Hadoop:
    given = {
        "endpoint": url,
        "access.key": "ak",
        "secret.key": SECRET,
        "endpoint.region": "eu-west-1",
        **more,
    }
    return Hadoop({f"fs.s3a.{name}": value for name, value in given.items() if value})


def client_of(told: Hadoop) -> Any:  # noqa: ANN401  boto3 has no types
    address = parse(f"s3a://{BUCKET}/out")
    return make_client(address, told.access(address))


def opened_at(url: str, **more: str) -> S3Uploads:
    address = parse(f"s3a://{BUCKET}")
    access = hadoop(url, **{"path.style.access": "true", **more}).access(address)
    return S3Uploads(make_client(address, access), address, access)


def test_a_bucket_is_reached_as_the_job_does() -> None:
    by_path = client_of(hadoop("http://127.0.0.1:9000"))
    assert by_path.meta.endpoint_url == "http://127.0.0.1:9000"
    assert by_path.meta.config.s3["addressing_style"] == "path"
    by_name = client_of(hadoop("https://s3.example.com"))
    assert by_name.meta.endpoint_url == "https://s3.example.com"
    assert by_name.meta.config.s3["addressing_style"] == "virtual"
    assert by_name.meta.region_name == "eu-west-1"
    amazon = client_of(hadoop("s3.eu-central-1.amazonaws.com", **{"endpoint.region": ""}))
    assert amazon.meta.endpoint_url == "https://s3.eu-central-1.amazonaws.com"
    proxied = client_of(hadoop("", **{"proxy.host": "proxy", "proxy.port": "3128"}))
    assert proxied.meta.config.proxies == {"http": "http://proxy:3128", "https": "http://proxy:3128"}


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_a_server_that_the_environment_names_has_no_name_for_each_bucket(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://minio:9000")
    client = client_of(hadoop(""))
    assert client.meta.endpoint_url == "http://minio:9000"
    assert client.meta.config.s3["addressing_style"] == "path"


def test_nobody_is_asked_for_keys_where_the_job_wants_none() -> None:
    provider = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    from botocore import UNSIGNED

    client = client_of(hadoop("http://127.0.0.1:1", **{"aws.credentials.provider": provider}))
    assert client.meta.config.signature_version is UNSIGNED


def test_an_upload_is_encrypted_as_the_job_says(double: S3Double) -> None:
    told = {"encryption.algorithm": "SSE-KMS", "encryption.key": "the-key"}
    opened_at(double.url, **told).begin("out/f", "t")
    (sent,) = double.headers
    assert sent["x-amz-server-side-encryption"] == "aws:kms"
    assert sent["x-amz-server-side-encryption-aws-kms-key-id"] == "the-key"


def test_who_pays_is_said_with_each_request(double: S3Double) -> None:
    at = opened_at(double.url, **{"requester.pays.enabled": "true"})
    upload = at.begin("out/f", "t")
    at.send("out/f", upload, 1, b"x")
    assert {each["x-amz-request-payer"] for each in double.headers} == {"requester"}


def test_an_upload_shows_nothing_until_it_is_completed_and_is_gone_then(double: S3Double) -> None:
    at = opened_at(double.url)
    upload = at.begin("out/f", "token")
    parts = [at.send("out/f", upload, number, b"x" * number) for number in (1, 2)]
    assert at.stands("out/f", upload)
    assert at.look("out/f") is None
    assert list(at.standing("out/")) == [("out/f", upload)]
    assert at.complete("out/f", upload, parts) is Completion.DONE
    assert at.look("out/f") == Object(3, "token")
    assert not at.stands("out/f", upload)
    assert at.complete("out/f", upload, parts) is Completion.GONE
    other = at.begin("out/f", "another")
    assert at.complete("out/f", other, [at.send("out/f", other, 1, b"y")]) is Completion.TAKEN
    at.end("out/f", other)
    at.end("out/f", other)
    assert double.open_uploads == []
    assert at.look("out/f") == Object(3, "token")


def test_how_old_an_object_is_the_store_tells_by_its_own_clock(
    double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = opened_at(double.url)
    assert at.idle("out/f") is None
    double.objects["out/f"] = b"x"  # of 10:00:00, as the double says of all
    monkeypatch.setattr(s3_double._Handler, "date_time_string", lambda _: "Thu, 26 Nov 2026 10:00:07 GMT")
    assert at.idle("out/f") == 7.0


@pytest.mark.parametrize(
    ("status", "code", "said", "kind"),
    [
        (400, "ExpiredToken", "the credentials have expired", ConfigurationError),
        (403, "SignatureDoesNotMatch", "not known there", ConfigurationError),
        (403, "AccessDenied", "S3 does not permit it", ConfigurationError),
        (403, "RequestTimeTooSkewed", "clock differs too much", ConfigurationError),
        (503, "SlowDown", "gave no usable answer", UnavailableError),
        (500, "InternalError", "gave no usable answer", UnavailableError),
    ],
)
def test_what_fails_is_one_sentence_without_a_key(
    double: S3Double, status: int, code: str, said: str, kind: type[OnceonlyError]
) -> None:
    double.fault("BEGIN", Fault(status=status, code=code))
    with pytest.raises(kind, match=said) as caught:
        opened_at(double.url).begin("out/f", "t")
    assert f"s3://{BUCKET}/out/f could not be put" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_server_that_is_down_may_come_back() -> None:
    with pytest.raises(UnavailableError, match="gave no usable answer"):
        opened_at("http://127.0.0.1:9").begin("out/f", "t")


def test_without_any_keys_it_is_said_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match="no credentials are given"):
        opened_at("http://127.0.0.1:9", **{"access.key": "", "secret.key": ""}).begin("out/f", "t")


@pytest.mark.parametrize(
    ("profile", "config"),
    [
        ("nobody", "[default]\nregion = x\n"),
        ("own", "[profile own]\ncredential_process = /none/of/these\n"),
        ("own", "[profile own\n"),
        ("own", "[profile own]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = gone\n"),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str, config: str
) -> None:
    (tmp_path / "config").write_text(config)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", profile)
    with pytest.raises(ConfigurationError, match="cannot be reached as the job's settings say") as told:
        client_of(Hadoop())
    assert "AWS_PROFILE" in told.value.next_step


def test_the_token_of_a_web_identity_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    address, nothing = parse(f"s3a://{BUCKET}"), Hadoop()
    uploads_of = S3Uploads(client_of(nothing), address, nothing.access(address))
    with pytest.raises(ConfigurationError, match="the token of the workload identity cannot be read") as told:
        uploads_of.begin("f", "t")
    assert "AWS_WEB_IDENTITY_TOKEN_FILE" in told.value.next_step


def test_a_client_is_made_once_for_a_bucket_and_anew_for_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    address = parse(f"s3a://{BUCKET}/out")
    monkeypatch.setattr(opened, "_uploads", {})
    monkeypatch.setattr(opened, "_told", hadoop("http://127.0.0.1:9"))
    first = opened.open_uploads(address)
    assert opened.open_uploads(parse(f"s3a://{BUCKET}/other")) is first
    monkeypatch.setattr(opened, "_told", hadoop("http://127.0.0.1:9", **{"access.key": "another"}))
    assert opened.open_uploads(address) is not first


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SetupError, match="boto3") as caught:
        client_of(hadoop("http://127.0.0.1:9"))
    assert "onceonly[files,s3]" in caught.value.next_step
