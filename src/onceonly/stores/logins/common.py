"""What logins of all stores have in common. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


TRUE = frozenset({"true", "yes", "1"})
MACHINE = "leave it out where the machine itself has credentials (environment, profile, role)"
"""The next step where what a job gave cannot be taken over."""
_STORES_OF_SECRETS = "hadoop.security.credential.provider.path"
_KEY_STORE = re.compile(r"(?:local)?(?:jceks|bcfks):")


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


class Settings(Protocol):
    """What a job gave to Hadoop, by its names there."""

    def get(self, *names: str, default: str = "") -> str:
        """Return the first of these settings that says something."""
        ...

    def has(self, *names: str) -> bool:
        """Tell whether one of these settings is given, also as an empty text."""
        ...


def nearest(hadoop: Settings, *levels: Sequence[str], default: str = "") -> str:
    """Return what the first level says of which a setting is given.

    As in Hadoop: what is given to one bucket or account, also an empty text, keeps that of all from it.
    """
    return next((hadoop.get(*names, default=default) for names in levels if hadoop.has(*names)), default)


def proxy(host: str, port: str, user: str, password: str) -> dict[str, Any]:
    """Return what an HTTP client is told of a proxy, nothing where there is none."""
    if not host:
        return {}
    url = host if "://" in host else f"http://{host}"
    login = f"{user}:{password}@" if user else ""
    scheme, _, rest = url.partition("://")
    return {"proxy_url": f"{scheme}://{login}{rest}{':' + port if port else ''}"}


def store_of_secrets(hadoop: Settings, name: str) -> str:
    """Return the store of secrets, which only Java reads, that an option names; nothing where it names none."""
    paths = (each.strip() for each in hadoop.get(name).split(","))
    return next((each for each in paths if _KEY_STORE.match(each)), "")


def refuse_stores_of_secrets(hadoop: Settings, wanted: str, *own: str) -> None:
    """Refuse a store of secrets that only Java reads, where what it would hold is given nowhere else."""
    for name in (*own, _STORES_OF_SECRETS):
        path = store_of_secrets(hadoop, name)
        if path:
            raise ConfigurationError(
                f"{name} names {path}, a store of secrets that only Java can read, and {wanted} is given "
                "nowhere else",
                next_step=f"give the session {wanted} itself (spark.hadoop.{wanted}, from the environment of the "
                f"program that builds it); or {MACHINE}",
            )


def foreign_class(option: str, name: str) -> ConfigurationError:
    """Return the refusal of an option that names a class of Java's."""
    return unknown(option, f"and {name} is a class of Java's, which Python cannot ask", MACHINE)


def unknown(option: str, why: str, next_step: str) -> ConfigurationError:
    """Return the refusal of an option that cannot be taken over."""
    return ConfigurationError(f"the checkpoint's store is reached by {option}, {why}", next_step=next_step)
