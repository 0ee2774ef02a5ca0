"""Who asks a store, and where its server is: what `make_client` gives, and what datasets and commands take."""

from __future__ import annotations

import os
from typing import Any, final
from urllib.parse import urlsplit

from swift_loader.errors import ConfigError
from swift_loader.stores.credentials import Credentials

_REGION = "us-east-1"


@final
class Client:
    """Where a server is and who is let in. A value: it opens nothing, pickles, and shows no key.

    Args:
        endpoint: The server of an S3 store that is not Amazon's, as ``http://host:port``. None: as the environment says
            (``AWS_ENDPOINT_URL``), else the store's own.
        credentials: Who is let in; None: what the environment leads to.
        region: Of the bucket; None: as the environment says, else us-east-1.
        virtual_host: Buckets are part of the host's name. Most servers that are not Amazon's want them in the path.
        certificates: A file of certificates (PEM) that are trusted besides the system's.

    Example:
        >>> client = Client("http://localhost:8333", Credentials.given("key", "secret"))
        >>> store_at("s3://bucket/folder", client=client)
    """

    __slots__ = ("certificates", "credentials", "endpoint", "region", "virtual_host")

    def __init__(
        self,
        endpoint: str | None = None,
        credentials: Credentials | None = None,
        *,
        region: str | None = None,
        virtual_host: bool | None = None,
        certificates: str | os.PathLike[str] | None = None,
    ) -> None:
        self.credentials = Credentials.found() if credentials is None else credentials
        around = self.credentials.environment()
        endpoint = endpoint or around.get("AWS_ENDPOINT_URL_S3") or around.get("AWS_ENDPOINT_URL")
        self.endpoint = None if endpoint is None else _checked(endpoint)
        self.region = region or around.get("AWS_REGION") or around.get("AWS_DEFAULT_REGION") or _REGION
        self.virtual_host = endpoint is None if virtual_host is None else virtual_host
        self.certificates = None if certificates is None else os.path.abspath(certificates)  # noqa: PTH100 - text

    @property
    def name(self) -> str:
        """What differs where another server is asked, or somebody else is let in; tells nothing of secrets."""
        return repr((self.endpoint, self.region, self.virtual_host, self.certificates, self.credentials.name))

    def options(self) -> dict[str, Any]:
        """All but the keys, as words for another process: `from_options` makes a client of them again."""
        return {
            "endpoint": self.endpoint,
            "source": self.credentials.source,
            "region": self.region,
            "virtual_host": self.virtual_host,
            "certificates": self.certificates,
        }

    @classmethod
    def from_options(cls, options: dict[str, Any], fd: int) -> Client:
        """The client that another process has told by `options`, with its credentials' descriptor: it is ours now."""
        return cls(
            options["endpoint"],
            Credentials.of(fd, options["source"]),
            region=options["region"],
            virtual_host=options["virtual_host"],
            certificates=options["certificates"],
        )

    def __repr__(self) -> str:
        return f"Client({self.endpoint!r}, {self.credentials!r}, region={self.region!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


def _checked(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        is_right = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
        has_keys = "@" in parts.netloc
    except (ValueError, AttributeError, TypeError):
        is_right = has_keys = False
    if has_keys:
        raise ConfigError("a server's address has no keys in it: give them apart, as credentials")
    if not is_right:
        raise ConfigError(f"a server of objects is http://host:port or https://host, not {endpoint!r}")
    return endpoint.rstrip("/")
