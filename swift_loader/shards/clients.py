"""Who is asked for buckets: a server, a folder of this machine in its place, or what another library has for that."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from swift_loader.errors import ConfigError
from swift_loader.shards.borrowed import Borrowed, BorrowedStore
from swift_loader.shards.store import store_at
from swift_loader.shards.url import place_of

if TYPE_CHECKING:
    from swift_loader.settings.secret import Secret
    from swift_loader.stores.client import Client
    from swift_loader.stores.protocol import Store

    AnyClient: TypeAlias = "Client | FolderClient | Borrowed"

#: What people write who forget how an address begins.
_HOST = re.compile(r"(localhost|[\w-]+(\.[\w-]+)*):\d+/?")
#: What an object has that can be asked as boto3's client can.
_CALLS = ("list_objects", "download_fileobj", "upload_file")


class FolderClient(NamedTuple):
    """A folder of this machine that stands for a server: its folders are buckets."""

    path: str


class Where(NamedTuple):
    """A set, as `ShardDataset` and `create` are told of it."""

    url: str
    client: Client | None


def make_client(
    url: str | os.PathLike[str] | Any,
    access_key: str | Secret | None = None,
    secret_key: str | Secret | None = None,
    *,
    token: str | Secret | None = None,
    region: str | None = None,
    certificates: str | os.PathLike[str] | None = None,
) -> AnyClient:
    """Says which server keeps buckets, and who is let in. Nothing is asked yet.

    Args:
        url: The server, as ``https://host:port``; or a folder (``/data/shards``, ``file:///data/shards``) in place of
            one, whose folders are then the buckets: no server is needed, and keys are not looked at. Or a client of
            boto3, whose server and keys are taken; or any object that has ``list_objects``, ``download_fileobj`` and
            ``upload_file`` as boto3's client does, which is used as it is.
        access_key: Who asks; a text, or a `Secret`. Without it the environment is looked at (``AWS_ACCESS_KEY_ID``, a
            profile, what the cloud gives its machines).
        secret_key: What requests are signed with.
        token: Of a session, where keys are lent for some hours.
        region: Of the buckets; as the environment says, else us-east-1.
        certificates: A file of certificates (PEM) that are trusted besides the system's.

    Raises:
        ConfigError: if it names no server and no folder, or only one of the keys is given.

    Example:
        >>> make_client("/data/shards")
        FolderClient(path='/data/shards')
    """
    if not isinstance(url, str | os.PathLike):
        return _of_another(url)
    text = os.fspath(url)
    if _HOST.fullmatch(text) and not os.path.isdir(text):  # noqa: PTH112 - text
        raise ConfigError(f"{text} names no server: write http://{text}, or https://; a folder is ./{text}")
    if "://" not in text or text.startswith("file://"):
        return FolderClient(os.path.abspath(place_of(text).path))  # noqa: PTH100 - text
    from swift_loader.stores.client import Client  # noqa: PLC0415 - a folder needs none
    from swift_loader.stores.credentials import Credentials  # noqa: PLC0415 - as above

    if (access_key is None) != (secret_key is None) or (token is not None and access_key is None):
        raise ConfigError("make_client takes an access key with its secret key, or neither: then the environment's")
    given = None
    if access_key is not None and secret_key is not None:
        given = Credentials.given(access_key, secret_key, token)
    return Client(text, given, region=region, certificates=certificates)


def where(client: AnyClient | str | os.PathLike[str], bucket: str, folder: str) -> Where:
    """The set in a bucket's folder.

    Raises:
        ConfigError: if it can be none.
    """
    if isinstance(client, str | os.PathLike):
        client = make_client(client)
    path = "/".join(_checked(name, text) for name, text in (("bucket", bucket), ("folder", folder)) if text)
    if isinstance(client, FolderClient):
        return Where(os.path.join(client.path, path), None)  # noqa: PTH118 - text
    if not bucket:
        raise ConfigError("a set in a store lies in a bucket, which is not named")
    from swift_loader.stores.client import Client  # noqa: PLC0415 - see above

    if not isinstance(client, Client):
        raise ConfigError(f"a client is what make_client gives, not {client!r:.200}")
    return Where(f"s3://{path}", client)


def store_of(client: AnyClient | str | os.PathLike[str], bucket: str, folder: str, *, make: bool = False) -> Store:
    """The store of that set, asked by this process itself: for who writes."""
    if isinstance(client, Borrowed):
        return BorrowedStore(client.client, _checked("bucket", bucket), _checked("folder", folder) if folder else "")
    url, asked = where(client, bucket, folder)
    if make and asked is not None:
        from swift_loader.stores.buckets import with_bucket  # noqa: PLC0415 - a folder needs none

        return with_bucket(place_of(url), asked)
    return store_at(url, make=make, client=asked)


def _checked(name: str, text: object) -> str:
    if not isinstance(text, str):
        raise ConfigError(f"a {name} is a text, not {text!r}")
    path = text.strip("/")
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path or (name == "bucket" and "/" in path):
        raise ConfigError(f"no {name} is called {text!r}")
    return path


def _of_another(client: Any) -> AnyClient:
    if isinstance(client, FolderClient):
        return client
    if type(client).__module__.partition(".")[0] == "botocore":
        return _of_boto(client)
    if all(callable(getattr(client, call, None)) for call in _CALLS):
        return Borrowed(client)
    from swift_loader.stores.client import Client  # noqa: PLC0415 - as above

    if isinstance(client, Client):
        return client
    raise ConfigError(
        f"make_client takes a server's address, a folder, a client of boto3, or an object with {', '.join(_CALLS)}, "
        f"not {client!r:.200}"
    )


def _of_boto(client: Any) -> Client:
    """The same server and keys, for a client that many processes may use at once."""
    from swift_loader.stores.client import Client  # noqa: PLC0415 - as above
    from swift_loader.stores.credentials import Credentials  # noqa: PLC0415 - as above

    endpoint = client.meta.endpoint_url
    lent = client._request_signer._credentials
    if lent is None:
        credentials = Credentials.none()
    else:
        keys = lent.get_frozen_credentials()
        credentials = Credentials.given(keys.access_key, keys.secret_key, keys.token or None)
    is_amazon = ".amazonaws.com" in endpoint
    return Client(None if is_amazon else endpoint, credentials, region=client.meta.region_name)
