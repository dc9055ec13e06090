"""What a JAAS line says, as Java's clients are given it: read where it can be, else refused by name. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.options import Secret
from onceonly.sinks.kafka.wire import logins

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTION = "kafka.sasl.jaas.config"
_ENTRY = re.compile(
    r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b(.*?);\s*", re.DOTALL | re.IGNORECASE
)
_PAIR = re.compile(r"""\s*([\w.\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))""")
# Also with what platforms put before it, as kafkashaded.
_BY_PASSWORD = (".plain.PlainLoginModule", ".scram.ScramLoginModule")
_BY_BEARER = ".oauthbearer.OAuthBearerLoginModule"
_CLAIM = "unsecuredLoginStringClaim_"
_ELSEWHERE = {
    "IAMLoginModule": f"give kafka.sasl.mechanism=OAUTHBEARER and onceonly.token.provider={logins.MSK} "
    "(pip install 'onceonly[msk]'), and leave the line and the callback handler out",
    "Krb5LoginModule": "give kafka.sasl.mechanism=GSSAPI and keep a ticket in the credential cache of driver and "
    "executors",
}
_INSTEAD = (
    "give kafka.sasl.username and kafka.sasl.password, or onceonly.token.provider for OAUTHBEARER, "
    "and leave the line out"
)


def read(line: str) -> tuple[str, dict[str, str]]:
    """Return the login module and its settings. Raises ``ConfigurationError``, which shows none of its values."""
    entry = _ENTRY.fullmatch(line)
    if entry is None:
        raise ConfigurationError(
            f"The option {OPTION} cannot be read: it must be one entry, 'Module required name=\"value\" …;'.",
            next_step=_INSTEAD,
        )
    module, _, text = entry.groups()
    settings: dict[str, str] = {}
    at = 0
    while text[at:].strip():
        pair = _PAIR.match(text, at)
        if pair is None:
            raise ConfigurationError(
                f"The option {OPTION} cannot be read behind its {len(settings)} first settings.",
                next_step=_INSTEAD,
            )
        quoted = pair[2] if pair[2] is not None else pair[3]
        value = pair[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        settings[pair[1]] = Secret(value)
        at = pair.end()
    return module, settings


def login(line: str, oauth: Mapping[str, str]) -> tuple[dict[str, str], str, dict[str, str]]:
    """Return what a line means: librdkafka's settings, and a token provider with its settings, one of them empty.

    ``oauth`` are the options that Java's token login has beside the line: ``url`` and the like. Raises
    ``ConfigurationError``.
    """
    module, settings = read(line)
    if module.endswith(_BY_PASSWORD):
        missing = [name for name in ("username", "password") if name not in settings]
        if missing:
            raise ConfigurationError(
                f"The option {OPTION} has no {' and no '.join(missing)}.", next_step=_INSTEAD
            )
        return {"sasl.username": settings["username"], "sasl.password": settings["password"]}, "", {}
    if not module.endswith(_BY_BEARER):
        name = module.rpartition(".")[2]
        raise ConfigurationError(
            f"The option {OPTION} names the login module {module}, which only Java has.",
            next_step=_ELSEWHERE.get(name, _INSTEAD),
        )
    extensions = {name: value for name, value in settings.items() if name.startswith("extension_")}
    claims = {
        f"claim_{name.removeprefix(_CLAIM)}": value
        for name, value in settings.items()
        if name.startswith(_CLAIM)
    }
    if claims:
        return {}, logins.UNSECURED, claims | extensions
    named = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
    found = {to: settings[name] for name, to in named.items() if name in settings}
    if not oauth.get("url") or not {"client.id", "client.secret"} <= {*found, *oauth}:
        raise ConfigurationError(
            f"The option {OPTION} is for OAUTHBEARER, and does not say where tokens come from.",
            next_step="give clientId and clientSecret in it and kafka.sasl.oauthbearer.token.endpoint.url, or "
            "onceonly.token.provider instead of the line",
        )
    return {}, logins.CLIENT_CREDENTIALS, {**oauth, **found, **extensions}
