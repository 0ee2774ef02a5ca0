"""Where a set is, from what a user writes: a folder's path, or an address. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from swift_loader.errors import ConfigError


class Place(NamedTuple):
    """Where shards are."""

    scheme: str
    """`file` for folders of this machine."""
    host: str
    """The bucket."""
    path: str
    """The folder; in a bucket without slashes at its ends."""


def place_of(url: object) -> Place:
    """What ``url`` names: a path, ``file:///path``, or ``scheme://bucket/folder``.

    Raises:
        ConfigError: if it names nothing.

    Example:
        >>> place_of("s3://bucket/imagenet/val/")
        Place(scheme='s3', host='bucket', path='imagenet/val')
    """
    text = url.__fspath__() if hasattr(url, "__fspath__") else url
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError(f"where shards are is a path or an address such as s3://bucket/folder, not {url!r}")
    if "://" not in text:
        if (found := re.match(r"(s3|gs|az|azure|http|https|file):/", text)) is not None:
            raise ConfigError(f"{text!r}: an address has two slashes, {found[1]}://; a folder of that name is ./{text}")
        return Place("file", "", text)
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError as error:
        raise ConfigError(f"{_without_secrets(text)!r} is no address: {error}") from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"{_without_secrets(text)!r}: an address is scheme://bucket/folder alone; keys and options are given apart"
        )
    if parts.scheme == "file":
        if host not in ("", "localhost") or not parts.path:
            raise ConfigError(f"{text!r}: a folder of this machine is file:///path, with three slashes")
        return Place("file", "", unquote(parts.path))
    path = parts.path.strip("/")
    if not parts.netloc or any(part in ("", ".", "..") for part in path.split("/") if path):
        raise ConfigError(f"{text!r} names no folder of a bucket: scheme://bucket/folder")
    return Place(parts.scheme, parts.netloc, path)


def _without_secrets(text: str) -> str:
    scheme, _, rest = text.partition("://")
    return f"{scheme}://{rest.partition('?')[0].partition('#')[0].rpartition('@')[2]}"
