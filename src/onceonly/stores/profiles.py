"""What AWS's own tools know of a machine: keys of a profile, its role, and the server that its environment names.

``obstore`` looks for keys at the environment and at the machine's role alone.

As AWS's tools do, a profile comes after keys in the environment and after a web identity, and before a role of the
machine. What a profile only describes (a role to take, a login, a program that gives keys) is left to boto3, if it is
installed here.
"""

from __future__ import annotations

import configparser
import os
import re
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from onceonly.errors import ConfigurationError, SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_BEFORE = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")
_METADATA: Final = "http://169.254.169.254"
_METADATA_S = 2.0
_PASSING: Final = frozenset({408, 410, 429})
_SERVER_ERROR: Final = 500
_FIRMWARE: Final = Path("/sys/class/dmi/id")
_PROCESSOR: Final = Path("/proc/cpuinfo")
_CLOUDS: Final = ("amazon", "ec2", "google", "microsoft", "alibaba", "openstack")
_SERVERS: Final = (
    "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_METADATA_ENDPOINT", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI", "GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP",
    "METADATA_HOST", "IDENTITY_ENDPOINT", "MSI_ENDPOINT",
)  # fmt: skip
_KEPT = timedelta(minutes=5)
_DESCRIBED = ("role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file")


def endpoint_of_machine() -> str:
    """Return the server of S3 that the environment names; nothing where it names none. Any process."""
    return next((url for name in _ENDPOINTS if (url := os.environ.get(name, ""))), "")


def is_role_unknown() -> bool:
    """Tell whether this machine's own server does not answer what role it has. Any process.

    ``boto3`` says the same where there is none.
    """
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    server = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _METADATA
    ask = build_opener(ProxyHandler({})).open

    def request(path: str, **more: Any) -> Request:  # noqa: ANN401  of Request
        return Request(f"{server.rstrip('/')}/latest/{path}", **more)  # noqa: S310  as AWS's tools

    try:
        lives = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        with ask(request("api/token", method="PUT", headers=lives), timeout=_METADATA_S) as answer:
            token = {"X-aws-ec2-metadata-token": answer.read().decode().strip()}
        with ask(request("meta-data/iam/security-credentials/", headers=token), timeout=_METADATA_S):
            return True  # there is one now
    except HTTPError as error:
        return error.code in _PASSING or error.code >= _SERVER_ERROR
    except (OSError, HTTPException, ValueError):
        return True


def is_of_no_cloud() -> bool:
    """Tell whether this machine is proven to have no server that gives it a role: hardware, and of another maker.

    A machine that another one imitates may be anybody's, and one whose environment names such a server has it. Any
    process.
    """
    if any(os.environ.get(name) for name in _SERVERS):
        return False
    try:
        maker = (_FIRMWARE / "sys_vendor").read_text(encoding="utf-8", errors="replace").strip().lower()
        processor = _PROCESSOR.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    flags = re.search(r"^flags\s*:(.*)$", processor, re.MULTILINE)  # of x86 alone
    is_hardware = flags is not None and "hypervisor" not in flags[1].split()
    return bool(maker) and is_hardware and not any(name in maker for name in _CLOUDS)


def profile(
    environment: Mapping[str, str] | None = None,
) -> tuple[Callable[[], Any] | None, str]:
    """Return what gives the profile's keys, None where there are none, and the profile's region. Any process.

    Keys are read anew at each call: some other program may renew them. Raises ``ConfigurationError`` where the profile
    that the environment names is not there, ``SetupError`` where only boto3 could get its keys.
    """
    given = os.environ if environment is None else environment
    name = given.get("AWS_PROFILE") or given.get("AWS_DEFAULT_PROFILE") or "default"
    told = _read(given, name)
    region = "" if given.get("AWS_REGION") or given.get("AWS_DEFAULT_REGION") else told.get("region", "")
    if any(given.get(each) for each in _BEFORE):
        return None, region
    if "aws_access_key_id" in told:
        return lambda: _keys(_read(given, name), name), region
    described = next((each for each in _DESCRIBED if each in told), "")
    if described:
        return _by_boto3(name, described), region
    if not told and name != "default":
        raise ConfigurationError(
            f"AWS_PROFILE is {name!r}, and neither {_path(given, 'credentials')} nor {_path(given, 'config')} has a "
            "profile of this name",
            next_step="correct the name, or bring these files to driver and executors",
        )
    return None, region


def _keys(told: Mapping[str, str], name: str) -> dict[str, Any]:
    try:
        return {
            "access_key_id": told["aws_access_key_id"],
            "secret_access_key": told["aws_secret_access_key"],
            "token": told.get("aws_session_token") or None,
            # So that they are read again.
            "expires_at": datetime.now(UTC) + _KEPT,
        }
    except KeyError as error:
        raise ConfigurationError(
            f"the AWS profile {name!r} has no {error.args[0]}", next_step="complete it"
        ) from None


def _read(given: Mapping[str, str], name: str) -> dict[str, str]:
    """Read one profile of both files; that of the keys wins."""
    told: dict[str, str] = {}
    for file, section in (
        ("config", name if name == "default" else f"profile {name}"),
        ("credentials", name),
    ):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(_path(given, file), encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError) as error:
            raise ConfigurationError(
                # The error of the parser may show a line, which may be a key.
                f"{_path(given, file)} cannot be read: {type(error).__name__}",
                next_step="mend this file, or give keys by the environment",
            ) from None
        if parser.has_section(section):
            told |= dict(parser.items(section))
    return told


def _path(given: Mapping[str, str], file: str) -> Path:
    variable = "AWS_CONFIG_FILE" if file == "config" else "AWS_SHARED_CREDENTIALS_FILE"
    return Path(given.get(variable) or f"{given.get('HOME') or '~'}/.aws/{file}").expanduser()


def _by_boto3(name: str, described: str) -> Callable[[], Any]:
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise SetupError(
            f"the AWS profile {name!r} says {described}, which is left to boto3, and boto3 is not installed here",
            next_step="pip install boto3 on driver and executors, or give keys by the environment",
        ) from None
    return Boto3CredentialProvider(boto3.Session(profile_name=name))
