"""What an object store's answer means: the cause in one sentence, and what to do. Pure, but for a look at this machine.

The texts of ``obstore`` hold addresses with signatures and whole answers of servers, so they are never shown: what is
shown is a status, a code, a word that is known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError
from onceonly.stores.address import Kind
from onceonly.stores.profiles import is_of_no_cloud

if TYPE_CHECKING:
    from collections.abc import Mapping

_RIGHTS: Mapping[Kind, Mapping[str, str]] = {
    Kind.S3: {
        "put": "s3:PutObject",
        "read": "s3:GetObject, and s3:ListBucket, without which S3 refuses to say that an object is not there",
        "listed": "s3:ListBucket, and for files s3:ListBucketMultipartUploads",
        "removed": "s3:DeleteObject",
        "looked at": "s3:ListMultipartUploadParts",
        "ended": "s3:AbortMultipartUpload",
    },
    Kind.GCS: {
        "put": "storage.objects.create, and for what is sent in parts storage.multipartUploads.create",
        "read": "storage.objects.get",
        "listed": "storage.objects.list",
        "removed": "storage.objects.delete",
    },
    Kind.AZURE: dict.fromkeys(
        ("put", "read", "listed", "removed"),
        "the role Storage Blob Data Contributor on the container; a SAS token must have the rights rcwdl (sp) on it, "
        "fit the account's key, and not have ended (se)",
    ),
}
_KMS = "; with a key of KMS, also its use (kms:GenerateDataKey, kms:Decrypt)"
# Spellings of the three systems and of those who imitate them.
_NO_BUCKET = re.compile(
    r"NoSuchBucket|InvalidBucketName|ContainerNotFound|FilesystemNotFound"
    r"|specified (?:bucket|container) does not exist"
)
_CONFLICT = re.compile(r"status(?: code)?:? 409|ConditionalRequestConflict|OperationAborted")
# Of a name that is deleted, Azure tells in an answer to many.
_FORBIDDEN = re.compile(r"(?:status(?: code)?|\(code):? 403")
_STATUS = re.compile(r"(?:status(?: code)?|\(code):? (\d{3}(?: [A-Z][A-Za-z]+)*)")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_WORDS = re.compile(
    r"Connection refused|Connection reset|connection closed|operation timed out|deadline has elapsed|timed out"
    r"|dns error|failed to lookup address|UnknownIssuer|CertExpired|NotValidForName|BadSignature"
    r"|invalid peer certificate|end of file before message length reached|error decoding response body|Broken pipe"
    r"|TimedOut|Network is unreachable|No route to host",
    re.IGNORECASE,
)
# Whoever gives a machine its credentials: of EC2, of ECS and EKS, of Azure and of Google Cloud.
_OWN = (
    r"(?:Error performing (?:GET|PUT) https?://"
    r"(?:169\.254\.|\[fd00:ec2:|[^/\s]+/latest/(?:api/token|meta-data/iam/))|token request: Error performing GET )"
)
_SILENT = r"\S* in [^\n-]* - (?:HTTP error|Server returned non-2xx status code: (?:408|410|429|5\d\d))"


@dataclass(frozen=True, slots=True)
class _Cause:
    """A cause that a person has to see to, or one that may pass by itself."""

    text: re.Pattern[str]
    what: str
    next_step: str
    passes: bool = False


_GIVE = (
    "give the job keys (spark.hadoop.fs.s3a.access.key, fs.azure.account.key…, fs.gs.…, or in the environment, as "
    "AWS_ACCESS_KEY_ID), a command --hadoop-conf FILE"
)
_INSTANCE = re.compile(r"https?://(?:169\.254\.169\.254|\[fd00:ec2:|metadata\.google\.internal)[:/]")
"""A server that only machines of a cloud have."""
_NOBODYS = _Cause(
    _INSTANCE,
    "no credentials are given, and this machine, which is none of a cloud's, has nobody to ask for any",
    f"{_GIVE}, or start what gives them here",
)
_CAUSES = (
    _Cause(_NO_BUCKET, "there is no such bucket", "create it, or correct the address"),
    _Cause(
        re.compile(
            r"ExpiredToken|TokenRefreshRequired|ExpiredAuthenticationToken|[Tt]oken[^<]{0,40}expired"
            r"|not valid in the specified time frame"
        ),
        "the credentials have expired",
        "renew them, and start the query again: a session token or SAS that was given by hand is not renewed, a role "
        "of the machine is",
    ),
    _Cause(
        re.compile(r"InvalidCertificate"),
        "it shows a certificate that this machine does not trust",
        "name a file with the certificate of its authority in SSL_CERT_FILE (PEM), in the environment of driver and "
        "executors, or correct the store's endpoint",
    ),
    _Cause(
        re.compile(r"federated token file|Failed to read token file"),
        "the token of the workload identity cannot be read",
        "see that its file is there: fs.azure.account.oauth2.token.file, or AZURE_FEDERATED_TOKEN_FILE, "
        "AWS_WEB_IDENTITY_TOKEN_FILE in the environment",
    ),
    _Cause(
        # Azure's says 404 while it is brought up to date.
        re.compile(
            rf"{_OWN}{_SILENT}|{_OWN}\S*/metadata/identity/[^\n]* - [^\n:]*: 404|token response body"
            r"|while loading credentials[^\n]*(?:time(?:d )?out|onnect|dispatch failure)"
        ),
        "no credentials are given, and those of this machine cannot be got now",
        "nothing, where it has a role or an identity: start the query again (in a container on EC2, set the hop limit "
        f"of the instance's metadata to 2); where it has none, {_GIVE}",
        passes=True,
    ),
    _Cause(
        re.compile(rf"{_OWN}[^\n]* - Server returned"),
        "no credentials are given, and the machine has no role to ask for any",
        f"{_GIVE}, or the machine a role",
    ),
    _Cause(
        re.compile(rf"token request: Error performing POST {_SILENT}"),
        "the server where the job logs in does not answer",
        "see to it and to the network between, or correct its address (fs.azure.account.oauth2.client.endpoint, "
        "fs.azure.account.oauth2.msi.authority), and start the query again",
        passes=True,
    ),
    _Cause(
        re.compile(r"sts:AssumeRole|InvalidIdentityToken"),
        "AWS does not give the job the role of its web identity",
        "correct AWS_ROLE_ARN, or whom this role trusts",
    ),
    _Cause(
        re.compile(r"RequestTimeTooSkewed|RequestNotValidYet"),
        "this machine's clock differs too much from the store's",
        "set the clock (NTP), and start the query again",
    ),
    _Cause(
        re.compile(
            r"Object ?Lock|WORM protected|Content-MD5 OR x-amz-checksum|BlobImmutable|[Ii]mmutabilityPolicy"
            r"|retentionPolicyNotMet|[Rr]etention policy|objectUnderActiveHold"
        ),
        "the bucket keeps every object for a time (object lock, a retention or immutability policy), and some that are "
        "put there are replaced or removed",
        "use a bucket without; in a checkpoint Spark, too, removes what it needs no more",
    ),
    _Cause(
        re.compile(
            r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|AuthenticationFailed|InvalidAuthentication"
            r"|UnrecognizedClientException|status(?: code)?:? 401|token request: Error performing POST"
        ),
        "the credentials are not known there, or their secret is another",
        "correct them, or the store's endpoint",
    ),
    _Cause(
        re.compile(
            r"redirect without LOCATION|PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint"
            r"|status(?: code)?:? 30[1278]"
        ),
        "the bucket is in another region, or at another endpoint",
        "name it: fs.s3a.endpoint.region (spark.hadoop.fs.s3a.endpoint.region), or AWS_REGION in the environment",
    ),
    _Cause(
        re.compile(r"Missing credentials|while loading credentials"),
        "no credentials are given, and the machine has none",
        f"{_GIVE}, or the machine a role",
    ),
)


def is_conflict(text: str) -> bool:
    """Say whether a put was broken off because another one for the same name was under way: it may be tried again."""
    return _CONFLICT.search(text) is not None


def lacks_bucket(text: str) -> bool:
    """Say whether it is not the object that is missing but the bucket."""
    return _NO_BUCKET.search(text) is not None


def gist(error: BaseException) -> str:
    """Return what an error says, as far as it is safe to show."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    said = [match[1] for match in (status, code) if match is not None]
    words = _WORDS.findall(text)
    said += words[-1:]
    return ", ".join(said) or type(error).__name__


def cause(error: BaseException) -> ConfigurationError | None:
    """Return the error of a cause that a person has to see to; None where it may pass. It names no place yet."""
    found = _cause(error)
    return (
        None if found is None or found.passes else ConfigurationError(found.what, next_step=found.next_step)
    )


def reason(error: BaseException) -> str:
    """Return what is known of a failure that may pass."""
    found = _cause(error)
    return gist(error) if found is None else f"{found.what} ({gist(error)})"


def _cause(error: BaseException) -> _Cause | None:
    text = str(error)
    found = next((each for each in _CAUSES if each.text.search(text)), None)
    # Where nobody ever answers, it does not help to ask again.
    is_nobodys = found is not None and found.passes and _INSTANCE.search(text) and is_of_no_cloud()
    return _NOBODYS if is_nobodys else found


def refusal(error: BaseException, *, kind: Kind, where: str, verb: str, denied: bool) -> OnceonlyError:
    """Return the error for a call that failed; ``verb`` is what could not be done: put, read, listed, removed.

    ``denied`` says that the store knows who asks, and does not let him.
    """
    found = _cause(error)
    begin = f"{where} could not be {verb}"
    if found is not None:
        kind_of_error = UnavailableError if found.passes else ConfigurationError
        return kind_of_error(f"{begin}: {found.what} ({gist(error)})", next_step=found.next_step)
    if denied or _FORBIDDEN.search(str(error)):  # of a list, obstore does not say it by a class of its own
        right = _RIGHTS.get(kind, {}).get(verb, "it")
        return ConfigurationError(
            f"{begin}: {kind.system} does not permit it ({gist(error)})",
            next_step=f"grant the job's role {right}{_KMS if kind is Kind.S3 else ''}",
        )
    return UnavailableError(
        f"{begin}: {kind.system} gave no usable answer ({gist(error)})",
        next_step="see to this store and to the network between, and start the query again",
    )
