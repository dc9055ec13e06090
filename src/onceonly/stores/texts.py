"""How a store is reached, as texts: for libraries that open it themselves, with the crate that ``obstore`` is made of.

They know the same names, and look into the environment for whatever is not told. What they would find there beside keys
that the job gave, is refused.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from onceonly.errors import ConfigurationError
from onceonly.stores.address import Kind
from onceonly.stores.opened import CALL, CONNECT, told
from onceonly.stores.profiles import endpoint_of_machine, profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.stores.address import Address
    from onceonly.stores.logins.common import Access

TOKEN: Final = "AWS_SESSION_TOKEN"  # noqa: S105  the name of a variable


def texts(address: Address) -> dict[str, str]:
    """Return what is to be told, secrets among it: for a call, and never written down. Any process.

    Keys of a profile are read anew each time. Raises ``ConfigurationError``, ``SetupError``.
    """
    access = told().access(address)
    found: dict[str, Any] = {"timeout": CALL, "connect_timeout": CONNECT, **access.client, **access.config}
    if address.kind is Kind.S3:
        found |= _keys(access, found)
        given = "" if "endpoint" in found else endpoint_of_machine()
        if given:
            plain = {"allow_http": given.startswith("http:")} if "allow_http" not in found else {}
            found |= {"endpoint": given, "virtual_hosted_style_request": False, **plain}
    return {name: _text(value) for name, value in found.items() if value is not None}


def _keys(access: Access, found: Mapping[str, Any]) -> dict[str, Any]:
    if access.keys is not None:
        key, secret, token = access.keys
        if not token and os.environ.get(TOKEN):
            raise ConfigurationError(
                f"the job gave an access key for S3 without a session token, and {TOKEN} is in the environment: the "
                "table's library would put the two together",
                next_step=f"unset {TOKEN} on the driver, or leave fs.s3a.access.key out",
            )
        return {
            "access_key_id": key,
            "secret_access_key": secret,
            **({"session_token": token} if token else {}),
        }
    if not access.machine:
        return {}
    provider, region = profile()
    more = {"region": region} if region and "region" not in found else {}
    if provider is None:
        return more
    given = provider()
    keys = {"access_key_id": given["access_key_id"], "secret_access_key": given["secret_access_key"]}
    return {**more, **keys, "session_token": given.get("token")}


def _text(value: Any) -> str:  # noqa: ANN401  a text, a number, yes or no
    return str(value).lower() if isinstance(value, bool) else str(value)
