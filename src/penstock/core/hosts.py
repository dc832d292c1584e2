"""Names under which a server may be asked: what a Host header says, and whether it means this server."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

_REMEMBERED = 256  # headers whose answer is kept: a handful is what honest clients send


def host_of(header: str) -> str:
    """The host of a Host header, without its port.

    >>> host_of("localhost:8000"), host_of("[::1]:8000"), host_of("[::1")  # the last is none
    ('localhost', '::1', '[::1')
    """
    if not header.startswith("["):
        return header.partition(":")[0]
    host, closed, _ = header[1:].partition("]")
    return host if closed else header


def is_loopback(host: str) -> bool:
    """Whether an address or name means the machine itself.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.7")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class AllowedHosts:
    """Whom a server answers, by the Host header.

    A page from elsewhere can have its name point at this machine (DNS rebinding) and then ask from a visitor's browser;
    its requests carry that name. So names are taken only if they are known: those of the loopback, the one that the
    server is bound to, and those in `allowed`. Beyond loopback, the machine's own name and any address are taken too:
    an address cannot be made to point elsewhere.

    Args:
        bound: the host that the server listens on.
        allowed: further names; `"*"` takes any.

    >>> hosts = AllowedHosts("127.0.0.1", ["models.example"])
    >>> [hosts.allow(name) for name in ("localhost:8000", "[::1]:8000", "models.example", "evil.example", "10.0.0.7")]
    [True, True, True, False, False]
    """

    def __init__(self, bound: str, allowed: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in allowed} | {"localhost", bound.lower()}
        self._takes_addresses = not is_loopback(bound)
        if self._takes_addresses:
            self._names.add(socket.gethostname().lower())
        self._known: dict[str, bool] = {}

    def allow(self, header: str) -> bool:
        """Whether a request with this Host header is meant for the server."""
        found = self._known.get(header)
        if found is None:
            found = self._decide(host_of(header.strip()).lower().rstrip("."))
            if len(self._known) < _REMEMBERED:
                self._known[header] = found
        return found

    def _decide(self, host: str) -> bool:
        if "*" in self._names or host in self._names:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return self._takes_addresses or address.is_loopback
