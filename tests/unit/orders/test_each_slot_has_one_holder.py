"""The ledger against a model of it: whatever happens in whatever order, each slot is held by exactly one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from swift_loader.orders.ledger import LANDING, Holder, Ledger, LedgerError
from tests.slow import examples

BUDGET, MOST = 100, 6
MOVES = {
    "filled": (Holder.WORKER, lambda ledger, slot: ledger.filled(slot, 1)),
    "landing": (Holder.POOL, lambda ledger, slot: ledger.landing(slot)),
    "changed": (Holder.BATCH, lambda ledger, slot: ledger.changed(slot, -1)),
    "given_back": (Holder.WORKER, lambda ledger, slot: ledger.given_back(slot)),
    "thrown_away": (Holder.POOL, lambda ledger, slot: ledger.thrown_away(slot)),
}


class SlotsOfOneConsumer(RuleBasedStateMachine):
    """The model: who holds each slot, how large it is, and how many leases of it live."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger(BUDGET, MOST)
        self.holders = {}
        self.sizes = {}
        self.leases = {}
        self.freed = []

    @rule(room=st.integers(0, 60), known=st.sets(st.integers(0, MOST)))
    def take(self, room, known):
        free = [slot for slot, holder in self.holders.items() if holder is Holder.LEDGER]
        fits = not self.holders or sum(self.sizes.values()) + room <= BUDGET
        may_add = len(self.holders) < MOST and fits
        assert self.ledger.has_room(room) == (bool(free) or may_add)
        slot = self.ledger.take(room, known)
        if slot is None:
            assert not free
            assert not may_add
            return
        if free:
            recent = self.freed[-4:][::-1]
            assert slot == next((one for one in recent if one in known), recent[0])
            self.freed.remove(slot)
        else:
            assert slot not in self.holders
            self.sizes[slot] = room
        self.holders[slot] = Holder.WORKER

    def _one(self, data, holder):
        return data.draw(st.sampled_from(sorted(slot for slot, held_by in self.holders.items() if held_by is holder)))

    def _free(self, slot):
        self.holders[slot] = Holder.LEDGER
        self.freed.append(slot)

    @precondition(lambda self: Holder.WORKER in self.holders.values())
    @rule(data=st.data(), nbytes=st.integers(1, 60))
    def filled(self, data, nbytes):
        slot = self._one(data, Holder.WORKER)
        self.ledger.filled(slot, nbytes)
        self.sizes[slot] = nbytes
        self.holders[slot] = Holder.POOL

    @precondition(lambda self: Holder.WORKER in self.holders.values())
    @rule(data=st.data())
    def given_back(self, data):
        slot = self._one(data, Holder.WORKER)
        self.ledger.given_back(slot)
        self._free(slot)

    @precondition(lambda self: Holder.POOL in self.holders.values())
    @rule(data=st.data())
    def thrown_away(self, data):
        slot = self._one(data, Holder.POOL)
        self.ledger.thrown_away(slot)
        self._free(slot)

    @precondition(lambda self: Holder.POOL in self.holders.values())
    @rule(data=st.data(), views=st.integers(0, 3), dropped_early=st.integers(0, 3))
    def landed(self, data, views, dropped_early):
        """A batch is made of a slot; the user may drop views of it before all are made."""
        slot = self._one(data, Holder.POOL)
        self.ledger.landing(slot)
        self.holders[slot] = Holder.BATCH
        for _ in range(min(views, dropped_early)):
            self.ledger.changed(slot, -1)
        self.leases[slot] = views - min(views, dropped_early)
        self.ledger.changed(slot, views - LANDING)
        if self.leases[slot] == 0:
            self._free(slot)

    @precondition(lambda self: Holder.BATCH in self.holders.values())
    @rule(data=st.data())
    def dropped(self, data):
        slot = self._one(data, Holder.BATCH)
        self.ledger.changed(slot, -1)
        self.leases[slot] -= 1
        if self.leases[slot] == 0:
            self._free(slot)

    @precondition(lambda self: bool(self.holders))
    @rule(data=st.data(), move=st.sampled_from(sorted(MOVES)))
    def moved_by_somebody_else(self, data, move):
        holder, act = MOVES[move]
        others = sorted(slot for slot, held_by in self.holders.items() if held_by is not holder)
        if others:
            with pytest.raises(LedgerError):
                act(self.ledger, data.draw(st.sampled_from(others)))

    @invariant()
    def the_books_agree(self):
        for holder in Holder:
            assert self.ledger.held_by(holder) == list(self.holders.values()).count(holder)
        assert self.ledger.nbytes == sum(self.sizes.values())


SlotsOfOneConsumer.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, derandomize=True, deadline=None, database=None
)
test_each_slot_is_held_by_exactly_one = SlotsOfOneConsumer.TestCase


def test_a_lease_let_go_twice_is_an_error():
    ledger = Ledger(BUDGET, MOST)
    slot = ledger.take(1, ())
    ledger.filled(slot, 1)
    ledger.landing(slot)
    with pytest.raises(LedgerError, match="more often"):
        ledger.changed(slot, -LANDING - 1)


def test_a_slot_that_was_lost_is_never_given_again_and_takes_no_room_from_others():
    ledger = Ledger(100, MOST)
    lost = ledger.take(300, set())
    ledger.lost(lost)
    assert ledger.nbytes == 0
    assert ledger.held_by(Holder.NOBODY) == 1
    second = ledger.take(300, {lost})  # more than the budget: again the only one
    assert second not in (lost, None)
    for move in (ledger.given_back, ledger.lost, ledger.thrown_away):
        with pytest.raises(LedgerError, match="is lost"):
            move(lost)
    ledger.given_back(second)
    assert ledger.take(300, {lost}) == second


def test_the_first_slot_is_given_whatever_the_budget():
    ledger = Ledger(10, MOST)
    assert ledger.take(1000, ()) == 0
    assert ledger.take(0, ()) is None


@given(st.lists(st.integers(0, 30), max_size=20))
def test_slots_that_are_asked_for_never_exceed_the_budget(rooms):
    ledger = Ledger(BUDGET, 1000)
    for room in rooms:
        ledger.take(room, ())
    assert ledger.nbytes <= BUDGET
