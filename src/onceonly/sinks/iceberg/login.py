"""What pyiceberg is told of a bucket: what the job gave to Hadoop, in its own words. Driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.stores.address import parse
from onceonly.stores.texts import texts

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS = {
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
    "proxy_url": "s3.proxy-uri",
    "virtual_hosted_style_request": "s3.force-virtual-addressing",
    "skip_signature": "s3.anonymous",
}


def login(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties by which a catalogue reaches the bucket of its warehouse, secrets among them.

    Nothing where they are given by themselves (``s3.…``), and where the warehouse is no bucket: then the catalogue
    says it, or the machine. Raises ``ConfigurationError`` for what pyiceberg's reader of S3 cannot be told.
    """
    warehouse = str(properties.get("warehouse", ""))
    if not warehouse.startswith(("s3:", "s3a:")) or any(name.startswith("s3.") for name in properties):
        return {}
    address = parse(warehouse, what="the warehouse")
    told = texts(address)
    if "server_side_encryption" in told:
        raise ConfigurationError(
            "the job asks for encryption by S3 (fs.s3a.encryption.algorithm), which pyiceberg does not do for the "
            "table's metadata",
            next_step="let the bucket encrypt by default, and leave it out; or give catalog.s3.… of pyiceberg",
        )
    found = {word: told[name] for name, word in _WORDS.items() if name in told}
    if "endpoint" in told:
        # obstore wants the bucket in it, pyiceberg puts it there itself.
        found["s3.endpoint"] = told["endpoint"].replace(f"://{address.container}.", "://", 1)
    return found
