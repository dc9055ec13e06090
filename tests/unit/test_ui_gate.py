"""The page lets in who has the token, by a name of its own, to read: nobody else sees anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.unit import ui_bench

from onceonly.errors import ConfigurationError
from onceonly.ui import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from tests.unit.ui_bench import Answer, Page


def shown(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"secret page {request.url.path}")


METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"]
INSIDE = Starlette(routes=[Route("/{path:path}", shown, methods=METHODS)])


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with ui_bench.serve(INSIDE) as page:
        yield page


@pytest.fixture(
    scope="module", params=["/proxy/4000", "https://lab.example/proxy/4000"], ids=["path", "address"]
)
def proxied(request: pytest.FixtureRequest) -> Iterator[Page]:
    with ui_bench.serve(INSIDE, prefix=request.param) as page:
        yield page


def test_without_the_token_nothing_is_shown(page: Page) -> None:
    token = page.door.token
    for path in ("/", "/page.js", "/q/now", "/q/events", "/?token=", "/?token=wrong", f"/?token={token}x"):
        answer = page.ask(path)
        assert answer.status == 403
        assert "secret" not in answer.text
        assert "set-cookie" not in answer.headers


def test_the_token_becomes_a_cookie_and_leaves_the_address(page: Page) -> None:
    answer = page.ask(f"/q/timeline?to=7&token={page.door.token}")
    assert (answer.status, answer.headers["location"]) == (303, "/q/timeline?to=7")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    shown = page.ask("/q/timeline?to=7", headers={"Cookie": answer.headers["set-cookie"].partition(";")[0]})
    assert shown.text == "secret page /q/timeline"


@pytest.mark.parametrize("cookie", ["{name}=wrong", "{name}=", "other={token}", "{name}={token}x", ";;=="])
def test_a_cookie_of_another_token_lets_nobody_in(page: Page, cookie: str) -> None:
    given = cookie.format(name=page.door.cookie, token=page.door.token)
    assert page.ask("/", headers={"Cookie": given}).status == 403


@pytest.mark.parametrize(
    "cookie",
    [
        'other={{"x":1, "y":[2]}}; {name}={token}',
        "{name}={token}; theme=dark, blue; a b=1",
        "{name}=of-another-path; {name}={token}",
        "{name}={token}; {name}=of-another-path",
    ],
)
def test_what_other_programs_of_this_machine_keep_in_cookies_locks_nobody_out(
    page: Page, cookie: str
) -> None:
    given = cookie.format(name=page.door.cookie, token=page.door.token)
    assert page.ask("/", headers={"Cookie": given}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:{port}"]
)
def test_another_name_that_leads_here_shows_nothing(page: Page, host: str) -> None:
    for path in ("/", f"/?token={page.door.token}"):
        answer = page.get(path, Host=host.format(port=page.door.port))
        assert answer.status == 421
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("method", METHODS[1:])
def test_nothing_but_reading_is_allowed(page: Page, method: str) -> None:
    answer = page.ask("/q/now", method=method, headers=page.cookie)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_origin_can_only_lead_here(page: Page, site: str) -> None:
    asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
    assert page.get("/q/events", **asked).status == 403
    assert page.get("/q/now", **{**asked, "Sec-Fetch-Mode": "navigate"}).status == 200


def test_every_answer_forbids_what_no_page_needs(page: Page) -> None:
    answers: list[Answer] = [page.ask("/"), page.ask("/", method="POST"), page.get("/q/now")]
    for answer in (*answers, page.ask(f"/?token={page.door.token}")):
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "path", ["//evil.example", "///evil.example/", "/%2F%2Fevil.example", "/%5Cevil.example"]
)
def test_the_token_leads_to_no_other_server(page: Page, path: str) -> None:
    location = page.ask(f"{path}?token={page.door.token}").headers["location"]
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


@pytest.mark.parametrize("strips", [False, True], ids=["whole paths", "stripped paths"])
def test_behind_a_proxy_paths_are_those_below_its_prefix(proxied: Page, *, strips: bool) -> None:
    seen = "" if strips else "/proxy/4000"
    answer = proxied.ask(f"{seen}/q/now?token={proxied.door.token}")
    assert answer.headers["location"] == "/proxy/4000/q/now"
    # A browser gives it to /proxy/4000, to what is below, and to no /proxy/40001.
    assert "path=/proxy/4000;" in answer.headers["set-cookie"].lower()
    assert ("secure" in answer.headers["set-cookie"].lower()) == proxied.door.secure
    assert proxied.get(f"{seen}/q/now").text == "secret page /q/now"


@pytest.mark.parametrize("seen", ["", "/user/ann%40lab/4000"], ids=["stripped paths", "whole paths"])
def test_a_prefix_has_percent_signs_as_a_browser_has_them(seen: str) -> None:
    with ui_bench.serve(INSIDE, prefix="/user/ann%40lab/4000") as page:
        answer = page.ask(f"{seen}/q/now?token={page.door.token}")
        assert answer.headers["location"] == "/user/ann%40lab/4000/q/now"
        assert "path=/user/ann%40lab/4000;" in answer.headers["set-cookie"].lower()
        assert page.get(f"{seen}/q/now").text == "secret page /q/now"


@pytest.mark.parametrize("prefix", ["//evil.example", "/a b", "/ä", "/a;b", "/a/../b", '/"'])
def test_what_no_browser_would_ask_for_as_it_is_typed_is_no_prefix(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a path nor an address"):
        serving.listen(port=0, prefix=prefix).listener.close()


def test_a_proxy_that_keeps_its_name_is_known_by_its_address() -> None:
    with ui_bench.serve(INSIDE, prefix="https://Lab.example:443/proxy/4000") as page:
        assert page.address.startswith("https://lab.example/proxy/4000/?token=")
        for host in ("lab.example", "lab.example:443"):  # as a browser has it, and some proxies
            assert page.get("/q/now", Host=host).status == 200
