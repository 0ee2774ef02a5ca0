"""How a bucket is asked: where its server is, with which keys, how long. For `obstore`, which hands its stores in."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_loader.errors import ConfigError

if TYPE_CHECKING:
    from swift_loader.shards.url import Place
    from swift_loader.stores.client import Client
    from swift_loader.stores.credentials import Keys

_TIMES = {"timeout": "60s", "connect_timeout": "3s", "read_timeout": "10s"}
_RETRIES = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 3},
}


def made(stores: Any, place: Place, client: Client, *, retries: bool) -> Any:
    """The store of a place, of the kinds that ``stores`` has."""
    how: dict[str, Any] = {
        "retry_config": _RETRIES if retries else {**_RETRIES, "max_retries": 0},
        "client_options": _client_options(place, client),
    }
    if place.scheme in ("http", "https"):
        return stores.HTTPStore.from_url(f"{place.scheme}://{place.host}/{place.path}", **how)
    settings = {"s3": _s3, "gs": _gs, "az": _az}[place.scheme](client)
    kind = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[place.scheme]
    return kind(place.host, prefix=place.path or None, **settings, **how)


def _s3(client: Client) -> dict[str, Any]:
    config: dict[str, Any] = {"region": client.region, "virtual_hosted_style_request": client.virtual_host}
    if client.endpoint is not None:
        config["endpoint"] = client.endpoint
    if client.credentials.source == "none":
        return {"config": {**config, "skip_signature": True}}
    keys = client.credentials.keys()
    if keys is None:
        return {"config": config}
    said = {
        "access_key_id": keys.access.reveal(),
        "secret_access_key": keys.secret.reveal(),
        "token": keys.token.reveal() if keys.token else None,
        "expires_at": None,
    }
    # Not as settings: those would be shown and pickled with the store, and mixed with what the environment says.
    return {"config": config, "credential_provider": lambda: said}


def _gs(client: Client) -> dict[str, Any]:
    given = _given(client)
    if client.credentials.source == "none":
        return {"config": {"skip_signature": True}}
    return {"config": {"service_account_key": given.secret.reveal()} if given else {}}


def _az(client: Client) -> dict[str, Any]:
    given = _given(client)
    config = {"account_name": given.access.reveal(), "account_key": given.secret.reveal()} if given else {}
    if client.endpoint is not None:
        config["endpoint"] = client.endpoint
    return {"config": config}


def _given(client: Client) -> Keys | None:
    credentials = client.credentials
    return credentials.keys() if credentials.source == "given" else None


def _client_options(place: Place, client: Client) -> dict[str, Any]:
    is_plain = place.scheme == "http" or (client.endpoint or "").startswith("http://")
    options: dict[str, Any] = {**_TIMES, **({"allow_http": True} if is_plain else {})}
    if client.certificates is not None:
        try:
            options["root_certificate"] = Path(client.certificates).read_bytes()
        except OSError as error:
            raise ConfigError(f"certificates: {client.certificates} cannot be read: {error.strerror}") from error
    return options
