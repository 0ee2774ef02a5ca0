"""Shards that are full go to their store: several at a time where it is far away, and are told of in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from swift_loader.errors import ShardError
from swift_loader.shards.catalog import Shard
from swift_loader.shards.fields import Field
from swift_loader.shards.opening import describe
from swift_loader.shards.store import Draft, Store

#: Shards on their way take about so much memory at most, or one does.
_UNDER_WAY_NBYTES = 400 << 20


class _Sent(NamedTuple):
    draft: Draft
    shard: Shard
    fields: Sequence[Field]
    published: Future[None]


class Sending:
    """Publishes drafts of shards.

    Args:
        store: Where they go.
        shard_nbytes: What a shard takes at most.
        on_shard: Called with each shard that is there, in the order in which they were sent, and its fields.
    """

    def __init__(self, store: Store, shard_nbytes: int, on_shard: Callable[[Shard, Sequence[Field]], None]) -> None:
        self._store, self._on_shard = store, on_shard
        self._most = min(store.at_once, max(1, _UNDER_WAY_NBYTES // shard_nbytes))
        is_far = store.at_once > 1
        self._threads = ThreadPoolExecutor(self._most, thread_name_prefix="swift-upload") if is_far else None
        self._under_way: deque[_Sent] = deque()

    def send(self, draft: Draft, shard: Shard, fields: Sequence[Field]) -> None:
        """Has a shard published, sooner or later; waits while enough of them are on their way.

        Raises:
            ShardError: if there is another shard of that name, or of one that was sent before.
        """
        if self._threads is None:
            self._publish(draft, shard)
            self._on_shard(shard, fields)
            return
        try:
            while len(self._under_way) >= self._most:
                self._arrived()
        except BaseException:
            draft.discard()
            raise
        self._under_way.append(_Sent(draft, shard, fields, self._threads.submit(self._publish, draft, shard)))

    def finish(self) -> None:
        """Returns when all that was sent is there."""
        while self._under_way:
            self._arrived()
        if self._threads is not None:
            self._threads.shutdown()

    def abandon(self) -> None:
        """What is not on its way yet stays here; what is comes to its end, whole or not at all."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for sent in self._under_way:
            sent.draft.discard()
        self._under_way.clear()

    def _arrived(self) -> None:
        sent = self._under_way.popleft()
        sent.published.result()
        self._on_shard(sent.shard, sent.fields)

    def _publish(self, draft: Draft, shard: Shard) -> None:
        try:
            draft.publish()
        except FileExistsError:
            there = describe(self._store, shard.name, self._store.nbytes(shard.name))
            if there.shard != shard:
                text = "another writer has put another shard there"
                raise ShardError(text).within(shard.name, self._store.where) from None
        finally:
            draft.discard()
