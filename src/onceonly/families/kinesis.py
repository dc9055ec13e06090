"""A client of one stream of Kinesis: where it is, who asks, and what its answers mean. Any process; needs boto3."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from onceonly.errors import ConfigurationError, UnavailableError, required
from onceonly.families.backoff import Backoff
from onceonly.options import Option, some_time
from onceonly.stores.profiles import is_role_unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onceonly.errors import OnceonlyError
    from onceonly.ports import Clock

DECLARED = (
    Option(name="stream", doc="the name of the stream, or its ARN", required=True),
    Option(
        name="region",
        doc="its region, such as eu-central-1; without it, what the environment of driver and executors says",
    ),
    Option(
        name="endpoint",
        doc="the address of the service, where it is not AWS's own: http://localhost:4567",
    ),
    Option(
        name="access.key",
        doc="who asks; without it, boto3 looks where it always does: environment, profile, role of the machine",
        secret=True,
    ),
    Option(name="secret.key", doc="the secret of that key", secret=True),
    Option(name="session.token", doc="the token of a key that is temporary", secret=True),
    Option(
        name="timeout",
        doc="how long a call that fails, or is throttled, is made again",
        default="2 minutes",
        read=some_time,
    ),
)
THROTTLED = frozenset(
    {
        "KMSThrottlingException", "LimitExceededException", "ProvisionedThroughputExceededException",
        "RequestLimitExceeded", "Throttling", "ThrottlingException",
    }
)  # fmt: skip
PASSING = THROTTLED | {
    "InternalFailure", "InternalServerError", "RequestTimeout", "RequestTimeoutException", "ServiceUnavailable",
    "ServiceUnavailableException",
}  # fmt: skip
"""The codes of what may be gone when it is tried again."""
_DENIED = frozenset(
    {
        "AccessDenied", "AccessDeniedException", "ExpiredToken", "ExpiredTokenException",
        "IncompleteSignature", "InvalidClientTokenId", "InvalidSignatureException", "KMSAccessDeniedException",
        "MissingAuthenticationToken", "MissingAuthenticationTokenException", "NotAuthorized", "OptInRequired",
        "SignatureDoesNotMatch", "UnrecognizedClientException",
    }
)  # fmt: skip
_CLIENTS_MAX = 16
_CONNECT_S, _ANSWER_S = 5.0, 30.0


_ANSWERS = {
    "describe_stream_summary": "StreamDescriptionSummary", "get_records": "Records",
    "get_shard_iterator": "ShardIterator", "list_shards": "Shards", "put_records": "Records",
}  # fmt: skip
"""What an answer has, whatever else it has."""

_lock = threading.Lock()
_clients: dict[tuple[int, StreamOptions], Any] = {}


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of its port
        return False


class RefusedCallError(Exception):
    """An answer that the caller has asked to see itself: ``code`` is the service's."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"{code}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Where the stream is, and who asks."""

    stream: str
    region: str | None = None
    endpoint: str | None = None
    keys: tuple[str, str, str | None] | None = field(default=None, repr=False)
    timeout_s: float = 120.0

    @classmethod
    def of(cls, options: Mapping[str, Any], who: str) -> StreamOptions:
        """Read them. Raises ``ConfigurationError``."""
        endpoint = options["endpoint"]
        if endpoint is not None and not _is_address(str(endpoint)):
            raise ConfigurationError(
                f"The option endpoint of {who} is {endpoint!r}, which is no address.",
                next_step="write it as https://host:port; leave it out for AWS's own",
            )
        if (options["access.key"] is None) != (options["secret.key"] is None):
            raise ConfigurationError(
                f"Of the options access.key and secret.key of {who}, one is given.",
                next_step="give both, or neither",
            )
        key = options["access.key"]
        return cls(
            stream=options["stream"],
            region=options["region"],
            endpoint=endpoint,
            keys=None if key is None else (key, options["secret.key"], options["session.token"]),
            timeout_s=options["timeout"],
        )

    @property
    def named(self) -> dict[str, str]:
        """The stream, as calls name it."""
        return {"StreamARN" if self.stream.startswith("arn:") else "StreamName": self.stream}

    @property
    def where(self) -> str:
        """The stream and its place, for people."""
        place = self.endpoint or self.region
        return f"{self.stream} at {place}" if place else self.stream


class Stream:
    """One stream, as its client sees it; connects when it is first asked. One thread at a time.

    The client itself is its process's, as making one costs a tenth of a second, and stays when this is dropped.
    """

    def __init__(self, options: StreamOptions, who: str, clock: Clock | None = None) -> None:
        self.options = options
        self.who = who
        self._clock: Clock = clock or time
        self._client: Any = None

    def ask(
        self,
        operation: str,
        *,
        own: Collection[str] = (),
        named: bool = True,
        **given: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        """Call, and again while it may pass, for the time of the option ``timeout``; return the answer.

        ``operation`` is boto3's name; ``named`` says that the call names the stream. Raises ``RefusedCallError`` for
        the codes in ``own``, and a typed error for all others.
        """
        wait = Backoff(self._clock, self.options.timeout_s)
        arguments = {**(self.options.named if named else {}), **given}
        while True:
            answer, what = self._called(operation, own, arguments)
            if not what:
                return answer
            if not wait.again():
                raise self.unavailable(what)

    def _called(
        self, operation: str, own: Collection[str], arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], str]:
        """Call once; return the answer, and why there is none, empty where there is. Raises as ``ask``."""
        from botocore import exceptions

        try:
            answer: dict[str, Any] = getattr(self.client(), operation)(**arguments)
        except exceptions.ClientError as error:
            told = error.response.get("Error", {})
            code, message = str(told.get("Code", "")), str(told.get("Message", ""))
            if code in own:
                raise RefusedCallError(code, message) from error
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if code not in PASSING and status < 500:  # noqa: PLR2004  the server's own fault
                raise self.refusal(code, message) from error
            return {}, f"{code}: {message}"
        except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
            self._forget()  # this client would have none for as long as its process lives
            if not is_role_unknown():
                raise ConfigurationError(
                    f"{self.who} has no credentials for the stream {self.options.where}: {error}",
                    next_step="give access.key and secret.key; or a role, profile or environment that boto3 finds "
                    "on driver and executors",
                ) from error
            return {}, f"{error}, and this machine's server of credentials does not answer"
        except exceptions.ParamValidationError as error:
            raise self.refusal("ParamValidation", " ".join(str(error).split())) from error
        except (exceptions.BotoCoreError, OSError) as error:
            return {}, f"{type(error).__name__}: {error}"
        has = _ANSWERS.get(operation)
        return answer, "" if has is None or has in answer else f"what answers {operation} there is no Kinesis"

    def unavailable(self, what: str) -> UnavailableError:
        """Make the error of a call that was made again for long enough."""
        return UnavailableError(
            f"{self.who} had no answer of the stream {self.options.where} for {self.options.timeout_s:g} s: {what}",
            next_step="nothing, where it comes back: the query starts again. If it never was there, see to the options "
            "region and endpoint; where it is throttled all the time, give the stream more shards, or raise the option "
            "timeout",
        )

    def refusal(self, code: str, message: str) -> OnceonlyError:
        """Say what an answer means that no other try would change."""
        stream = self.options.where
        if code == "ResourceNotFoundException":
            return ConfigurationError(
                f"{self.who}: there is no stream {stream}: {message}",
                next_step="make it, or correct the options stream, region and endpoint",
            )
        if code in _DENIED:
            return ConfigurationError(
                f"{self.who} may not use the stream {stream}: {code}: {message}",
                next_step="correct the credentials, or grant what it says",
            )
        return ConfigurationError(
            f"{self.who}: the stream {stream} refuses a call: {code}: {message}",
            next_step="mend what it names",
        )

    def _forget(self) -> None:
        self._client = None
        with _lock:
            _clients.pop((os.getpid(), self.options), None)

    def client(self) -> Any:  # noqa: ANN401  of boto3, which has no types
        """Return the client, made when it is first needed. Raises ``SetupError``, ``ConfigurationError``."""
        if self._client is None:
            self._client = _make(self.options, self.who)
        return self._client


def _make(options: StreamOptions, who: str) -> Any:  # noqa: ANN401  as above
    # A forked child must not use its parent's connections.
    key = (os.getpid(), options)
    with _lock:
        if key not in _clients:
            if len(_clients) >= _CLIENTS_MAX:
                _clients.clear()
            _clients[key] = _make_anew(options, who)
        return _clients[key]


def _make_anew(options: StreamOptions, who: str) -> Any:  # noqa: ANN401  as above
    with required(f"{who} needs the package boto3", extra="kinesis"):
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, CredentialRetrievalError
    key, secret, token = options.keys or (None, None, None)
    try:
        # A session of its own: boto3's default one is shared by all threads.
        return boto3.session.Session().client(
            "kinesis",
            region_name=options.region,
            endpoint_url=options.endpoint,
            aws_access_key_id=None if key is None else str(key),
            aws_secret_access_key=None if secret is None else str(secret),
            aws_session_token=None if token is None else str(token),
            config=Config(
                retries={"total_max_attempts": 1}, connect_timeout=_CONNECT_S, read_timeout=_ANSWER_S
            ),
        )
    except CredentialRetrievalError:
        raise  # it may pass
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"{who} cannot reach the stream {options.where}: {error}",
            next_step="set the option region, or AWS_REGION on driver and executors",
        ) from error
