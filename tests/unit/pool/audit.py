"""What the accounts of an exchange must say of each other at any moment: each is kept by other lines of the code.

A slot is ordered, full, leased or free; the ledger says which, and so do the orders, what waits and what was taken.
"""

from __future__ import annotations

from collections import Counter

from swift_loader.orders.exchange import Exchange
from swift_loader.orders.ledger import Holder
from swift_loader.orders.tickets import Full


def audited(exchange: Exchange, books, leased: Counter) -> None:
    """Nothing is missing and nothing is there twice. ``leased``: the slots of arrays that live, with how many each."""
    dispatch = exchange.dispatch
    if dispatch is None:
        return
    _slots_are_held_by_those_who_have_them(exchange, books, leased)
    _bytes_are_those_of_the_slots(exchange)
    stock, waiting = dispatch.stock, dispatch._merge._waiting.values()
    assert stock.ordered_count == sum(len(book.outstanding) for book in books)
    assert stock.ready_count == exchange.ready._queue.qsize()
    assert stock.unmerged_count == len(waiting) == sum(book.unmerged for book in books)
    assert Counter(one.worker for one in waiting) == +Counter({book.number: book.unmerged for book in books})
    assert exchange._serving == {book.number for book in books if book.takes_orders}


def _slots_are_held_by_those_who_have_them(exchange: Exchange, books, leased: Counter) -> None:
    ledger, waiting = exchange._ledger, exchange.dispatch._merge._waiting.values()
    held = {holder: {n for n, entry in ledger._entries.items() if entry.holder is holder} for holder in Holder}
    assert {holder: len(slots) for holder, slots in held.items()} == ledger._counts
    assert sorted(ledger._free) == sorted(held[Holder.LEDGER])
    assert sorted(order.slot for book in books for order in book.outstanding.values()) == sorted(held[Holder.WORKER])
    full = {one.parcel.slot for one in waiting if isinstance(one, Full)}
    assert full <= held[Holder.POOL]
    assert len(held[Holder.POOL]) == len(full) + exchange.ready._queue.qsize()
    on_their_way = Counter()  # what was posted of leases and not yet counted
    for slot, change in exchange.returns.came_home:
        on_their_way[slot] += change
    counted = {slot: ledger._entries[slot].leases + on_their_way[slot] for slot in held[Holder.BATCH]}
    assert {slot: count for slot, count in counted.items() if count} == leased
    assert not held[Holder.NOBODY]


def _bytes_are_those_of_the_slots(exchange: Exchange) -> None:
    entries, shelf = exchange._ledger._entries, exchange._shelf
    assert exchange._ledger.nbytes == sum(entry.nbytes for entry in entries.values())
    assert shelf.nbytes == sum(slot.nbytes for slot in shelf.all())
    for number, entry in entries.items():
        if entry.holder in (Holder.POOL, Holder.BATCH):
            assert entry.nbytes == shelf[number].nbytes
