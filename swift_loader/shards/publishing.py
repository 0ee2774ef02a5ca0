"""A catalog is published: under the number of its generation, which makes it be there, and as `index.swift`."""

from __future__ import annotations

from swift_loader.errors import ShardError
from swift_loader.shards import catalog as catalogs
from swift_loader.shards.store import Store


def publish(store: Store, generation: int, data: bytes) -> None:
    """Writes a generation. Called again with the same bytes, it writes what an earlier call had no time for.

    Raises:
        ShardError: if another writer was first with that generation.
    """
    name = catalogs.generation_name(generation)
    draft = store.draft(name)
    try:
        draft.write([data])
        draft.publish()
    except FileExistsError:
        if bytes(store.whole(name)) != data:
            raise ShardError("another writer has just made this generation").within(name, store.where) from None
    finally:
        draft.discard()
    store.replace(catalogs.NAME, data)
