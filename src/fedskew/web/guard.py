"""Who may ask: the Host and Origin of every request, the token, and what the page itself may load."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

# Nothing but this server's own files and answers; no inline script, no frame around the page, no form sent anywhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True)
class Rules:
    """What is let in: the names this server has, and the token that opens its data (None: no token is needed)."""

    names: frozenset[str]
    addresses: bool = False  # bound to every interface: any plain address, since only names can be rebound
    token: str | None = None
    cookie: str = "fedskew"  # cookies know no ports, so that two dashboards need two names

    def host(self, header: str) -> bool:
        """The Host header names this server, so that no other site's name was pointed here (DNS rebinding)."""
        name = _hostname(header)
        return name in self.names or (self.addresses and _is_address(name))

    def origin(self, origin: str, host: str) -> bool:
        """The page that asks came from here."""
        return origin in (f"http://{host}", f"https://{host}")

    def opens(self, given: str | None) -> bool:
        """The token fits; compared in constant time."""
        return self.token is None or (given is not None and hmac.compare_digest(given.encode(), self.token.encode()))


class Guard:
    """The middleware that holds every request to the rules."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self.app = app
        self.rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on and add the headers."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there is no websocket here
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        ours = scope["path"].startswith("/api/")
        cookies: list[bytes] = []

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *HEADERS,
                    *((b"set-cookie", cookie) for cookie in cookies),
                    *([(b"cache-control", b"no-store")] if ours else []),
                    *([(b"cache-control", b"no-cache")] if scope["path"].startswith("/static/") else []),
                ]
            await send(message)

        if refused := self._refused(headers):
            await JSONResponse({"error": refused}, 403)(scope, receive, answer)
            return
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [None])[0]
        if self.rules.token is not None and asked is not None and self.rules.opens(asked):
            cookies.append(f"{self.rules.cookie}={asked}; Path=/; HttpOnly; SameSite=Strict".encode())
        if ours and not any(map(self.rules.opens, (_bearer(headers), _cookie(headers, self.rules.cookie)))):
            told = "this dashboard needs its token: open the address that fedskew ui printed"
            await JSONResponse({"error": told}, 401)(scope, receive, answer)
            return
        await self.app(scope, receive, answer)

    def _refused(self, headers: dict[str, str]) -> str | None:
        host = headers.get("host", "")
        if not self.rules.host(host):
            return f"this dashboard does not answer to the name {_hostname(host)!r}; open the address it printed"
        origin = headers.get("origin")
        if origin is not None and not self.rules.origin(origin, host):
            return "the request comes from another site's page"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            return "the request comes from another site's page"
        return None


def _hostname(header: str) -> str:
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _bearer(headers: dict[str, str]) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _cookie(headers: dict[str, str], name: str) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return found.value if found else None
