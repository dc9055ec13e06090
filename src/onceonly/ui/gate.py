"""Who is let in: this machine's user, with the token, to read. Before any page is asked.

A page of another origin can make a browser send requests here, by a name of its own that leads to 127.0.0.1 too, or
from another port. So the host is compared, only reading is allowed, and whoever has not got the token sees nothing.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN: Final = "token"  # noqa: S105  a name in an address
HEADERS: Final = {
    # Nothing but what this server gives; it has one script and one sheet of styles, and none stands inside a page.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_READS: Final = frozenset({"GET", "HEAD"})
# A browser says where a request comes from; other programs say nothing.
_OURS: Final = frozenset({"", "same-origin", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """What lets in: the ``hosts`` by which the server may be called, the ``token`` of its address, its ``port``.

    ``prefix`` is where a proxy shows it, without a slash at its end; ``secure`` says that the proxy speaks https.
    """

    hosts: frozenset[str]
    token: str
    port: int
    prefix: str = ""
    secure: bool = False

    @property
    def cookie(self) -> str:
        """Name the cookie: browsers give one port's to the others, too."""
        return f"onceonly-{self.port}"


def refusal(door: Door, method: str, headers: Headers) -> tuple[int, str] | None:
    """Say why a request is refused whatever its token: a status and a sentence; None where it is not. Pure."""
    if method not in _READS:
        return 405, "This page only reads: GET and HEAD."
    if headers.get("host", "").lower() not in door.hosts:
        return 421, "This is not a name of this server. Use the address that onceonly ui has printed."
    if headers.get("sec-fetch-site", "") not in _OURS and headers.get("sec-fetch-mode") != "navigate":
        return 403, "Another page has asked for this."
    return None


def knows(door: Door, given: str) -> bool:
    """Compare a token in a time that tells nothing of it. Pure."""
    return hmac.compare_digest(given.encode(), door.token.encode())


class Gate:
    """Stands before the application: refuses, takes the token for a cookie, strips the prefix, adds the headers."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._answer(scope, headers)
        if answer is not None:
            await answer(scope, receive, send_with_headers)
            return
        await self._app(self._inside(scope), receive, send_with_headers)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to who is not let in, or has just shown the token; None for whom the pages are."""
        refused = refusal(self._door, scope["method"], headers)
        if refused is not None:
            status, why = refused
            return PlainTextResponse(why, status, {"Allow": "GET, HEAD"} if status == 405 else {})  # noqa: PLR2004
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = [value for name, value in asked if name == TOKEN]
        if shown and knows(self._door, shown[-1]):
            return self._welcome(scope, [pair for pair in asked if pair[0] != TOKEN])
        if not any(knows(self._door, value) for value in _cookies(headers, self._door.cookie)):
            return PlainTextResponse(
                "The token is missing or old. Use the address that onceonly ui has printed.", 403
            )
        return None

    def _welcome(self, scope: Scope, rest: list[tuple[str, str]]) -> Response:
        """Take the token out of the address, so that it is in no history, and return a cookie for it."""
        door = self._door
        path = door.prefix + _relative(scope["path"], door.prefix)
        answer = RedirectResponse(path + (f"?{urlencode(rest)}" if rest else ""), 303)
        answer.set_cookie(
            # Without a slash at its end, as the prefix itself is typed without one.
            door.cookie, door.token, path=door.prefix or "/", httponly=True, secure=door.secure,
            # Lax, not strict: a link in a chat leads here, and all that anybody can do here is to look.
            samesite="lax",
        )  # fmt: skip
        return answer

    def _inside(self, scope: Scope) -> Scope:
        """Return the scope as the application sees it, whether or not the proxy has taken the prefix away."""
        return {**scope, "path": _relative(scope["path"], self._door.prefix), "root_path": ""}


def _relative(path: str, prefix: str) -> str:
    prefix = unquote(prefix)  # a server is told paths without their percent signs
    inside = path.removeprefix(prefix) if path == prefix or path.startswith(f"{prefix}/") else path
    # Two slashes at its beginning would make it another server's address.
    return "/" + inside.lstrip("/")


def _cookies(headers: Headers, name: str) -> list[str]:
    """Return the values of a cookie: a browser sends one for each path that it knows, and other programs' beside them.

    Those of another program on this machine may hold anything, so that each is cut out by itself.
    """
    pairs = (each.partition("=") for header in headers.getlist("cookie") for each in header.split(";"))
    return [value.strip() for key, _, value in pairs if key.strip() == name]
