"""What a job gave to Hadoop for its stores, as obstore is told it; and what Python cannot take over."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from onceonly.errors import ConfigurationError, SetupError
from onceonly.spark.hadoop import read
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.profiles import profile

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.stores.logins.common import Access

S3 = "s3a://bucket/chk"
AZURE = "abfss://data@acc.dfs.core.windows.net/chk"
GCS = "gs://bucket/chk"
SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
INSTANCE = "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
TOKENS = "org.apache.hadoop.fs.azurebfs.oauth2."
LOGIN = "https://login.microsoftonline.com/ten-ant/oauth2/token"
BY_CLIENT = {
    "fs.azure.account.auth.type.acc.dfs.core.windows.net": "OAuth",
    "fs.azure.account.oauth.provider.type.acc.dfs.core.windows.net": TOKENS + "ClientCredsTokenProvider",
    "fs.azure.account.oauth2.client.id.acc.dfs.core.windows.net": "id",
    "fs.azure.account.oauth2.client.secret.acc.dfs.core.windows.net": "s",
    "fs.azure.account.oauth2.client.endpoint.acc.dfs.core.windows.net": LOGIN,
}
KEYS = {"fs.s3a.access.key": "ak", "fs.s3a.secret.key": "sk"}


def access(address: str, **given: str) -> Access:
    return Hadoop({f"spark.hadoop.{name}": value for name, value in given.items()}).access(parse(address))


S3_CONFIG: list[tuple[dict[str, str], dict[str, Any], dict[str, Any]]] = [
    ({}, {"virtual_hosted_style_request": True}, {}),
    ({"endpoint": "http://minio:9000", "path.style.access": "true"},
     {"endpoint": "http://minio:9000", "virtual_hosted_style_request": False}, {"allow_http": True}),
    ({"endpoint": "minio:9000", "path.style.access": "true", "connection.ssl.enabled": "false"},
     {"endpoint": "http://minio:9000"}, {"allow_http": True}),
    ({"endpoint": "storage.example.com"},
     {"endpoint": "https://bucket.storage.example.com", "virtual_hosted_style_request": True}, {"allow_http": False}),
    ({"endpoint": "http://10.0.0.7:9000"},
     {"endpoint": "http://10.0.0.7:9000", "virtual_hosted_style_request": False}, {"allow_http": True}),
    ({"endpoint": "http://[::1]:9000"}, {"endpoint": "http://[::1]:9000"}, {"allow_http": True}),
    ({"endpoint": "s3.eu-west-1.amazonaws.com"}, {"region": "eu-west-1"}, {}),
    ({"endpoint": "https://s3.amazonaws.com"}, {"virtual_hosted_style_request": True}, {}),
    ({"endpoint": "s3.cn-north-1.amazonaws.com.cn", "endpoint.region": "cn-north-1"}, {"region": "cn-north-1"}, {}),
    ({"bucket.bucket.endpoint.region": "eu-west-3", "endpoint.region": "us-west-2"}, {"region": "eu-west-3"}, {}),
    ({"bucket.other.endpoint.region": "eu-west-3", "endpoint.region": "us-west-2"}, {"region": "us-west-2"}, {}),
    ({"encryption.algorithm": "SSE-KMS", "encryption.key": "arn"},
     {"server_side_encryption": "aws:kms", "sse_kms_key_id": "arn"}, {}),
    ({"server-side-encryption-algorithm": "AES256"}, {"server_side_encryption": "AES256"}, {}),
    ({"bucket.bucket.server-side-encryption-algorithm": "AES256", "encryption.algorithm": "SSE-KMS"},
     {"server_side_encryption": "AES256"}, {}),
    ({"encryption.algorithm": "SSE-C", "encryption.key": "b64"},
     {"server_side_encryption": "sse-c", "sse_customer_key_base64": "b64"}, {}),
    ({"requester.pays.enabled": "true"}, {"request_payer": True}, {}),
    ({"proxy.host": "proxy", "proxy.port": "8080", "proxy.username": "me", "proxy.password": "pw"}, {},
     {"proxy_url": "http://me:pw@proxy:8080"}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "config", "client"), S3_CONFIG)
def test_where_s3_is_and_how_it_encrypts_is_taken_over(
    given: dict[str, str], config: dict[str, Any], client: dict[str, Any]
) -> None:
    found = access(S3, **{f"fs.s3a.{name}": value for name, value in given.items()})
    assert {**found.config, **config} == found.config
    assert found.client == client
    assert found.machine


@pytest.mark.parametrize(
    "given", [given for given, _, _ in S3_CONFIG if not any("bucket." in each for each in given)]
)
def test_each_setting_of_s3_may_be_that_of_one_bucket(given: dict[str, str]) -> None:
    of_all = access(S3, **{f"fs.s3a.{name}": value for name, value in given.items()})
    assert access(S3, **{f"fs.s3a.bucket.bucket.{name}": value for name, value in given.items()}) == of_all
    assert access(S3, **{f"fs.s3a.bucket.other.{name}": value for name, value in given.items()}) == access(S3)


@pytest.mark.parametrize(
    ("address", "of_all", "own"),
    [
        (S3, {"fs.s3a.endpoint": "http://minio:9000"}, "fs.s3a.bucket.bucket.endpoint"),
        (S3, {**KEYS, "fs.s3a.session.token": "st"}, "fs.s3a.bucket.bucket.session.token"),
        (S3, KEYS, "fs.s3a.bucket.bucket.access.key"),
        (
            S3,
            {"fs.s3a.server-side-encryption-algorithm": "AES256"},
            "fs.s3a.bucket.bucket.encryption.algorithm",
        ),
        (AZURE, {"fs.azure.account.key": "k"}, "fs.azure.account.key.acc.dfs.core.windows.net"),
        (AZURE, BY_CLIENT, "fs.azure.account.auth.type.data.acc.dfs.core.windows.net"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_an_empty_text_keeps_what_is_given_for_all_from_one(
    address: str, of_all: dict[str, str], own: str
) -> None:
    """As Hadoop does."""
    name = own.replace("bucket.bucket.", "").removesuffix(".dfs.core.windows.net").removesuffix(".acc")
    name = name.removesuffix(".data")
    without = {each: text for each, text in of_all.items() if not each.startswith(name)}
    without.pop("fs.s3a.server-side-encryption-algorithm", "")
    assert access(address, **of_all, **{own: " "}) == access(address, **without)
    assert access(address, **of_all) != access(address, **without)


@pytest.mark.parametrize("provider", [SIMPLE, TEMPORARY, INSTANCE, ANONYMOUS])
def test_keys_and_who_asks_may_be_those_of_one_bucket(provider: str) -> None:
    given = {"access.key": "a", "secret.key": "b", "session.token": "c", "aws.credentials.provider": provider}
    others = {f"fs.s3a.{name}": "other" for name in given if name != "aws.credentials.provider"}
    found = access(S3, **others, **{f"fs.s3a.bucket.bucket.{name}": value for name, value in given.items()})
    assert found == access(S3, **{f"fs.s3a.{name}": value for name, value in given.items()})


S3_KEYS: list[tuple[dict[str, str], tuple[str, str, str] | None, bool]] = [
    (KEYS, ("ak", "sk", ""), False),
    ({**KEYS, "fs.s3a.session.token": "tok"}, ("ak", "sk", "tok"), False),
    ({**KEYS, "fs.s3a.bucket.bucket.secret.key": "own"}, ("ak", "own", ""), False),
    ({**KEYS, "fs.s3a.aws.credentials.provider": SIMPLE}, ("ak", "sk", ""), False),
    ({**KEYS, "fs.s3a.aws.credentials.provider": f"{TEMPORARY}, {SIMPLE}"}, ("ak", "sk", ""), False),
    ({**KEYS, "fs.s3a.aws.credentials.provider": INSTANCE}, None, True),
    ({"fs.s3a.aws.credentials.provider": f"{SIMPLE},{INSTANCE}"}, None, True),
    ({"fs.s3a.aws.credentials.provider": "com.amazonaws.auth.WebIdentityTokenCredentialsProvider"}, None, True),
    ({"fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"}, None,
     True),
    ({**KEYS, "fs.s3a.aws.credentials.provider": ANONYMOUS}, None, False),
    ({"fs.s3a.access.key": "ak"}, None, True),
    ({"hadoop.security.credential.provider.path": "user:///"}, None, True),
    ({**KEYS, "hadoop.security.credential.provider.path": "jceks://hdfs@nn/s.jceks"}, ("ak", "sk", ""), False),
    ({"fs.s3a.aws.credentials.provider": INSTANCE, "hadoop.security.credential.provider.path": "jceks://file/s.jceks"},
     None, True),
]  # fmt: skip


@pytest.mark.parametrize(("given", "keys", "machine"), S3_KEYS)
def test_keys_of_s3_are_found_where_hadoop_would_find_them(
    given: dict[str, str],
    keys: tuple[str, str, str] | None,
    machine: bool,  # noqa: FBT001  a table
) -> None:
    found = access(S3, **given)
    assert (found.keys, found.machine) == (keys, machine)


def test_nobody_is_asked_for_keys_of_an_open_bucket() -> None:
    assert access(S3, **{"fs.s3a.aws.credentials.provider": ANONYMOUS}).config["skip_signature"] is True


def test_a_bucket_with_dots_is_no_part_of_a_host_name() -> None:
    assert access("s3a://my.bucket/chk").config["virtual_hosted_style_request"] is False


AZURE_CONFIG: list[tuple[dict[str, str], dict[str, Any], bool]] = [
    ({}, {"account_name": "acc"}, True),
    ({"fs.azure.account.key.acc.dfs.core.windows.net": "k"}, {"credential_type": "access_key", "account_key": "k"},
     False),
    ({"fs.azure.account.key.acc.blob.core.windows.net": "k"}, {"account_key": "k"}, False),
    ({"fs.azure.account.key.other.dfs.core.windows.net": "k"}, {"account_name": "acc"}, True),
    ({"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": "sv=1&sig=x"},
     {"credential_type": "sas_token", "sas_key": "sv=1&sig=x"}, False),
    ({"fs.azure.sas.data.acc.blob.core.windows.net": "sv=1"}, {"sas_key": "sv=1"}, False),
    ({"fs.azure.account.auth.type.acc.dfs.core.windows.net": "OAuth",
      "fs.azure.account.oauth.provider.type.acc.dfs.core.windows.net": TOKENS + "ClientCredsTokenProvider",
      "fs.azure.account.oauth2.client.id": "id", "fs.azure.account.oauth2.client.secret": "s",
      "fs.azure.account.oauth2.client.endpoint": LOGIN},
     {"credential_type": "client_secret", "client_id": "id", "client_secret": "s", "tenant_id": "ten-ant",
      "authority_host": "https://login.microsoftonline.com"}, False),
    ({"fs.azure.account.auth.type": "OAuth", "fs.azure.account.oauth.provider.type": TOKENS + "MsiTokenProvider",
      "fs.azure.account.oauth2.client.id": "id"}, {"credential_type": "managed_identity", "client_id": "id"}, True),
    ({"fs.azure.account.auth.type": "OAuth",
      "fs.azure.account.oauth.provider.type": TOKENS + "WorkloadIdentityTokenProvider",
      "fs.azure.account.oauth2.msi.tenant": "t", "fs.azure.account.oauth2.token.file": "/var/token",
      "fs.azure.account.oauth2.msi.authority": "https://login.chinacloudapi.cn/"},
     {"credential_type": "workload_identity", "tenant_id": "t", "federated_token_file": "/var/token",
      "authority_host": "https://login.chinacloudapi.cn"}, True),
    ({"fs.azure.encryption.encoded.client-provided-key": "b64"}, {"encryption_key": "b64"}, True),
]  # fmt: skip


@pytest.mark.parametrize(("given", "config", "machine"), AZURE_CONFIG)
def test_logins_of_azure_are_taken_over(
    given: dict[str, str],
    config: dict[str, Any],
    machine: bool,  # noqa: FBT001  a table
) -> None:
    found = access(AZURE, **given)
    assert {**found.config, **config} == found.config
    assert found.machine is machine


def test_a_cloud_of_its_own_is_reached_at_its_own_host() -> None:
    found = access("abfss://data@acc.dfs.core.chinacloudapi.cn/chk")
    assert found.config["endpoint"] == "https://acc.blob.core.chinacloudapi.cn"


PLAIN = {"fs.azure.always.use.https": "false"}
EMULATOR = {"fs.azure.abfs.endpoint": "127.0.0.1:10000"}
AZURE_ENDPOINTS: list[tuple[str, dict[str, str], str | None]] = [
    ("abfs", {}, None),
    ("abfs", PLAIN, "http://acc.blob.core.windows.net"),
    ("abfss", PLAIN, None),
    ("abfs", EMULATOR, "https://127.0.0.1:10000/acc"),
    ("abfs", EMULATOR | PLAIN, "http://127.0.0.1:10000/acc"),
    ("abfss", EMULATOR | PLAIN, "https://127.0.0.1:10000/acc"),
]


@pytest.mark.parametrize(("scheme", "given", "endpoint"), AZURE_ENDPOINTS)
def test_an_account_is_asked_without_tls_only_where_address_and_settings_say_so(
    scheme: str, given: dict[str, str], endpoint: str | None
) -> None:
    found = access(AZURE.replace("abfss", scheme), **given, **{"fs.azure.account.key": "k"})
    assert found.config.get("endpoint") == endpoint
    assert found.client.get("allow_http", False) is (endpoint or "").startswith("http:")


NOBODY = json.dumps({"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True})
GCS_CONFIG: list[tuple[dict[str, str], dict[str, Any], bool]] = [
    ({}, {}, True),
    ({"fs.gs.auth.type": "COMPUTE_ENGINE"}, {}, True),
    ({"fs.gs.auth.service.account.json.keyfile": "/k.json"}, {"service_account": "/k.json"}, False),
    ({"google.cloud.auth.service.account.json.keyfile": "/k.json"}, {"service_account": "/k.json"}, False),
    ({"fs.gs.auth.null.enabled": "true", "fs.gs.storage.root.url": "http://gcs:4443/"},
     {"service_account_key": NOBODY, "base_url": "http://gcs:4443"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("given", "config", "machine"), GCS_CONFIG)
def test_logins_of_google_are_taken_over(
    given: dict[str, str],
    config: dict[str, Any],
    machine: bool,  # noqa: FBT001  a table
) -> None:
    found = access(GCS, **given)
    assert found.config == config
    assert found.machine is machine


def test_a_key_of_google_that_is_given_in_parts_is_put_together() -> None:
    found = access(
        GCS,
        **{
            "fs.gs.auth.service.account.email": "me@project",
            "fs.gs.auth.service.account.private.key.id": "7",
            "fs.gs.auth.service.account.private.key": "-----BEGIN\\nabc",
        },
    )
    key = json.loads(found.config["service_account_key"])
    assert key == {
        "type": "service_account",
        "client_email": "me@project",
        "private_key_id": "7",
        "private_key": "-----BEGIN\nabc",
    }


REFUSED: list[tuple[str, dict[str, str], str]] = [
    (S3, {"fs.s3a.aws.credentials.provider": "com.example.Vault"},
     r"fs\.s3a\.aws\.credentials\.provider.*com\.example\.Vault"),
    (S3, {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"},
     "AssumedRoleCredentialProvider"),
    (S3, {"hadoop.security.credential.provider.path": "jceks://file/s.jceks"}, "jceks://file/s.jceks.*only Java"),
    (S3, {"fs.s3a.security.credential.provider.path": "localjceks://file/s.jceks"}, "localjceks"),
    (S3, {"fs.s3a.aws.credentials.provider": SIMPLE, "hadoop.security.credential.provider.path": "user:///,jceks://x"},
     "jceks://x"),
    (S3, {"fs.s3a.bucket.bucket.security.credential.provider.path": "jceks://file/s.jceks"},
     r"^\S+ fs\.s3a\.bucket\.bucket\.security.*and fs\.s3a\.bucket\.bucket\.access\.key is given"),
    # What it holds for this bucket wins over the keys of all buckets.
    (S3, {**KEYS, "fs.s3a.bucket.bucket.security.credential.provider.path": "bcfks://file/s"}, "bcfks://file/s"),
    (S3, {**KEYS, "fs.s3a.aws.credentials.provider": SIMPLE, "fs.s3a.bucket.bucket.access.key": "b",
          "fs.s3a.bucket.bucket.security.credential.provider.path": "jceks://x"}, r"bucket\.bucket\.secret\.key is"),
    (S3, {"fs.s3a.access.key": "a", "fs.s3a.security.credential.provider.path": "jceks://file/s"},
     r"fs\.s3a\.secret\.key is given nowhere"),
    (S3, {**KEYS, "fs.s3a.encryption.algorithm": "SSE-C"}, "SSE-C needs a key"),
    (S3, {**KEYS, "fs.s3a.encryption.algorithm": "SSE-C", "hadoop.security.credential.provider.path": "jceks://file/s"},
     r"jceks://file/s.*encryption\.key is given nowhere"),
    (S3, {"fs.s3a.encryption.algorithm": "CSE-KMS"}, "CSE-KMS"),
    (S3, {"fs.s3a.encryption.context": "a=b"}, "encryption.context"),
    (S3, {"fs.s3a.bucket.bucket.accesspoint.arn": "arn"}, "accesspoint.arn"),
    (S3, {"fs.s3a.delegation.token.binding": "x.Y"}, "delegation.token.binding"),
    ("s3://bucket/chk", {"fs.s3.customAWSCredentialsProvider": "com.example.Own"}, "com.example.Own"),
    ("s3://bucket/chk", {"fs.s3.cse.enabled": "true"}, "encryption"),
    (AZURE, {"fs.azure.account.auth.type": "Custom", "fs.azure.account.oauth.provider.type": "com.example.T"},
     "com.example.T"),
    (AZURE, {"fs.azure.account.auth.type": "OAuth",
             "fs.azure.account.oauth.provider.type": TOKENS + "UserPasswordTokenProvider"},
     "UserPasswordTokenProvider"),
    (AZURE, {"fs.azure.account.auth.type": "OAuth",
             "fs.azure.account.oauth.provider.type": TOKENS + "ClientCredsTokenProvider"}, "client.endpoint"),
    (AZURE, {"fs.azure.account.keyprovider.acc.dfs.core.windows.net": "x.ShellDecryptionKeyProvider"},
     "ShellDecryptionKeyProvider"),
    (AZURE, {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.token.provider.type": "com.example.S"},
     "com.example.S"),
    (AZURE, {"fs.azure.account.auth.type": "SAS"}, "there is no token"),
    (AZURE, {"hadoop.security.credential.provider.path": "jceks://file/s.jceks"}, "jceks"),
    (AZURE, {"fs.azure.account.auth.type": "SAS", "hadoop.security.credential.provider.path": "jceks://file/s"},
     r"jceks.*fs\.azure\.sas\.fixed\.token\.acc\.dfs"),
    (AZURE, {**BY_CLIENT, "fs.azure.account.oauth2.client.secret.acc.dfs.core.windows.net": "",
             "hadoop.security.credential.provider.path": "jceks://file/s"}, r"jceks.*client\.secret\.acc\.dfs"),
    (AZURE, {**BY_CLIENT, "fs.azure.account.oauth2.client.id.acc.dfs.core.windows.net": ""}, r"client\.id, which is"),
    (AZURE, {**BY_CLIENT, "fs.azure.account.oauth2.client.endpoint.acc.dfs.core.windows.net": "x"}, "no tenant"),
    (GCS, {"fs.gs.auth.access.token.provider": "com.example.P"}, "com.example.P"),
    (GCS, {"fs.gs.auth.service.account.keyfile": "/k.p12"}, "keyfile"),
    (GCS, {"fs.gs.auth.type": "USER_CREDENTIALS"}, "USER_CREDENTIALS"),
]  # fmt: skip


@pytest.mark.parametrize(("address", "given", "names"), REFUSED)
def test_what_python_cannot_take_over_is_refused_by_name(
    address: str, given: dict[str, str], names: str
) -> None:
    with pytest.raises(ConfigurationError, match=names):
        access(address, **given)


def test_emrs_own_encryption_is_taken_over_for_its_own_scheme() -> None:
    given = {"fs.s3.enableServerSideEncryption": "true", "fs.s3.serverSideEncryption.kms.keyId": "arn"}
    assert access("s3://bucket/chk", **given).config["sse_kms_key_id"] == "arn"
    assert "sse_kms_key_id" not in access(S3, **given).config


# --- never shown --------------------------------------------------------------------------------------------


def test_what_a_job_gave_is_never_shown_and_travels_whole() -> None:
    hadoop = Hadoop({**KEYS, "fs.s3a.secret.key": "s3cr3t", "spark.app.name": "x"})
    assert "s3cr3t" not in f"{hadoop!r} {hadoop} {hadoop.__reduce__()[0]} {hadoop.access(parse(S3))!r}"
    there = pickle.loads(pickle.dumps(hadoop))  # noqa: S301  our own
    assert there == hadoop
    assert there.access(parse(S3)) == hadoop.access(parse(S3))
    assert pickle.loads(pickle.dumps(Hadoop())) == Hadoop()  # noqa: S301  our own
    assert repr(hadoop) == "Hadoop(2 settings)"


def test_a_setting_of_spark_wins_over_one_of_hadoop() -> None:
    hadoop = Hadoop({"spark.hadoop.fs.s3a.endpoint.region": "a", "fs.s3a.endpoint.region": "b"})
    assert hadoop.get("fs.s3a.endpoint.region") == "a"


def test_only_what_somebody_set_is_read_of_hadoops_settings() -> None:
    text = (
        "<configuration>"
        "<property><name>fs.s3a.endpoint.region</name><value>r</value><source>core-site.xml</source></property>"
        "<property><name>fs.s3a.paging.maximum</name><value>5000</value><source>core-default.xml</source></property>"
        "<property><name>fs.defaultFS</name><value>hdfs://${nn}</value><source>core-default.xml</source>"
        "<source>programmatically</source></property>"
        "<property><name>mine</name><value></value></property>"
        "</configuration>"
    )
    assert read(text, {"fs.defaultFS": "hdfs://n1"}.get) == {
        "fs.s3a.endpoint.region": "r",
        "fs.defaultFS": "hdfs://n1",
        "mine": "",
    }


# --- profiles -----------------------------------------------------------------------------------------------


def home(folder: Path, credentials: str = "", config: str = "") -> dict[str, str]:
    (folder / ".aws").mkdir()
    (folder / ".aws" / "credentials").write_text(credentials)
    (folder / ".aws" / "config").write_text(config)
    return {"HOME": str(folder)}


PROFILES = """[default]
aws_access_key_id=a
aws_secret_access_key=b
[night]
aws_access_key_id=c
aws_secret_access_key=d
aws_session_token=e
"""


def test_a_profile_gives_keys_and_a_region_and_is_read_anew(tmp_path: Path) -> None:
    given = {**home(tmp_path, PROFILES, "[profile night]\nregion=eu-north-1\n"), "AWS_PROFILE": "night"}
    keys, region = profile(given)
    assert region == "eu-north-1"
    assert keys is not None
    found = keys()
    assert (found["access_key_id"], found["secret_access_key"], found["token"]) == ("c", "d", "e")
    assert found["expires_at"] is not None
    (tmp_path / ".aws" / "credentials").write_text(PROFILES.replace("=c", "=new"))
    assert keys()["access_key_id"] == "new"


def test_keys_of_the_environment_come_before_a_profile(tmp_path: Path) -> None:
    given = home(tmp_path, PROFILES, "[default]\nregion=eu-north-1\n")
    assert profile({**given, "AWS_ACCESS_KEY_ID": "x"}) == (None, "eu-north-1")
    assert profile({**given, "AWS_WEB_IDENTITY_TOKEN_FILE": "/t", "AWS_REGION": "us-east-1"}) == (None, "")


def test_a_machine_without_profiles_is_asked_for_its_role(tmp_path: Path) -> None:
    assert profile({"HOME": str(tmp_path)}) == (None, "")


def test_a_profile_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'night'"):
        profile({"HOME": str(tmp_path), "AWS_PROFILE": "night"})


def test_a_profile_that_only_boto3_understands_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(SetupError, match=r"role_arn.*boto3"):
        profile(home(tmp_path, "", "[default]\nrole_arn=arn:aws:iam::1:role/r\n"))


def test_a_damaged_file_of_profiles_is_named_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="credentials cannot be read") as caught:
        profile(home(tmp_path, "s3cr3t"))
    assert "s3cr3t" not in str(caught.value)
