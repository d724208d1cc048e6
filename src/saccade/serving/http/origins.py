"""Allowed origins: the names that a server answers to, and the sites whose pages may use it."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from saccade.errors import UserError

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
ANY = "*"
NAME = re.compile(r"[^\s/:@\[\]]+|[0-9a-f:.]+")
ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[^\s/?#@:\[\]*,]+)(?::(\d{1,5}))?/?")
DEFAULT_PORTS = {"http": "80", "https": "443"}
OWN_PAGES = (b"same-origin", b"none")  # what a browser says of requests by our pages, and by its user


class RefusedVisit(NamedTuple):
    """A request that is refused before anything of it is read: the status, and one line."""

    status: int
    message: str


TWO_HOSTS = RefusedVisit(400, "Invalid host header: a request has exactly one")
OTHER_HOST = RefusedVisit(400, "Invalid host header: this server does not have that name (see --allow-host)")
OTHER_SITE = RefusedVisit(403, "Pages of other sites may not use this server (see --cors)")


@final
@dataclass(frozen=True)
class AllowedSites:
    """The names of a server, and the origins of other sites whose pages may use it; "*" allows all."""

    names: frozenset[str]
    has_addresses: bool  # any IP address is a name of it: a page that rebinds a name to it has a name, not an address
    origins: frozenset[str]

    @property
    def warning(self) -> str | None:
        """Return what an operator should know when the server starts; None where only this machine reaches it."""
        if not self.has_addresses:
            return None
        names = ", ".join(sorted(name for name in self.names - {*LOCAL_NAMES} if not _is_address(name)))
        return f"other machines reach this server: by IP address, and as {names} (see --allow-host and --api-keys)"

    def refuses(self, scope: MutableMapping[str, Any]) -> RefusedVisit | None:
        """Say why a request is refused: another host name, or a page of another site that posts."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return None if not hosts and scope["http_version"] == "1.0" else TWO_HOSTS
        if not self._has_name(_host_name(hosts[0])):
            return OTHER_HOST
        return OTHER_SITE if scope["method"] == "POST" and not self._may_post(scope, hosts[0]) else None

    def _has_name(self, name: str) -> bool:
        return name in self.names or ANY in self.names or (self.has_addresses and _is_address(name))

    def _may_post(self, scope: MutableMapping[str, Any], host: bytes) -> bool:
        headers = dict(scope["headers"])
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if ANY in self.origins or (origin is not None and origin.decode("latin-1").lower() in self.origins):
            return True
        if site is not None:  # pages can't write this header, and a proxy may have changed Host
            return site in OWN_PAGES
        return origin is None or origin.partition(b"://")[2].lower() == host.lower()


def allowed_sites(host: str, names: Iterable[str], origins: Iterable[str]) -> AllowedSites:
    """Return who may ask a server that listens on an address; where other machines reach it, by any address."""
    if is_loopback(host):
        return AllowedSites(
            frozenset({*LOCAL_NAMES, host.lower(), *names}), has_addresses=False, origins=frozenset(origins)
        )
    own = {*LOCAL_NAMES, host.lower(), socket.gethostname().lower()}
    return AllowedSites(frozenset({*own, *names}), has_addresses=True, origins=frozenset(origins))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def read_names(given: Iterable[str]) -> tuple[str, ...]:
    """Check host names that a user wrote."""
    names = tuple(name.lower() for name in given)
    if wrong := [name for name in names if not NAME.fullmatch(name)]:
        raise UserError(f"--allow-host: {wrong[0]!r} given; allowed: a name such as translate.example, or *")
    return names


def read_origins(given: Iterable[str]) -> tuple[str, ...]:
    """Check origins that a user wrote, and write each as browsers do: without a slash or a port that says nothing."""
    return tuple(map(_read_origin, given))


def _read_origin(given: str) -> str:
    if given == ANY:
        return given
    found = ORIGIN.fullmatch(given.lower())
    if found is None:
        raise UserError(f"--cors: {given!r} given; allowed: an origin such as https://my.example, or *")
    scheme, name, port = found.groups()
    return f"{scheme}://{name}" + (f":{port}" if port not in (None, DEFAULT_PORTS.get(scheme)) else "")


def _host_name(value: bytes) -> str:
    """Return the name in a Host header, without its port."""
    host = value.decode("latin-1").lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False
