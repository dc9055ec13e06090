"""Objects of S3 that are uploaded in parts and come into sight when the upload is completed, from any process.

Until then nobody can list or read such an object, and the upload is there; afterwards the object is there, and the
upload is not: one step for everybody who looks. ``obstore`` keeps the ids of its uploads to itself, so this is by
``boto3``.
"""

from __future__ import annotations

import base64
import enum
import os
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onceonly.errors import ConfigurationError, UnavailableError, required
from onceonly.stores import answers
from onceonly.stores.profiles import endpoint_of_machine, is_role_unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onceonly.errors import OnceonlyError
    from onceonly.stores.address import Address
    from onceonly.stores.logins.common import Access

TOKEN: Final = "onceonly"  # noqa: S105  the name of a header
"""The name of the metadata that say whose an object is."""
_CONNECT_S, _CALL_S = 5.0, 60.0
_TRIES = 5
_NOT_FOUND, _CONFLICT, _TAKEN, _DENIED = 404, 409, 412, 403
_GONE = "NoSuchUpload"
_NOBODYS = "onceonly-asks-whether-it-may"
"""The id of no upload."""
_ASKED = "Error performing GET http://169.254.169.254/ in 0s"
"""As ``obstore`` says of a machine's own server."""
_STATUS = re.compile(r"non 200 response \(?(\d{3})")


class Completion(enum.StrEnum):
    """What a store says of an upload that was to be completed."""

    DONE = "done"
    GONE = "gone"
    """There is no such upload: it was completed, or ended."""
    TAKEN = "taken"
    """Something has the name: perhaps this very object, as some stores say so of what they have just completed."""


class Object(NamedTuple):
    """What is known of an object: its length, and the token of whoever put it, empty where there is none."""

    bytes: int
    token: str


class S3Uploads:
    """Uploads into one bucket, by keys. Several threads may use one. Any process.

    Raises ``UnavailableError`` for what may pass, ``ConfigurationError`` for what a person has to see to.
    """

    def __init__(self, client: Any, address: Address, access: Access) -> None:  # noqa: ANN401  a client of boto3
        self._client = client
        self._address = address
        payer = {"RequestPayer": "requester"} if access.config.get("request_payer") else {}
        self._call_more: dict[str, Any] = {"Bucket": address.container, **payer}
        self._begin_more, self._key_more = _encryption(access.config)

    def begin(self, key: str, token: str) -> str:
        """Begin an upload that is to have a token; return its id."""
        more = {**self._call_more, **self._begin_more, **self._key_more}
        found = self._do("put", key, "create_multipart_upload", Metadata={TOKEN: token}, **more)
        return str(found["UploadId"])

    def send(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Send one part, numbered from 1, and return what the store calls it. May be repeated."""
        more = {**self._call_more, **self._key_more, "UploadId": upload, "PartNumber": number}
        found = self._do("put", key, "upload_part", Body=data, **more)
        return str(found["ETag"])

    def stands(self, key: str, upload: str) -> bool:
        """Tell whether an upload is there: neither completed nor ended."""
        more = {**self._call_more, "UploadId": upload, "MaxParts": 1}
        return self._do("looked at", key, "list_parts", missing=_GONE, **more) is not None

    def complete(self, key: str, upload: str, parts: Sequence[str]) -> Completion:
        """Let the object come into sight, unless something has its name. ``UnavailableError`` leaves it open."""
        listed = [{"PartNumber": number, "ETag": part} for number, part in enumerate(parts, 1)]
        more = {**self._call_more, "UploadId": upload, "MultipartUpload": {"Parts": listed}}
        try:
            found = self._do("put", key, "complete_multipart_upload", missing=_GONE, IfNoneMatch="*", **more)
        except _TakenError:
            return Completion.TAKEN
        return Completion.GONE if found is None else Completion.DONE

    def end(self, key: str, upload: str) -> None:
        """End an upload, with its parts. Idempotent; what is completed stays."""
        self._do("ended", key, "abort_multipart_upload", missing=_GONE, **self._call_more, UploadId=upload)

    def look(self, key: str) -> Object | None:
        """Return what is known of an object, None where there is none."""
        found = self._do("read", key, "head_object", missing="404", **self._call_more, **self._key_more)
        if found is None:
            return None
        return Object(int(found["ContentLength"]), str(found.get("Metadata", {}).get(TOKEN, "")))

    def idle(self, key: str) -> float | None:
        """Return the seconds since an object was put, by the store's own clock; None where there is none."""
        found = self._do("read", key, "head_object", missing="404", **self._call_more, **self._key_more)
        if found is None:
            return None
        date = found["ResponseMetadata"]["HTTPHeaders"].get("date")
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return max(0.0, float((now - found["LastModified"]).total_seconds()))

    def may_put(self, key: str) -> bool:
        """See that an object may be put, by a part of an upload that nobody has begun: rights are looked at first.

        False where that cannot be seen. Raises ``ConfigurationError`` that names the right.
        """
        if self._begin_more:
            return False  # a policy may ask for what only the beginning of an upload says
        more = {**self._call_more, **self._key_more, "UploadId": _NOBODYS, "PartNumber": 1}
        try:
            self._do("put", key, "upload_part", missing=_GONE, Body=b"", **more)
        except UnavailableError:  # also of one that looks at the id first, and does not like it
            return False
        return True

    def keeps_versions(self) -> bool | None:
        """Say whether the bucket keeps what is removed, or did so once; None where that is not told."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found = self._client.get_bucket_versioning(Bucket=self._address.container)
        except (ClientError, BotoCoreError, OSError):
            return None
        return bool(found.get("Status"))

    def standing(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield key and id of each upload whose key begins so. Some stores tell only those of one whole key."""
        marker: dict[str, str] = {}
        while True:
            found = self._do(
                "listed", prefix, "list_multipart_uploads", prefix=True, **self._call_more, **marker
            )
            for each in found.get("Uploads", ()):
                yield str(each["Key"]), str(each["UploadId"])
            if not found.get("IsTruncated"):
                return
            marker = {"KeyMarker": found["NextKeyMarker"], "UploadIdMarker": found["NextUploadIdMarker"]}

    def _do(
        self,
        verb: str,
        key: str,
        call: str,
        *,
        missing: str = "",
        prefix: bool = False,
        **more: Any,  # noqa: ANN401  of the call
    ) -> Any:  # noqa: ANN401  what the call gives; None where what is asked about is not there
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, call)(**{"Prefix" if prefix else "Key": key}, **more)
        except ClientError as error:
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            told = error.response.get("Error", {})
            code = str(told.get("Code", ""))
            if missing and (code == missing or (missing == "404" and code in {"NoSuchKey", "NotFound"})):
                return None
            if call == "complete_multipart_upload" and status in {_TAKEN, _CONFLICT}:
                raise _TakenError from None
            text = f"status code: {status} <Code>{code}</Code> {told.get('Message', '')}"
            raise self._refusal(Boto3Error(text), key, verb, denied=status == _DENIED) from None
        except (BotoCoreError, OSError) as error:  # also of files in which the machine keeps a login
            raise self._refusal(_of_machine(error), key, verb, denied=False) from None

    def _refusal(self, error: Exception, key: str, verb: str, *, denied: bool) -> OnceonlyError:
        where = self._address.below(key).text
        return answers.refusal(error, kind=self._address.kind, where=where, verb=verb, denied=denied)


class _TakenError(Exception):
    """Something has the name, or somebody was giving it at the same moment."""


class Boto3Error(Exception):
    """A server's words, for ``answers`` alone."""


def make_client(address: Address, access: Access) -> Any:  # noqa: ANN401  a client of boto3, which has no types
    """Make a client of ``boto3`` that reaches a bucket as ``obstore`` does. Not from two threads at once.

    Raises ``SetupError`` where the package is missing, ``ConfigurationError`` where what the job or the environment
    says cannot be used, ``UnavailableError`` where the machine's credentials cannot be got now.
    """
    with required("files on S3 need the package boto3", extra="files,s3"):
        import boto3
        from botocore.exceptions import BotoCoreError
    try:
        return _made(boto3, address, access)
    except (BotoCoreError, OSError, ValueError) as error:
        why = _of_machine(error)
        if why is not error:
            raise answers.refusal(
                why, kind=address.kind, where=address.text, verb="reached", denied=False
            ) from None
        raise ConfigurationError(
            f"{address.text} cannot be reached as the job's settings say: {type(error).__name__}: {error}",
            next_step="correct fs.s3a.endpoint, or what the environment has as AWS_…: AWS_PROFILE, and what this "
            "profile says",
        ) from None


def _made(boto3: Any, address: Address, access: Access) -> Any:  # noqa: ANN401  as above
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import NoCredentialsError

    config = access.config
    by_path = not config.get("virtual_hosted_style_request", False)
    endpoint = str(config.get("endpoint") or "")
    if not endpoint:
        # boto3 knows fewer names of it, and would put the bucket before the server's.
        endpoint = endpoint_of_machine()
        by_path = by_path or bool(endpoint)
    elif not by_path:
        # obstore wants the bucket in it, boto3 puts it there itself.
        endpoint = endpoint.replace(f"://{address.container}.", "://", 1)
    proxy = access.client.get("proxy_url")
    keys = access.keys or (None, None, None)
    session = boto3.session.Session(
        aws_access_key_id=keys[0], aws_secret_access_key=keys[1], aws_session_token=keys[2] or None
    )
    if access.machine and session.get_credentials() is None:
        raise NoCredentialsError  # a client would have none for as long as its process lives
    return session.client(
        "s3",
        region_name=config.get("region") or session.region_name or "us-east-1",
        endpoint_url=endpoint or None,
        config=Config(
            s3={"addressing_style": "path" if by_path else "virtual"},
            connect_timeout=_CONNECT_S,
            read_timeout=_CALL_S,
            retries={"total_max_attempts": _TRIES, "mode": "standard"},
            max_pool_connections=16,
            # Stores that imitate S3 do not know the checksums behind a body.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            **({"proxies": {"http": proxy, "https": proxy}} if proxy else {}),
            **({"signature_version": UNSIGNED} if config.get("skip_signature") else {}),
        ),
    )


def _encryption(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the beginning of an upload says of its encryption, and what every call does."""
    name = str(config.get("server_side_encryption") or "")
    if not name:
        return {}, {}
    if name == "sse-c":
        key = base64.b64decode(str(config.get("sse_customer_key_base64") or ""))
        return {}, {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}
    key_id = config.get("sse_kms_key_id")
    return {"ServerSideEncryption": name, **({"SSEKMSKeyId": str(key_id)} if key_id else {})}, {}


def _of_machine(error: Exception) -> Exception:
    """Return an error of boto3's own by the words that ``answers`` knows."""
    name = type(error).__name__
    if name == "NoCredentialsError":
        return _no_credentials()
    if name in {"CredentialRetrievalError", "MetadataRetrievalError"}:
        status = _STATUS.search(str(error))
        said = f"Server returned non-2xx status code: {status[1]}" if status else "HTTP error"
        return Boto3Error(f"{_ASKED} - {said}")
    if isinstance(error, OSError) and error.filename == os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE", ""):
        return Boto3Error("Failed to read token file")
    if "Credential" in name or "Token" in name:
        return Boto3Error("Missing credentials")
    return error


def _no_credentials() -> Exception:
    return Boto3Error(f"{_ASKED} - HTTP error" if is_role_unknown() else "Missing credentials")
