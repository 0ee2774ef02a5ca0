"""What the consumer knows of one worker."""

import pytest

from swift_loader.orders.book import Book
from swift_loader.orders.stock import Stock
from swift_loader.pool.line import Line
from swift_loader.pool.policy import Event, Instruction
from swift_loader.pool.view import View
from swift_loader.settings.loader import LoaderConfig
from swift_loader.wire import messages
from swift_loader.wire.channel import SocketChannel
from swift_loader.wire.messages import Order
from swift_loader.wire.page import BUILDS, FETCHES, Cell
from tests.unit.orders.simulated import Silent


class Process:
    """A process that can only be killed."""

    pid = 4711

    def __init__(self):
        self.kills = self.asks = 0
        self.stopped = False

    def kill(self):
        self.kills += 1

    def ask(self):
        self.asks += 1

    def is_stopped(self):
        return self.stopped

    def close(self):
        pass


@pytest.fixture
def line():
    cell = Cell(memoryview(bytearray(64)).cast("q"))
    return Line("swift-worker-c0w3", cell, 4.0, Book(3, cell, Silent()))


def _connected(line):
    ours, theirs = SocketChannel.pair()
    line.connect(Process(), ours)
    return SocketChannel(theirs, blocking=True)


def _order(line, seq):
    line.book.outstanding[seq] = Order(seq, 0, seq, 0, 0, False)
    return line.book.outstanding[seq]


@pytest.mark.parametrize(("ns", "depth"), [(0, 0), (100, 10), (4_000_000, 5), (19_000_000, 1), (10**12, 1)])
def test_orders_of_about_a_fiftieth_of_a_second_wait(line, ns, depth):
    line.book.took(ns)
    assert line.book.queue_depth(10, batch_nbytes=1000) == depth


@pytest.mark.parametrize(("ns", "depth"), [(0, 4), (100, 44), (4_000_000, 24), (19_000_000, 8), (10**12, 5)])
def test_a_line_that_stands_for_four_workers_has_orders_for_all_of_them(ns, depth):
    book = Book(0, Cell(memoryview(bytearray(64)).cast("q")), Silent(), width=4)
    stock = Stock(LoaderConfig.parse(1, 1, 4, True, {}))
    if ns:
        book.took(ns)
    assert stock.depth(book) == depth
    book.outstanding[5] = Order(5, 0, 5, 0, 0, False)
    assert book.in_hand() is None  # none of its batches is to blame when it ends


@pytest.mark.parametrize(("transit_ns", "depth"), [(0, 4), (10_000_000, 8)])
def test_where_batches_have_a_way_to_go_an_order_waits_for_each_worker_however_large_they_are(transit_ns, depth):
    book = Book(0, Cell(memoryview(bytearray(64)).cast("q")), Silent(), width=4)
    stock = Stock(LoaderConfig.parse(1, 1, 4, True, {}))
    book.took(100_000_000, transit_ns)
    stock.made_by(book)
    stock.grew_to(40 << 20)
    assert stock.is_short
    assert stock.depth(book) == depth
    stock.ordered_count = depth - 1
    assert not stock.is_full(book, leased_count=0)


@pytest.mark.parametrize(("ns", "nbytes", "given", "waiting"), [
    (50_000, 16_000, {}, 32),
    (150_000, 16_000, {}, 20),
    (3_000_000, 16_000, {}, 6),
    (50_000, 200_000, {}, 20),
    (50_000, 1 << 20, {}, 10),
    (50_000, 16_000, {"message_queue_size": 10}, 10),
])  # fmt: skip
def test_more_orders_wait_where_batches_are_quick_and_small_and_nobody_has_said_how_many(
    line, ns, nbytes, given, waiting
):
    stock = Stock(LoaderConfig.parse(1, 1, 2, True, given))
    line.book.took(ns)
    stock.grew_to(nbytes)
    assert stock.depth(line.book) == 1 + waiting


@pytest.mark.parametrize(("nbytes", "depth"), [(0, 10), (1 << 20, 10), (20 << 20, 3), (40 << 20, 1), (1 << 32, 1)])
def test_waiting_orders_do_not_reserve_much_memory(line, nbytes, depth):
    line.book.took(1000)
    assert line.book.queue_depth(10, batch_nbytes=nbytes) == depth


def test_the_speed_is_that_of_the_last_few_batches(line):
    for _ in range(50):
        line.book.took(1_000_000)
    assert not line.book.is_slow
    line.book.took(30_000_000)
    assert not line.book.is_slow
    for _ in range(20):
        line.book.took(30_000_000)
    assert line.book.is_slow


def test_the_order_in_hand_is_the_one_that_the_worker_names(line):
    _order(line, 5), _order(line, 6)
    assert line.book.in_hand().seq == 5
    line.cell.enter(FETCHES, 6)
    assert line.book.in_hand().seq == 6


def test_a_worker_that_names_what_was_answered_is_at_the_oldest(line):
    _order(line, 5), _order(line, 6)
    line.cell.enter(FETCHES, 4)
    assert line.book.in_hand().seq == 5


def test_with_no_order_out_nothing_is_in_hand(line):
    line.cell.enter(FETCHES, 4)
    assert line.book.in_hand() is None


def test_a_replacement_knows_no_slots_and_no_layouts(line):
    worker = _connected(line)
    book = line.book
    book.known.add(1)
    book.specs[1] = object()
    line.greet()
    line.policy.happened(Event.DIED)
    line.disconnect()
    book.close_account()
    assert (line.process, line.channel, book.takes_orders) == (None, None, False)
    again = _connected(line)
    assert (book.known, book.specs, book.takes_orders, line.policy.births) == (set(), {}, False, 1)
    for end in (worker, again, line):
        end.close() if end is not line else line.disconnect()


def test_sending_to_nobody_or_to_the_dead_is_no_error(line):
    line.retire()
    worker = _connected(line)
    line.retire()
    assert worker.receive() == (bytes((messages.RETIRE,)), [])
    worker.close()
    line.retire()
    line.disconnect()
    line.retire()


def test_one_that_lives_and_cannot_be_sent_to_is_killed_at_once_with_the_reason(line):
    worker = _connected(line)
    line.greet()
    line.send(b"orders", [line.channel.fileno(), -1])  # as where too many descriptors are on their way
    assert (line.process.kills, line.is_cut_off, line.book.takes_orders) == (1, True, False)
    assert "could not be sent its orders ([Errno 9]" in line.killed_for
    line.send(b"orders", [-1])
    line.retire()
    assert line.process.kills == 1
    line.policy.happened(Event.KILLED)
    line.disconnect()
    worker.close()
    worker = _connected(line)
    assert (line.is_cut_off, line.is_leaving, line.killed_for) == (False, False, "")
    line.disconnect()
    worker.close()


def test_a_worker_that_does_not_read_is_cut_off(line):
    worker = _connected(line)
    while line.channel.send(bytes(1000)):
        pass
    line.send(bytes(1000))
    assert (line.process.kills, line.is_cut_off, line.book.takes_orders) == (1, True, False)
    assert line.killed_for == "was killed because it does not read its orders: 1000 bytes found no room"
    worker.close()
    line.disconnect()


def test_one_that_has_not_begun_to_answer_is_told_of_and_not_asked_since_the_question_would_kill_it(line):
    line.prepare()
    worker = _connected(line)
    assert [line.look(1.0) for _ in range(4)].count(Instruction.WARN) == 1
    assert line.process.asks == 0
    line.cell.enter(BUILDS)
    assert [line.look(1.0) for _ in range(4)].count(Instruction.WARN) == 1
    assert line.process.asks == 1
    worker.close()
    line.disconnect()


def test_one_that_was_killed_takes_no_orders_even_if_it_still_greets(line):
    worker = _connected(line)
    line.process.stopped = True
    assert Instruction.KILL in [line.look(1.0) for _ in range(3)]
    line.greet()
    assert not line.book.takes_orders
    worker.close()
    line.disconnect()


def test_a_worker_that_stays_at_one_place_is_asked_where_and_then_killed_each_once(line):
    worker = _connected(line)
    process = line.process
    line.greet()
    _order(line, 5)
    line.cell.enter(FETCHES, 5)
    for index in range(20):
        line.cell.at(index, index)
        line.look(1.0)
    assert (process.asks, process.kills) == (0, 0)
    for _ in range(3):
        line.look(1.0)
    assert (process.asks, process.kills) == (1, 0)
    for _ in range(5):
        line.look(1.0)
    assert (process.asks, process.kills) == (1, 1)
    assert line.killed_for == "made no progress for 4.0 s"
    worker.close()
    line.disconnect()


def test_one_that_leaves_and_hangs_is_killed_and_still_known_to_have_left(line):
    worker = _connected(line)
    line.greet()
    line.takes_leave()
    assert Instruction.KILL in [line.look(1.0) for _ in range(6)]
    assert line.is_leaving
    assert "made no progress" in line.killed_for
    worker.close()
    line.disconnect()


def test_a_stopped_worker_is_killed_soon(line):
    worker = _connected(line)
    process = line.process
    line.greet()
    _order(line, 5)
    process.stopped = True
    line.look(0.5)
    line.look(0.5)
    assert process.kills == 1
    assert "was stopped" in line.killed_for
    worker.close()
    line.disconnect()


def test_a_worker_that_waits_for_orders_is_left_alone(line):
    worker = _connected(line)
    process = line.process
    line.greet()
    process.stopped = True
    for _ in range(10):
        line.look(1.0)
    assert process.kills == 0
    worker.close()
    line.disconnect()


def test_only_who_should_get_on_with_something_is_shown_as_standing_still(line):
    def shown():
        (worker,) = View([line], None, 3).workers()
        return worker.pid, worker.ordered, worker.still_s

    line.process = Process()
    line.policy.happened(Event.LAUNCHED)
    line.look(1.0), line.look(2.04)
    assert shown() == (4711, 0, 2.0)  # it builds its dataset
    line.greet()
    _order(line, 5)
    line.cell.enter(FETCHES, 5)
    line.look(1.0), line.look(1.5)
    assert shown() == (4711, 1, 1.5)
    line.book.outstanding.clear()  # answered, and nobody has looked since
    assert shown() == (4711, 0, 0.0)
