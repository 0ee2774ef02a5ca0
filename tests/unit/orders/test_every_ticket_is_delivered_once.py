"""The dispatch among workers that die, users that hold their batches, and orders that are taken back.

Whatever happens in whatever order: each ticket is in one place, each slot has one holder, deliveries come in order of
steps, and the lowest unfinished ticket is delivered as soon as all do what they can.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.slow import examples
from tests.unit.orders.simulated import FAST_NS, SLOW_NS, World

which = st.integers(0, 3)
LARGE, VERY_SLOW_NS = 40 << 20, 200_000_000


class Pool(RuleBasedStateMachine):
    """Anything that may happen to a pool."""

    @initialize(
        counts=st.lists(st.integers(1, 5), min_size=1, max_size=3),
        workers=st.integers(1, 4),
        slots=st.integers(1, 8),
        ready=st.integers(1, 4),
        queued=st.integers(1, 4),
        unmerged=st.integers(0, 3),
        in_order=st.booleans(),
        speeds=st.lists(st.sampled_from([FAST_NS, SLOW_NS, VERY_SLOW_NS]), min_size=4, max_size=4),
    )
    def begin(self, counts, workers, slots, ready, queued, unmerged, in_order, speeds):
        # With 4, nobody has asked for a stock, and batches are large.
        asked = {"data_queue_size": ready} if ready < 4 else {"slot_nbytes": LARGE}
        self.world = World(
            counts, slots, workers=workers, message_queue_size=queued, max_buffer_size=unmerged, in_order=in_order,
            max_attempts=2, **asked,
        )  # fmt: skip
        for worker, ns in zip(self.world.workers, speeds, strict=False):
            worker.book.took(ns)
            self.world.start(worker)

    def _worker(self, number):
        return self.world.workers[number % len(self.world.workers)]

    @rule(number=which)
    def feed(self, number):
        self.world.feed(self._worker(number))

    @rule(number=which)
    def begin_order(self, number):
        self.world.begin(self._worker(number))

    @rule(number=which, ns=st.sampled_from([FAST_NS, SLOW_NS, VERY_SLOW_NS]), grows=st.booleans())
    def finish(self, number, ns, grows):
        self.world.finish(self._worker(number), ns=ns, grows=grows)

    @rule(number=which, how=st.sampled_from(["failure", "void"]))
    def finish_empty(self, number, how):
        worker = self._worker(number)
        order = worker.in_hand
        # It says "void" only where the order was taken back: it looks before each sample.
        taken_back = order is not None and self.world.words[order.slot] != order.seq
        if taken_back or how == "failure":
            self.world.finish(worker, how)

    @rule(number=which)
    def read(self, number):
        self.world.read(self._worker(number))

    @rule(number=which, times=st.integers(1, 6))
    def work(self, number, times):
        """All of the above at once, so that much gets done."""
        worker = self._worker(number)
        for act in (self.world.feed, self.world.begin, self.world.finish, self.world.read) * times:
            act(worker)

    @rule(number=which)
    def take_in_hand(self, number):
        self.world.feed(self._worker(number))
        self.world.begin(self._worker(number))

    @rule(number=which, times=st.integers(1, 6))
    def work_while_one_is_slow(self, number, times):
        """The others come as far as they may without it, and then take over what waits behind it."""
        self.take_in_hand(number)
        for other in range(len(self.world.workers)):
            if self._worker(other) is not self._worker(number):
                self.work(other, times)

    @rule(number=which)
    def die(self, number):
        self.world.die(self._worker(number))

    @rule(number=which)
    def replace(self, number):
        if not self._worker(number).alive:
            self.world.start(self._worker(number))

    @rule(number=which)
    def die_of_an_order_and_be_replaced(self, number):
        self.take_in_hand(number)
        self.die(number)
        self.replace(number)

    @rule(views=st.integers(0, 2))
    def take(self, views):
        self.world.take(views)

    @rule()
    def wait(self):
        """The consumer does nothing else: whoever has waited for it to drop a batch is fed."""
        self.world.dispatch.homecoming.is_awaited = True
        for number in range(len(self.world.workers)):
            self.world.feed(self._worker(number))
        self.world.dispatch.homecoming.is_awaited = False

    @precondition(lambda self: bool(self.world.held))
    @rule(position=which)
    def drop(self, position):
        self.world.drop(position)

    @rule(epoch=st.integers(0, 5), data=st.data())
    def restart(self, epoch, data):
        step = data.draw(st.integers(0, self.world.plan.step_count(epoch, 0) - 1))
        self.world.restart(epoch, step)

    @rule()
    def settle(self):
        """With no more deaths, there is a batch to take: or the user holds all slots, and is told so."""
        self.world.settle()
        if self.world.ready:
            return
        assert self.world.held
        assert self.world.dispatch.starves_for_slots()
        while self.world.held:
            self.world.drop()
        self.world.settle()
        assert self.world.ready

    @invariant()
    def the_books_agree(self):
        if hasattr(self, "world"):
            self.world.check_books()

    @invariant()
    def nobody_starves_while_there_is_a_slot(self):
        if hasattr(self, "world") and self.world.ledger.has_room(self.world.dispatch.stock.largest_slot):
            assert not self.world.dispatch.starves_for_slots()

    def teardown(self):
        if hasattr(self, "world"):
            self.settle()


Pool.TestCase.settings = settings(
    max_examples=examples(100), stateful_step_count=50, derandomize=True, deadline=None, database=None
)
test_every_ticket_is_delivered_once_and_none_waits_for_ever = Pool.TestCase
