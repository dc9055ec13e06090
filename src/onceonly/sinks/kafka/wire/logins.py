"""Token providers that come with the sink, for ``onceonly.token.provider``. Driver and executors.

Each takes the settings of the option ``onceonly.token.config`` and ``bootstrap.servers``, and gives a token and the
Unix time of its expiry.
"""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError, required

if TYPE_CHECKING:
    from collections.abc import Mapping

Given = tuple[str, float] | tuple[str, float, dict[str, str]]

MSK = "onceonly.sinks.kafka.wire.logins:msk_iam"
CLIENT_CREDENTIALS = "onceonly.sinks.kafka.wire.logins:client_credentials"
UNSECURED = "onceonly.sinks.kafka.wire.logins:unsecured"

_TIMEOUT_S = 8.0
# As Java's unsecured login has it.
_UNSECURED_LIFE_S = 3600.0
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_EXTENSION = "extension_"


def msk_iam(settings: Mapping[str, str]) -> Given:
    """Sign a token for Amazon MSK with the IAM credentials that are found here, as the AWS SDK finds them.

    ``region`` is read out of the servers' names where it is not given; ``role`` is assumed, or ``profile`` used, where
    one is. Raises ``SetupError`` without the extra ``msk``, ``ConfigurationError`` without a region.
    """
    with required(
        "the token provider for Amazon MSK needs the package aws-msk-iam-sasl-signer-python", extra="msk"
    ):
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer
    found = _REGION.search(settings.get("bootstrap.servers", ""))
    region = settings.get("region") or (found.group(1) if found else "")
    if not region:
        raise ConfigurationError(
            "The region of the MSK cluster is not known: the servers' names do not tell it.",
            next_step="give onceonly.token.config as region=eu-central-1",
        )
    token: str
    if settings.get("role"):
        token, expires_ms = Signer.generate_auth_token_from_role_arn(region, settings["role"])
    elif settings.get("profile"):
        token, expires_ms = Signer.generate_auth_token_from_profile(region, settings["profile"])
    else:
        token, expires_ms = Signer.generate_auth_token(region)
    return token, expires_ms / 1000


def client_credentials(settings: Mapping[str, str]) -> Given:
    """Ask an OAuth 2 token endpoint, by client id and secret: ``url``, ``client.id``, ``client.secret``, ``scope``."""
    missing = [name for name in ("url", "client.id", "client.secret") if not settings.get(name)]
    if missing:
        raise ConfigurationError(
            f"The token endpoint cannot be asked without {' and '.join(missing)}.",
            next_step="give kafka.sasl.oauthbearer.token.endpoint.url, and clientId and clientSecret in "
            "kafka.sasl.jaas.config",
        )
    url = settings["url"]
    if urllib.parse.urlsplit(url).scheme not in {"http", "https"}:
        raise ConfigurationError("The token endpoint is no http or https URL.", next_step="correct it")
    form = {"grant_type": "client_credentials"}
    if settings.get("scope"):
        form["scope"] = settings["scope"]
    login = ":".join(urllib.parse.quote(settings[name], safe="") for name in ("client.id", "client.secret"))
    request = urllib.request.Request(  # noqa: S310  checked above
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
            "Accept": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310  as above
        found: dict[str, Any] = json.load(answer)
    return (
        str(found["access_token"]),
        time.time() + float(found.get("expires_in", 300)),
        _extensions(settings),
    )


def unsecured(settings: Mapping[str, str]) -> Given:
    """Make an unsigned token, which only a broker for tests takes; ``claim_sub`` is its claim ``sub``."""
    now = time.time()
    expires_s = now + float(settings.get("life.seconds", _UNSECURED_LIFE_S))
    claims: dict[str, Any] = {
        name.removeprefix("claim_"): value for name, value in settings.items() if name.startswith("claim_")
    }
    claims |= {"iat": now, "exp": expires_s}
    parts = (_spelled({"alg": "none"}), _spelled(claims), "")
    return ".".join(parts), expires_s, _extensions(settings)


def _extensions(settings: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(_EXTENSION): value
        for name, value in settings.items()
        if name.startswith(_EXTENSION)
    }


def _spelled(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
