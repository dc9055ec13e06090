"""How a store is reached and who asks: what a job gave to Hadoop, taken over into the words of ``obstore``. Pure.

A job says ``spark.hadoop.fs.s3a.…``, ``fs.azure.…`` or ``fs.gs.…``; what it does not say the machine knows: its
environment, its profile, its role. What names a class of Java's, or a file that only Java reads, is refused by name.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.options import Secret
from onceonly.stores.address import LOCAL, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceonly.stores.address import Address

HADOOP = "spark.hadoop."
_TAKEN = (
    "fs.s3a.", "fs.s3.", "fs.azure.", "fs.gs.", "google.cloud.", "fs.defaultFS", "dfs.", "hadoop.security.",
)  # fmt: skip
_STORES_OF_SECRETS = "hadoop.security.credential.provider.path"
_MACHINE = "leave it out where the machine itself has credentials (environment, profile, role)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What ``obstore`` is told of a store: its configuration, its HTTP client's, and keys. It holds secrets.

    ``keys`` are access key, secret key and session token (or nothing) of S3: the environment has no say beside them.
    ``machine`` says that the job gave no credentials, so that the machine's are used.
    """

    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    keys: tuple[str, str, str] | None = field(default=None, repr=False)
    machine: bool = True


class Hadoop:
    """The settings of Hadoop that are about stores, by their names there. Travels to other processes; never shown."""

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        """Take from all that Hadoop or Spark was given; names may begin with ``spark.hadoop.``, which come last."""
        found: dict[str, str] = {}
        for name in sorted(given or {}, key=lambda name: name.startswith(HADOOP)):
            short = name.removeprefix(HADOOP)
            if short.startswith(_TAKEN):
                found[short] = Secret((given or {})[name])
        self._given = found

    def __repr__(self) -> str:
        return f"Hadoop({len(self._given)} settings)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hadoop) and self._given == other._given

    def __hash__(self) -> int:
        return hash(frozenset(self._given.items()))

    def __reduce__(self) -> tuple[object, ...]:
        return (Hadoop, ({name: str(value) for name, value in self._given.items()},))

    def get(self, *names: str, default: str = "") -> str:
        """Return the first of these settings that says something."""
        return next((value for name in names if (value := str(self._given.get(name, "")).strip())), default)

    def for_spark(self) -> dict[str, str]:
        """Return all of it as settings of a session. They may hold secrets."""
        return {f"{HADOOP}{name}": str(value) for name, value in self._given.items()}

    @property
    def file_system(self) -> str:
        """The file system of a path without a scheme."""
        return self.get("fs.defaultFS", default=LOCAL)

    def access(self, address: Address) -> Access:
        """Return how an object store is reached. Raises ``ConfigurationError`` that names what cannot be taken over."""
        return _ACCESS[address.kind](self, address)


# --- S3 -----------------------------------------------------------------------------------------------------

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
_ENCRYPTIONS = {
    "AES256": "AES256", "SSE-S3": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse", "SSE-C": "sse-c",
}  # fmt: skip
# s3.eu-west-1.amazonaws.com, s3-eu-west-1.amazonaws.com, s3.amazonaws.com; not those of VPC endpoints.
_AWS_HOST = re.compile(
    r"(?:https?://)?s3(?:[.-](?P<region>[a-z]{2,}(?:-[a-z0-9]+)+-\d))?\.amazonaws\.com(?:\.cn)?/?"
)
_TRUE = frozenset({"true", "yes", "1"})


def _s3(hadoop: Hadoop, address: Address) -> Access:
    def s3a(*names: str, default: str = "") -> str:
        # A setting of one bucket wins over that of all.
        each = (f"fs.s3a.{bucket}{name}" for name in names for bucket in (f"bucket.{address.container}.", ""))
        return hadoop.get(*each, default=default)

    for name in ("accesspoint.arn", "delegation.token.binding", "encryption.context"):
        if s3a(name):
            raise _unknown(
                f"fs.s3a.{name}", "which has no counterpart here", "use another way to this bucket"
            )
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
    by_path = s3a("path.style.access").lower() in _TRUE or "." in address.container or _is_ip(endpoint)
    config["virtual_hosted_style_request"] = not by_path
    client: dict[str, Any] = {}
    if endpoint:
        plain = s3a("connection.ssl.enabled", default="true").lower() not in _TRUE
        url = endpoint if "://" in endpoint else f"http{'' if plain else 's'}://{endpoint}"
        scheme, _, rest = url.rstrip("/").partition("://")
        config["endpoint"] = f"{scheme}://{rest}" if by_path else f"{scheme}://{address.container}.{rest}"
        client["allow_http"] = scheme == "http"
    if s3a("requester.pays.enabled").lower() in _TRUE:
        config["request_payer"] = True
    config |= _s3_encryption(hadoop, address, s3a)
    client |= _proxy(s3a("proxy.host"), s3a("proxy.port"), s3a("proxy.username"), s3a("proxy.password"))
    keys, anonymous = _s3_keys(hadoop, address, s3a)
    if anonymous:
        config["skip_signature"] = True
    return Access(config=config, client=client, keys=keys, machine=keys is None and not anonymous)


def _s3_keys(
    hadoop: Hadoop, address: Address, s3a: Callable[..., str]
) -> tuple[tuple[str, str, str] | None, bool]:
    """Return the keys, and whether nobody is asked for any."""
    if address.scheme == "s3":  # EMR's own file system, where it is that
        custom = hadoop.get("fs.s3.customAWSCredentialsProvider")
        if custom:
            raise _class("fs.s3.customAWSCredentialsProvider", custom)
    given = s3a("access.key"), s3a("secret.key"), s3a("session.token")
    keys = given if given[0] and given[1] else None
    classes = [each.strip() for each in s3a("aws.credentials.provider").split(",") if each.strip()]
    for each in classes:
        short = each.rpartition(".")[2]
        if not each.startswith(_OF_AWS) or short not in _BY_KEYS | _ANONYMOUS | _BY_MACHINE:
            raise _class("fs.s3a.aws.credentials.provider", each)
        if short in _BY_KEYS and keys is not None and (given[2] or not short.startswith("Temporary")):
            return keys, False
        if short in _ANONYMOUS:
            return None, True
        if short in _BY_MACHINE:
            return None, False
    # The default looks for keys first, and so does a list that had nothing but them.
    if keys is None:
        _refuse_stores_of_secrets(hadoop, "fs.s3a.security.credential.provider.path", "fs.s3a.access.key")
    return keys, False


def _s3_encryption(hadoop: Hadoop, address: Address, s3a: Callable[..., str]) -> dict[str, Any]:
    name = s3a("encryption.algorithm", "server-side-encryption-algorithm")
    key = s3a("encryption.key", "server-side-encryption.key")
    if not name and address.scheme == "s3":
        if hadoop.get("fs.s3.cse.enabled").lower() in _TRUE:
            name = "CSE"
        elif hadoop.get("fs.s3.enableServerSideEncryption").lower() in _TRUE:
            key = hadoop.get("fs.s3.serverSideEncryption.kms.keyId")
            name = "SSE-KMS" if key else "SSE-S3"
    if not name:
        return {}
    if name not in _ENCRYPTIONS:
        raise _unknown(
            "fs.s3a.encryption.algorithm", f"and {name!r} is not done here", "use SSE-S3, SSE-KMS or SSE-C"
        )
    found = {"server_side_encryption": _ENCRYPTIONS[name]}
    if key:
        found["sse_customer_key_base64" if name == "SSE-C" else "sse_kms_key_id"] = key
    return found


# --- Azure --------------------------------------------------------------------------------------------------

_BY_CLIENT = "ClientCredsTokenProvider"
_BY_IDENTITY = "MsiTokenProvider"
_BY_WORKLOAD = "WorkloadIdentityTokenProvider"
_LOGIN_HOST = re.compile(r"(?P<host>https?://[^/]+)/(?P<tenant>[^/]+)/.*")


def _azure(hadoop: Hadoop, address: Address) -> Access:
    blob = address.host.replace(".dfs.", ".blob.", 1)

    def azure(*names: str, default: str = "") -> str:
        # A setting of one container or account wins over that of all.
        ends = (f".{address.container}.{address.host}", f".{address.host}", f".{blob}", "")
        return hadoop.get(*(f"fs.azure.{name}{end}" for name in names for end in ends), default=default)

    account, _, domain = address.host.partition(".")
    config: dict[str, Any] = {"account_name": account}
    # As ABFS does: without TLS only where the address and the settings both say so.
    plain = address.scheme in {"abfs", "wasb"} and azure("always.use.https").lower() == "false"
    scheme = "http" if plain else "https"
    client = {"allow_http": True} if plain else {}
    if azure("abfs.endpoint"):  # an emulator's host and port
        config["endpoint"] = f"{scheme}://{azure('abfs.endpoint')}/{account}"
    elif plain or domain != "dfs.core.windows.net":
        config["endpoint"] = f"{scheme}://{blob}"
    kind = azure("account.auth.type", default="SharedKey").lower()
    _refuse_azure(azure, kind)
    if azure("encryption.encoded.client-provided-key"):
        config["encryption_key"] = azure("encryption.encoded.client-provided-key")
    if kind == "oauth":
        config |= _azure_oauth(azure)
        return Access(client=client, config=config, machine=config["credential_type"] != "client_secret")
    key = azure("account.key")
    sas = azure("sas.fixed.token") or hadoop.get(f"fs.azure.sas.{address.container}.{blob}")
    if sas and (kind == "sas" or not key):
        return Access(
            client=client, config={**config, "credential_type": "sas_token", "sas_key": sas}, machine=False
        )
    if kind == "sas":
        raise _unknown(
            "fs.azure.account.auth.type",
            "which is SAS, and there is no token",
            "set fs.azure.sas.fixed.token",
        )
    if key:
        return Access(
            client=client,
            config={**config, "credential_type": "access_key", "account_key": key},
            machine=False,
        )
    _refuse_stores_of_secrets(hadoop, "", f"fs.azure.account.key.{address.host}")
    return Access(client=client, config=config)


def _refuse_azure(azure: Callable[..., str], kind: str) -> None:
    """Refuse what names a class that Python cannot ask, and a way to log in that nobody knows."""
    for name, known in (
        ("account.keyprovider", "SimpleKeyProvider"),
        ("sas.token.provider.type", "FixedSASTokenProvider"),
        ("encryption.context.provider.type", ""),
        *((("account.oauth.provider.type", ""),) if kind == "custom" else ()),
    ):
        if azure(name) and azure(name).rpartition(".")[2] != known:
            raise _class(f"fs.azure.{name}", azure(name))
    if kind not in {"sharedkey", "oauth", "sas"}:
        raise _unknown(
            "fs.azure.account.auth.type", f"and {kind!r} is not known", "use SharedKey, OAuth or SAS"
        )


def _azure_oauth(azure: Callable[..., str]) -> dict[str, Any]:
    kind = azure("account.oauth.provider.type")
    short = kind.rpartition(".")[2]
    found: dict[str, Any] = {}
    if azure("account.oauth2.client.id"):
        found["client_id"] = azure("account.oauth2.client.id")
    if short == _BY_CLIENT:
        endpoint = _LOGIN_HOST.fullmatch(azure("account.oauth2.client.endpoint"))
        if endpoint is None or not azure("account.oauth2.client.secret"):
            raise _unknown(
                "fs.azure.account.oauth2.client.endpoint", "or the client's secret, which is missing",
                "set it as https://login.microsoftonline.com/<tenant>/oauth2/token, and the secret",
            )  # fmt: skip
        found |= {
            "credential_type": "client_secret",
            "client_secret": azure("account.oauth2.client.secret"),
            "tenant_id": endpoint["tenant"],
            "authority_host": endpoint["host"],
        }
    elif short == _BY_IDENTITY:
        found["credential_type"] = "managed_identity"
        if azure("account.oauth2.msi.endpoint"):
            found["msi_endpoint"] = azure("account.oauth2.msi.endpoint")
    elif short == _BY_WORKLOAD:
        found["credential_type"] = "workload_identity"
        for name, option in (("msi.tenant", "tenant_id"), ("token.file", "federated_token_file")):
            if azure(f"account.oauth2.{name}"):
                found[option] = azure(f"account.oauth2.{name}")
    else:
        raise _class("fs.azure.account.oauth.provider.type", kind)
    return found


# --- Google -------------------------------------------------------------------------------------------------


_NOBODY = json.dumps({"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True})
"""The key of nobody, with which no token is asked for."""


def _google(hadoop: Hadoop, address: Address) -> Access:  # noqa: ARG001  one account for all buckets
    def gs(*names: str, default: str = "") -> str:
        # The connector has two families of names, of which the older one is still set by many platforms.
        each = (f"{family}{name}" for name in names for family in ("fs.gs.", "google.cloud."))
        return hadoop.get(*each, default=default)

    kind = gs("auth.type").upper()
    _refuse_google(gs, kind)
    config: dict[str, Any] = {}
    client = _proxy(*gs("proxy.address").partition(":")[::2], gs("proxy.username"), gs("proxy.password"))
    if gs("storage.root.url"):
        config["base_url"] = gs("storage.root.url").rstrip("/")
        client["allow_http"] = config["base_url"].startswith("http:")
    if gs("auth.null.enabled").lower() in _TRUE or kind == "UNAUTHENTICATED":
        # To leave the signature out would not do: for a put, obstore then looks for credentials all the same.
        return Access(config={**config, "service_account_key": _NOBODY}, client=client, machine=False)
    key = _google_key(gs)
    if key:
        return Access(config={**config, **key}, client=client, machine=False)
    if gs("auth.service.account.email"):
        _refuse_stores_of_secrets(hadoop, "", "fs.gs.auth.service.account.private.key")
    return Access(config=config, client=client)


def _refuse_google(gs: Callable[..., str], kind: str) -> None:
    for name in ("auth.access.token.provider.impl", "auth.access.token.provider"):
        if gs(name):
            raise _class(f"fs.gs.{name}", gs(name))
    for name in (
        "auth.service.account.keyfile",
        "auth.impersonation.service.account",
        "encryption.algorithm",
    ):
        if gs(name):
            raise _unknown(
                f"fs.gs.{name}",
                "which has no counterpart here",
                "give a key in JSON, as fs.gs.auth.service.account.json.keyfile, or let the machine have the role",
            )
    if kind in {"ACCESS_TOKEN_PROVIDER", "USER_CREDENTIALS"}:
        raise _unknown("fs.gs.auth.type", f"and {kind} is not done here", _MACHINE)


def _google_key(gs: Callable[..., str]) -> dict[str, Any]:
    if gs("auth.service.account.json.keyfile"):
        return {"service_account": gs("auth.service.account.json.keyfile")}
    email, key = gs("auth.service.account.email"), gs("auth.service.account.private.key")
    if not email or not key:
        return {}
    told = {
        "type": "service_account",
        "client_email": email,
        "private_key_id": gs("auth.service.account.private.key.id"),
        # In a file of settings, line ends are written as letters.
        "private_key": str(key).replace("\\n", "\n"),
    }
    return {"service_account_key": json.dumps(told)}


_ACCESS: dict[Kind, Callable[[Hadoop, Address], Access]] = {
    Kind.S3: _s3,
    Kind.AZURE: _azure,
    Kind.GCS: _google,
}

# --- what they have in common -------------------------------------------------------------------------------


def _proxy(host: str, port: str, user: str, password: str) -> dict[str, Any]:
    if not host:
        return {}
    url = host if "://" in host else f"http://{host}"
    login = f"{user}:{password}@" if user else ""
    scheme, _, rest = url.partition("://")
    return {"proxy_url": f"{scheme}://{login}{rest}{':' + port if port else ''}"}


def _is_ip(endpoint: str) -> bool:
    host = endpoint.rpartition("://")[2].partition("/")[0]
    host = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        # The names of this very machine have no names below them.
        return host == "localhost"
    return True


_KEY_STORE = re.compile(r"(?:local)?(?:jceks|bcfks):")


def _refuse_stores_of_secrets(hadoop: Hadoop, own: str, wanted: str) -> None:
    """Refuse a store of secrets that only Java reads, where what it would hold is given nowhere else."""
    for name in (own, _STORES_OF_SECRETS) if own else (_STORES_OF_SECRETS,):
        paths = [each for each in hadoop.get(name).split(",") if _KEY_STORE.match(each.strip())]
        if paths:
            raise ConfigurationError(
                f"{name} names {paths[0].strip()}, a store of secrets that only Java can read, and {wanted} is given "
                "nowhere else",
                next_step=f"give the session {wanted} itself (spark.hadoop.{wanted}, from the environment of the "
                f"program that builds it); or {_MACHINE}",
            )


def _class(option: str, name: str) -> ConfigurationError:
    return _unknown(option, f"and {name} is a class of Java's, which Python cannot ask", _MACHINE)


def _unknown(option: str, why: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(f"the checkpoint's store is reached by {option}, {why}", next_step=next_step)
