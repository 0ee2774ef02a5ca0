"""A bucket is made, where there is none: the one request of an uploader's that obstore has no call for."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from swift_loader.errors import ConfigError
from swift_loader.stores.obstore import Objects

if TYPE_CHECKING:
    from swift_loader.shards.url import Place
    from swift_loader.stores.client import Client

_USUAL_REGION = "us-east-1"
_TIMEOUT_S = 60.0


def with_bucket(place: Place, client: Client) -> Objects:
    """The folder of a bucket to write to; an S3 store's bucket is made if it is missing.

    Raises:
        ConfigError: if it is missing, and cannot be made.
    """
    objects = Objects(place, client)
    try:
        next(objects.listed(), None)
    except FileNotFoundError:
        if place.scheme != "s3":
            raise ConfigError(f"there is no bucket {place.host!r} in {place.scheme}://: make it first") from None
        _make(place, client)
    return objects


def _make(place: Place, client: Client) -> None:
    url = Objects(place._replace(path=""), client).signed("", "PUT")
    if url is None:
        raise ConfigError(f"there is no bucket {place.host!r}, and without keys it cannot be made")
    body = b""
    if client.region != _USUAL_REGION and client.endpoint is None:
        body = f"<CreateBucketConfiguration><LocationConstraint>{client.region}</LocationConstraint>".encode()
        body += b"</CreateBucketConfiguration>"
    context = ssl.create_default_context(cafile=client.certificates) if client.certificates else None
    request = urllib.request.Request(url, data=body, method="PUT")  # noqa: S310 - the server that the user named
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context):  # noqa: S310 - as above
            pass
    except urllib.error.HTTPError as error:
        error.close()
        raise ConfigError(f"there is no bucket {place.host!r}, and making it is refused: {error.code}") from None
    except OSError as error:
        # Its text may have the address, which is signed.
        raise ConfigError(f"there is no bucket {place.host!r}, and it cannot be made: {type(error).__name__}") from None
