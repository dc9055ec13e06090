"""The clients of OpenSearch and of Elasticsearch, as one: a request, and what came of it. Threads may share one."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from onceonly.errors import ConfigurationError, UnavailableError, required

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.errors import OnceonlyError
    from onceonly.sinks.opensearch.options import SearchOptions

_CONNECTIONS: Final = 10
"""How many opensearch-py keeps to a node, as elasticsearch-py does. By itself it keeps one, and closes with a warning
what a second thread has used."""


class Client(Protocol):
    """Asks a cluster."""

    def ask(
        self, method: str, path: str, body: bytes | None, *, lines: bool, fine: Sequence[int]
    ) -> tuple[int, Any]:
        """Return status and answer, whatever the status; nobody is told of those that are ``fine``.

        Raises a typed error where no answer came.
        """
        ...

    def close(self) -> None: ...


class OpenSearchClient:
    """Asks by opensearch-py."""

    def __init__(self, options: SearchOptions) -> None:
        with required("the sink opensearch needs the package opensearch-py", extra="opensearch"):
            import opensearchpy
        self._options = options
        self._errors = opensearchpy.exceptions
        more: dict[str, Any] = {"ca_certs": options.ca} if options.ca else {}
        self._client = opensearchpy.OpenSearch(
            hosts=list(options.urls),
            timeout=options.timeout_s,
            max_retries=0,
            verify_certs=True,
            pool_maxsize=_CONNECTIONS,
            **more,
        )

    def ask(
        self, method: str, path: str, body: bytes | None, *, lines: bool, fine: Sequence[int]
    ) -> tuple[int, Any]:
        kind = "application/x-ndjson" if lines else "application/json"
        headers = login(self._options) | ({"content-type": kind} if body is not None else {})
        try:
            answer = self._client.transport.perform_request(
                method,
                path,
                params={"ignore": list(fine)} if fine else None,
                body=body,
                headers=headers or None,
            )
        except self._errors.SSLError as error:
            raise no_answer(error, self._options, tls=True) from error
        except self._errors.ConnectionError as error:
            raise no_answer(error, self._options) from error
        except self._errors.TransportError as error:
            return int(error.status_code), error.info
        except self._errors.SerializationError as error:
            raise _no_json(self._options) from error
        # Of a status that is ignored, only the answer tells.
        if answer is False:
            return 404, {}
        if isinstance(answer, str) and answer:
            raise _no_json(self._options)
        is_error = isinstance(answer, dict) and "error" in answer and "status" in answer
        return int(answer["status"]) if is_error else 200, answer

    def close(self) -> None:
        self._client.close()


class ElasticsearchClient:
    """Asks by elasticsearch-py."""

    def __init__(self, options: SearchOptions) -> None:
        with required("the sink elasticsearch needs the package elasticsearch", extra="elasticsearch"):
            import elastic_transport
            import elasticsearch
        self._options = options
        self._transport = elastic_transport
        self._errors = elasticsearch
        more: dict[str, Any] = {"ca_certs": options.ca} if options.ca else {}
        self._client = elasticsearch.Elasticsearch(
            hosts=list(options.urls), request_timeout=options.timeout_s, max_retries=0, **more
        )

    def ask(
        self, method: str, path: str, body: bytes | None, *, lines: bool, fine: Sequence[int]
    ) -> tuple[int, Any]:
        del fine  # it tells nobody anyway
        accepted = "application/vnd.elasticsearch+json; compatible-with=8"
        headers = login(self._options) | {"accept": accepted}
        if body is not None:
            headers["content-type"] = accepted.replace("+json", "+x-ndjson") if lines else accepted
        try:
            answer = self._client.perform_request(method, path, headers=headers, body=body)
        except self._errors.ApiError as error:
            return int(error.meta.status), error.body
        except self._errors.UnsupportedProductError as error:
            raise ConfigurationError(
                f"the server {self._options.where} is no Elasticsearch",
                next_step="use the format onceonly.opensearch",
            ) from error
        except self._transport.TlsError as error:
            raise no_answer(error, self._options, tls=True) from error
        except self._transport.SerializationError as error:
            raise _no_json(self._options) from error
        except self._transport.TransportError as error:
            raise no_answer(error, self._options) from error
        if isinstance(answer.body, str) and answer.body:
            raise _no_json(self._options)
        return int(answer.meta.status), answer.body

    def close(self) -> None:
        self._client.close()


def login(options: SearchOptions) -> dict[str, str]:
    """Return the header that says who comes, none where nobody does. Raises ``ConfigurationError``.

    For each request anew, as a file may have another password by then.
    """
    if options.api_key:
        return {"authorization": f"ApiKey {options.api_key}"}
    if not options.user:
        return {}
    told = f"{options.user}:{options.password.read() or ''}"
    return {"authorization": f"Basic {base64.b64encode(told.encode()).decode()}"}


def no_answer(error: Exception, options: SearchOptions, *, tls: bool = False) -> OnceonlyError:
    """Return what it means that a cluster has given no answer. Pure."""
    if tls and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return ConfigurationError(
            f"the certificate of {options.where} is not trusted: {error}",
            next_step="name the file of its authority in the option tls.ca",
        )
    return UnavailableError(
        f"{options.where} does not answer: {type(error).__name__}: {error}",
        next_step="see whether it runs and can be reached; rows that it has are not written twice",
    )


def _no_json(options: SearchOptions) -> UnavailableError:
    return UnavailableError(
        f"{options.where} gives an answer that is no JSON: it is no cluster, or something before it answers",
        next_step="see to the option url, and to proxies and pages of a login on the way there",
    )


def encoded(value: object) -> bytes:
    """Return a body. Pure."""
    return json.dumps(value).encode()
