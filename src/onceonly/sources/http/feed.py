"""One long response, read by an event loop of this thread's own: it can wait for bytes without giving them up.

A line or event that the connection breaks off in the middle of was never whole, and comes again where the server is
told after which id to go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError, required
from onceonly.model import Guarantee
from onceonly.sources.http.options import DECLARED, HEADER, Resume, headers_of
from onceonly.sources.http.rows import Events, Lines
from onceonly.sources.journal.feeds import Batch, FeedBrokenError, Gather, guarantee_of
from onceonly.sources.journal.feeds import Lines as Cut

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
    from types import TracebackType

    import httpx

    from onceonly.options import Option
    from onceonly.sources.journal.options import Limits

log = logging.getLogger("onceonly")

_CONNECT_S: Final = 10.0
_EVENTS: Final = "text/event-stream"
_LATER: Final = frozenset({408, 425, 429})
_FAILED: Final = 500
"""From here on a server, or one in front of it, is in trouble: that may pass."""
_NEVER: Final = frozenset({501, 505, 511})
"""Not these: it does not know what is asked of it, or somebody in between wants a login."""
_NO_MORE: Final = 204
_PAGES: Final = frozenset({"text/html", "application/xhtml+xml"})
"""What people look at: a page to log in, or of a server that is being repaired."""


class HttpFeed:
    """A feed over HTTP by its options."""

    name: ClassVar[str] = "http"
    open_ended: ClassVar[tuple[str, ...]] = (HEADER,)
    columns: ClassVar[Mapping[str, str]] = {
        "value": "binary", "arrived": "timestamp", "id": "string", "event": "string",
    }  # fmt: skip
    declared: ClassVar[tuple[Option, ...]] = DECLARED
    awaited = 0

    def __init__(self, options: Mapping[str, Any], limits: Limits) -> None:
        self._url = str(options["url"])
        self._field: str | None = options["id"]
        self.named = self._field or "none"
        self._resume = Resume(options["resume"])
        self._stall_s: float = options["stallTimeout"]
        self._headers = headers_of(options)
        self._limits = limits
        self.is_host_known = self._was_connected = False
        self._has_told = False
        self._client, url = _httpx_of(self._url)
        self.of = f"{url.scheme}://{url.netloc.decode().rpartition('@')[2]}{url.path}"
        self.guarantees: tuple[Guarantee, ...] = (
            (Guarantee.EXACTLY_ONCE, Guarantee.AT_MOST_ONCE) if self._resume else (Guarantee.AT_MOST_ONCE,)
        )
        self.guarantee = guarantee_of(
            self,
            options,
            lacks="without resume its server cannot be told where to go on, so what is lost before the journal is lost",
            next_step="set resume=header:Last-Event-ID or query:NAME, and id for lines of JSON, if the server knows "
            "them; or leave onceonly.guarantee out",
        )

    def receive(self, mark: str | None) -> Generator[Batch | None, None, None]:
        """Ask for the response, and yield its lines or events."""
        loop = asyncio.new_event_loop()
        chunks = self._chunks(mark)
        try:
            yield from self._batches(loop, chunks, mark)
        finally:
            loop.run_until_complete(chunks.aclose())
            loop.close()

    def pause(self, seconds: float) -> None:
        """Wait; meanwhile the server can send no more than the buffers of the network hold."""
        time.sleep(seconds)

    def _batches(
        self, loop: asyncio.AbstractEventLoop, chunks: AsyncGenerator[Any, None], mark: str | None
    ) -> Generator[Batch | None, None, None]:
        gather = Gather(self.columns, self._limits)
        lines = Cut(self._limits.segment_bytes, self.of)
        read: Lines | Events | None = None
        broken: FeedBrokenError | OnceonlyError | None = None
        with _Waiting(loop, chunks) as waiting:
            while broken is None:
                try:
                    found = waiting.next(gather.wait_s)
                    if isinstance(found, str):
                        read = self._reading(found, mark)
                        gather.touch()
                    elif read is not None:
                        for line in lines.feed(found):
                            read.take(line, gather)
                except (FeedBrokenError, OnceonlyError) as error:
                    broken = _ended(read, error, lines.rest, gather)
                if isinstance(read, Lines):
                    self._tell_nameless(read, is_over=broken is not None)
                if gather and (gather.is_due or broken is not None):
                    # Also where its server is not told: a later start may tell it.
                    yield gather.take(read.last if read is not None else None)
                elif gather.is_idle and read is not None:
                    yield None  # not while it connects: the feed has not said yet that there is nothing
        if isinstance(broken, FeedBrokenError) and isinstance(read, Events):
            broken.wait_s = max(broken.wait_s, read.retry_s)
        raise broken

    def _reading(self, content: str, mark: str | None) -> Lines | Events:
        if content == _EVENTS:
            needs_id = self.guarantee is Guarantee.EXACTLY_ONCE
            return Events(mark, self.of, needs_id=needs_id, come_again=bool(self._resume))
        if self._field is None and self.guarantee is Guarantee.EXACTLY_ONCE:
            raise ConfigurationError(
                f"{self.of} sends lines, and no option says where their id is",
                next_step="set id to the JSON field that names a line for good; or resume=none: at most once up to the "
                "journal",
            )
        return Lines(mark, self._field, self.of, content)

    def _tell_nameless(self, read: Lines, *, is_over: bool) -> None:
        """Say for which lines exactly once does not hold, as no id tells the server to go on after them."""
        since = read.nameless_since
        if since is None or self.guarantee is not Guarantee.EXACTLY_ONCE:
            return
        window_s = self._limits.window_s
        if read.last is None and not self._has_told:
            self._has_told = True
            log.warning(
                "%s: no line so far has a text or number in the field %s (option id), so its server cannot be told "
                "where to go on: what it sends while nobody listens may be lost, and what it sends again after %g s "
                "(window) is there twice.",
                self.of, self._field, window_s,
            )  # fmt: skip
        elif read.last is not None and is_over and time.monotonic() - since > window_s:
            log.warning(
                "%s: lines have had no text or number in the field %s (option id) for longer than %g s (window). Its "
                "server is told to go on after the id %s before them: those that it sends again and that are older "
                "are there twice.",
                self.of, self._field, window_s, read.last,
            )  # fmt: skip

    async def _chunks(self, mark: str | None) -> AsyncGenerator[Any, None]:
        """Give the type of the content, and then bytes. Raises as ``receive``."""
        httpx = self._client
        timeout = httpx.Timeout(_CONNECT_S, read=self._stall_s)
        own = {
            "accept": f"{_EVENTS}, application/x-ndjson, application/json;q=0.9, */*;q=0.1",
            "accept-encoding": "identity",
            "cache-control": "no-store",
        }
        given = {name.lower(): value for name, value in self._headers.items()}
        last = self._resume.headers(mark)
        headers = {**own, **given, **last}
        url = httpx.URL(self._url)
        url = url.copy_merge_params(self._resume.query(mark))

        async def keep_from_others(request: Any) -> None:  # noqa: ANN401  httpx, which is imported late
            # A key may be in any of them, and httpx takes away Authorization alone.
            if not _is_at(url, request.url):
                for name in given.keys() - last.keys():
                    request.headers.pop(name, None)

        try:
            async with (
                httpx.AsyncClient(
                    timeout=timeout, follow_redirects=True, event_hooks={"request": [keep_from_others]}
                ) as client,
                client.stream("GET", url, headers=headers) as response,
            ):
                self._require_good(response)
                content = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if content in _PAGES:
                    raise self._page(content, response.url)
                self.is_host_known = self._was_connected = True
                yield content
                async for chunk in response.aiter_bytes():
                    yield chunk
        except httpx.ReadTimeout as error:
            raise FeedBrokenError(f"nothing came for {self._stall_s:g} s (stallTimeout)") from error
        except httpx.UnsupportedProtocol as error:
            raise ConfigurationError(
                f"{self.of} sends on to an address that is not HTTP", next_step="give the address itself"
            ) from error
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:  # the last of a broken record of TLS
            self._refuse_for_good(error)
            why = _tls(error) or str(error) or "it was closed"
            raise FeedBrokenError(f"the connection broke ({type(error).__name__}: {why})") from error

    def _require_good(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == _NO_MORE:
            raise UnavailableError(
                f"{self.of} says that it has no more to send (204)",
                next_step="stop the query, or start it again when there is more",
            )
        if status in _LATER or (status >= _FAILED and status not in _NEVER):
            raise FeedBrokenError(f"it answered {status}", wait_s=retry_after(response.headers))
        if not response.is_success:
            raise ConfigurationError(
                f"{self.of} answered {status} {response.reason_phrase}",
                next_step={
                    401: "set header.Authorization to what the server takes",
                    403: "ask for the right to read it, or set header.Authorization",
                    410: "the server has what came after the last id no more, and that is lost: start once with "
                    "resume=none (and without onceonly.guarantee), which takes what it sends then, and then as before",
                }.get(status, "see to the option url"),
            )

    def _page(self, content: str, url: httpx.URL) -> FeedBrokenError | ConfigurationError:
        """Make the error for a page in place of rows; where there were rows before, it may pass."""
        at = f"{url.scheme}://{url.netloc.decode().rpartition('@')[2]}{url.path}"
        sent_on = f" from {at}, to which it sends on," if at != self.of else ""
        what = f"a page for people{sent_on} ({content}), and no rows: lines of JSON or server-sent events are expected"
        if self._was_connected:
            return FeedBrokenError(f"it answered with {what}")
        return ConfigurationError(
            f"{self.of} answered with {what}",
            next_step="see to the option url; where the page is one to log in, set header.Authorization to what the "
            "server takes; where these are lines of JSON all the same, have it send them as application/x-ndjson",
        )

    def _refuse_for_good(self, error: BaseException) -> None:
        """Raise what no other try would change."""
        causes = list(_causes(error))
        if any(isinstance(each, ssl.SSLCertVerificationError) for each in causes):
            raise ConfigurationError(
                f"the certificate of {self.of} is not one that this machine trusts ({_tls(error)})",
                next_step="name the host in url as its certificate does; or set the variable SSL_CERT_FILE to a file "
                "with the certificate of who signed it, where the receiver runs",
            ) from error
        unknown = [each for each in causes if isinstance(each, socket.gaierror)]
        if unknown and unknown[0].errno != socket.EAI_AGAIN and not self.is_host_known:
            raise ConfigurationError(
                f"the host of {self.of} has no address", next_step="see to the option url"
            ) from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _tls(error: BaseException) -> str:
    """Say what of TLS an error came from; empty where it did not."""
    found = next((each for each in _causes(error) if isinstance(each, ssl.SSLError)), None)
    return "" if found is None else f"TLS: {getattr(found, 'verify_message', '') or found.reason or found}"


def _ended(
    read: Lines | Events | None, error: FeedBrokenError | OnceonlyError, rest: bytes, gather: Gather
) -> FeedBrokenError | OnceonlyError:
    """Take what came last, if a connection has ended, and that is whole; return why no more is read."""
    if read is not None and isinstance(error, FeedBrokenError):
        try:
            read.end(rest, gather, is_all=error.answered)
        except OnceonlyError as refusal:
            return refusal
    return error


def _is_at(url: httpx.URL, asked: httpx.URL) -> bool:
    """Say whether what is asked for is where the user's headers may go: the same server, or it behind TLS."""
    if asked.host != url.host:
        return False
    same = (asked.scheme, asked.port) == (url.scheme, url.port)
    return same or (url.scheme, asked.scheme, url.port, asked.port) == ("http", "https", None, None)


def retry_after(headers: Mapping[str, str]) -> float:
    """Return how long a server wants to be left alone, in seconds: a number, or a date; 0 where it does not say.

    A date is by its own clock, which its answer tells: this machine's may be hours away.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    until, now = _moment(text), _moment(headers.get("date", ""))
    return 0.0 if until is None else max(0.0, until - (time.time() if now is None else now))


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


class _Waiting:
    """Waits for what comes next, now and then, without giving it up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chunks: AsyncGenerator[Any, None]) -> None:
        self._loop = loop
        self._chunks = chunks
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                self._loop.run_until_complete(self._task)

    def next(self, within_s: float) -> Any:  # noqa: ANN401  the type of the content first, then bytes
        """Return what came; no bytes if that takes longer. Raises ``FeedBrokenError`` at the end."""
        task = self._task = self._task or self._loop.create_task(_next(self._chunks))
        self._loop.run_until_complete(asyncio.wait({task}, timeout=within_s))
        if not task.done():
            return b""
        self._task = None
        return task.result()


async def _next(chunks: AsyncGenerator[Any, None]) -> Any:  # noqa: ANN401  as above
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        raise FeedBrokenError("the server has closed the connection", answered=True) from None


def _httpx_of(text: str) -> tuple[Any, httpx.URL]:
    """Return the client library, and the address. Raises ``SetupError``, ``ConfigurationError``."""
    with required("the feed 'http' needs the package httpx", extra="http", where="where the receiver runs"):
        import httpx
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        # Nor its cause, which quotes what may be a part of a password.
        raise ConfigurationError(
            "The option url of onceonly.http cannot be read; it is not shown, as it may hold a password.",
            next_step="write it as https://host/path, with %2F for a slash inside a password",
        ) from None
    is_port = url.port is None or 0 < url.port < 1 << 16
    if url.scheme not in {"http", "https"} or not url.host or not is_port:
        raise ConfigurationError(
            "The option url of onceonly.http is no address of http or https.",
            next_step="write it as https://host/path",
        )
    return httpx, url
