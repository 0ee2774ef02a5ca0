"""Addresses, as users write them."""

from __future__ import annotations

import ipaddress
from typing import Any, NamedTuple

from swift_loader.errors import ConfigError

DEFAULT_PORT = 5557
_LARGEST_PORT = 65_535


class Address(NamedTuple):
    """A port of a host, or the path of a socket on this one."""

    host: str
    port: int
    path: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        return bool(self.path) or is_loopback(self.host)

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path.replace(chr(0), '@')}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


def parse(text: Any) -> Address:
    """One address: ``tcp://host:port``, ``host:port``, ``host``, ``unix:/path`` or ``unix:@name``, which is no file.

    Raises:
        ConfigError: if it is none.
    """
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"an address is a text such as 'tcp://host:{DEFAULT_PORT}' or 'unix:/path', not {text!r}")
    text = text.strip()
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if path.startswith("@"):
            return Address("", 0, path.replace("@", "\0", 1))
        if not path.startswith("/"):
            raise ConfigError(f"the address {text!r} names no whole path: write 'unix:/path/of/the/socket'")
        return Address("", 0, path)
    scheme, separator, rest = text.rpartition("://")
    if separator and scheme != "tcp":
        raise ConfigError(f"the address {text!r} is neither tcp:// nor unix:")
    host, port = _host_and_port(rest)
    if not host or not port.isascii() or not port.isdigit() or int(port) > _LARGEST_PORT:
        raise ConfigError(f"the address {text!r} is no host and port: write 'tcp://host:{DEFAULT_PORT}'")
    return Address(host, int(port))


def parse_all(text: Any) -> list[Address]:
    """Several, with commas between.

    Raises:
        ConfigError: if one of them is none, or there is none.
    """
    if not isinstance(text, str):
        raise ConfigError(f"addresses are a text such as 'tcp://a:{DEFAULT_PORT},b:{DEFAULT_PORT}', not {text!r}")
    return [parse(part) for part in text.split(",") if part.strip()] or [parse(text)]


def is_loopback(host: str) -> bool:
    """Whether what is sent there stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":") or str(DEFAULT_PORT)
    if text.count(":") > 1:
        return text, str(DEFAULT_PORT)
    host, _, port = text.partition(":")
    return host, port or str(DEFAULT_PORT)
