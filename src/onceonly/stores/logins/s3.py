"""Amazon S3, and what imitates it. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from onceonly.stores.logins.common import (
    TRUE,
    Access,
    foreign_class,
    nearest,
    proxy,
    refuse_stores_of_secrets,
    store_of_secrets,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.stores.address import Address
    from onceonly.stores.logins.common import Settings

_BY_KEYS = frozenset({"SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider"})
_ANONYMOUS = frozenset({"AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider"})
_BY_MACHINE = frozenset(
    {
        "EnvironmentVariableCredentialsProvider", "InstanceProfileCredentialsProvider",
        "IAMInstanceCredentialsProvider", "EC2ContainerCredentialsProviderWrapper",
        "ContainerCredentialsProvider", "WebIdentityTokenCredentialsProvider",
        "WebIdentityTokenFileCredentialsProvider", "DefaultAWSCredentialsProviderChain",
        "DefaultCredentialsProvider", "ProfileAWSCredentialsProvider", "ProfileCredentialsProvider",
    }
)  # fmt: skip
_OF_AWS = ("com.amazonaws.", "software.amazon.awssdk.", "org.apache.hadoop.fs.s3a.")
_SECRETS = "security.credential.provider.path"
_ENCRYPTIONS = {
    "AES256": "AES256", "SSE-S3": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse", "SSE-C": "sse-c",
}  # fmt: skip
# s3.eu-west-1.amazonaws.com, s3-eu-west-1.amazonaws.com, s3.amazonaws.com; not those of VPC endpoints.
_AWS_HOST = re.compile(
    r"(?:https?://)?s3(?:[.-](?P<region>[a-z]{2,}(?:-[a-z0-9]+)+-\d))?\.amazonaws\.com(?:\.cn)?/?"
)


def access(hadoop: Settings, address: Address) -> Access:
    """Return how a bucket is reached. Raises ``ConfigurationError`` that names what cannot be taken over."""

    def s3a(*names: str, default: str = "") -> str:
        # A setting of one bucket wins over that of all, by its older name, too.
        levels = ([f"fs.s3a.{of}{name}" for name in names] for of in (f"bucket.{address.container}.", ""))
        return nearest(hadoop, *levels, default=default)

    for name in ("accesspoint.arn", "delegation.token.binding", "encryption.context"):
        if s3a(name):
            raise unknown(f"fs.s3a.{name}", "which has no counterpart here", "use another way to this bucket")
    config: dict[str, Any] = {"disable_bulk_delete": True}
    region = s3a("endpoint.region")
    endpoint = s3a("endpoint")
    aws = _AWS_HOST.fullmatch(endpoint)
    if aws is not None:
        endpoint, region = "", region or aws["region"] or ""
    if region and region != "sdk":
        config["region"] = region
    # S3A, too, names the bucket in the host's name, but for an IP address, and for names with dots, which no
    # certificate covers.
    by_path = s3a("path.style.access").lower() in TRUE or "." in address.container or _is_ip(endpoint)
    config["virtual_hosted_style_request"] = not by_path
    client: dict[str, Any] = {}
    if endpoint:
        plain = s3a("connection.ssl.enabled", default="true").lower() not in TRUE
        url = endpoint if "://" in endpoint else f"http{'' if plain else 's'}://{endpoint}"
        scheme, _, rest = url.rstrip("/").partition("://")
        config["endpoint"] = f"{scheme}://{rest}" if by_path else f"{scheme}://{address.container}.{rest}"
        client["allow_http"] = scheme == "http"
    if s3a("requester.pays.enabled").lower() in TRUE:
        config["request_payer"] = True
    config |= _s3_encryption(hadoop, address, s3a)
    client |= proxy(s3a("proxy.host"), s3a("proxy.port"), s3a("proxy.username"), s3a("proxy.password"))
    keys, anonymous = _s3_keys(hadoop, address, s3a)
    if anonymous:
        config["skip_signature"] = True
    return Access(config=config, client=client, keys=keys, machine=keys is None and not anonymous)


def _s3_keys(
    hadoop: Settings, address: Address, s3a: Callable[..., str]
) -> tuple[tuple[str, str, str] | None, bool]:
    """Return the keys, and whether nobody is asked for any."""
    if address.scheme == "s3":  # EMR's own file system, where it is that
        custom = hadoop.get("fs.s3.customAWSCredentialsProvider")
        if custom:
            raise foreign_class("fs.s3.customAWSCredentialsProvider", custom)
    given = s3a("access.key"), s3a("secret.key"), s3a("session.token")
    keys = given if given[0] and given[1] else None
    own = f"fs.s3a.bucket.{address.container}."
    if store_of_secrets(hadoop, f"{own}{_SECRETS}") and not hadoop.get(f"{own}secret.key"):
        keys = None  # those of all buckets are not this one's
    classes = [each.strip() for each in s3a("aws.credentials.provider").split(",") if each.strip()]
    for each in classes:
        short = each.rpartition(".")[2]
        if not each.startswith(_OF_AWS) or short not in _BY_KEYS | _ANONYMOUS | _BY_MACHINE:
            raise foreign_class("fs.s3a.aws.credentials.provider", each)
        if short in _BY_KEYS and keys is not None and (given[2] or not short.startswith("Temporary")):
            return keys, False
        if short in _ANONYMOUS:
            return None, True
        if short in _BY_MACHINE:
            return None, False
    # The default looks for keys first, and so does a list that had nothing but them.
    if keys is None:
        _refuse_stores_of_secrets(hadoop, address, "access.key", "secret.key")
    return keys, False


def _refuse_stores_of_secrets(hadoop: Settings, address: Address, *names: str) -> None:
    """Refuse a store of secrets, also one of this bucket alone, for the first of these that is given nowhere else."""
    own = f"fs.s3a.bucket.{address.container}."
    begin = own if store_of_secrets(hadoop, f"{own}{_SECRETS}") else "fs.s3a."
    wanted = next((each for each in names if not hadoop.get(f"{begin}{each}")), names[0])
    refuse_stores_of_secrets(hadoop, f"{begin}{wanted}", f"{own}{_SECRETS}", f"fs.s3a.{_SECRETS}")


def _s3_encryption(hadoop: Settings, address: Address, s3a: Callable[..., str]) -> dict[str, Any]:
    name = s3a("encryption.algorithm", "server-side-encryption-algorithm")
    key = s3a("encryption.key", "server-side-encryption.key")
    if not name and address.scheme == "s3":
        if hadoop.get("fs.s3.cse.enabled").lower() in TRUE:
            name = "CSE"
        elif hadoop.get("fs.s3.enableServerSideEncryption").lower() in TRUE:
            key = hadoop.get("fs.s3.serverSideEncryption.kms.keyId")
            name = "SSE-KMS" if key else "SSE-S3"
    if not name:
        return {}
    if name not in _ENCRYPTIONS:
        raise unknown(
            "fs.s3a.encryption.algorithm", f"and {name!r} is not done here", "use SSE-S3, SSE-KMS or SSE-C"
        )
    if name == "SSE-C" and not key:
        _refuse_stores_of_secrets(hadoop, address, "encryption.key")
        raise unknown("fs.s3a.encryption.algorithm", "and SSE-C needs a key", "set fs.s3a.encryption.key")
    found = {"server_side_encryption": _ENCRYPTIONS[name]}
    if key:
        found["sse_customer_key_base64" if name == "SSE-C" else "sse_kms_key_id"] = key
    return found


def _is_ip(endpoint: str) -> bool:
    host = endpoint.rpartition("://")[2].partition("/")[0]
    host = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        # The names of this very machine have no names below them.
        return host == "localhost"
    return True
