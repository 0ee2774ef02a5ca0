"""Each order is answered once with its batch, whoever asks and goes; a batch that several ask for is made once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from swift_loader.orders.tickets import Full, Ticket
from swift_loader.serving.larder import Ask, Larder, Patron
from swift_loader.wire.messages import Cost, Parcel
from tests.slow import examples

NBYTES = 1000


class Server:
    """A larder, and workers that make what they are asked for, oldest first."""

    def __init__(self, slots: int = 64, width: int = 2) -> None:
        self.larder = Larder(width, slots * NBYTES, 4096)
        self.asked: list[tuple[int, int]] = []
        self.made: Counter[tuple[int, int]] = Counter()
        self.answers: dict[Patron, list[tuple[Ask, Any]]] = {}
        self.seq = 0

    def ask(self, patron: Patron, step: int, epoch: int = 0) -> Ask:
        self.seq += 1
        ask = Ask(self.seq, (epoch, step), 0)
        self.larder.asks(patron, ask)
        self.asked += self.larder.to_make()
        return ask

    def make(self) -> None:
        if self.asked:
            epoch, step = self.asked.pop(0)
            self.made[epoch, step] += 1
            parcel = Parcel(1, 0, 0, 8, NBYTES, Cost(fetch_ns=1_000_000))
            self.larder.came(Full(Ticket(1, epoch, step), parcel, 0, 0))
            self.asked += self.larder.to_make()

    def send(self, patron: Patron) -> None:
        answer = self.larder.answered(patron)
        if answer is not None:
            self.answers.setdefault(patron, []).append(answer)
        self.asked += self.larder.to_make()

    def settle(self, *patrons: Patron) -> None:
        for _ in range(10_000):
            if not self.asked and not any(patron.open_count for patron in patrons):
                return
            self.make()
            for patron in patrons:
                self.send(patron)
        raise AssertionError("somebody is never answered")


def test_jobs_side_by_side_share_and_one_that_is_far_behind_misses_nothing():
    server, (quick, behind, late) = Server(slots=400), [Patron() for _ in range(3)]
    server.ask(behind, 0)
    for step in range(50):
        server.ask(quick, step)
    server.settle(quick)
    for step in range(1, 50):
        server.ask(behind, step)
    server.settle(behind)
    assert set(server.made.values()) == {1}
    for step in range(50):
        server.ask(late, step)
    server.settle(late)  # others have gone on: made again, and not missed
    for patron in (quick, behind, late):
        given = sorted((ask.key, delivery.ticket[1:]) for ask, delivery in server.answers[patron])
        assert given == [((0, step), (0, step)) for step in range(50)]


def test_one_who_takes_nothing_holds_no_more_than_its_share_of_memory_and_others_go_on():
    server, stopped, quick = Server(slots=16), Patron(), Patron()
    server.ask(quick, 0)
    server.settle(quick)
    for step in range(40):
        server.ask(stopped, 100 + step)
    for _ in range(100):
        server.make()
    assert len(stopped.outbox) <= 12
    for step in range(1, 40):
        server.ask(quick, step)
    for _ in range(1000):
        server.make()
        server.send(quick)
    assert len(server.answers[quick]) == 40
    assert len(stopped.outbox) <= 12


def test_who_asks_for_much_gets_no_more_of_the_workers_than_others():
    server, greedy, modest = Server(slots=4000), Patron(), Patron()
    for step in range(1000):
        server.ask(greedy, step)
    server.ask(modest, 5000)
    made_before = 0
    while not modest.outbox:
        server.make()
        made_before += 1
    assert made_before <= 8


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.integers(4, 60), st.integers(1, 4))
def test_every_order_is_answered_once_whatever_happens(data, slots, width):
    server, patrons = Server(slots, width), [Patron() for _ in range(3)]
    asks: dict[Patron, list[Ask]] = {patron: [] for patron in patrons}
    for _ in range(data.draw(st.integers(0, 60))):
        at = data.draw(st.integers(0, 2))
        patron, does = patrons[at], data.draw(st.sampled_from(["ask", "ask", "make", "send", "cancel", "go"]))
        if does == "ask":
            asks[patron].append(server.ask(patron, data.draw(st.integers(0, 12))))
        elif does == "make":
            server.make()
        elif does == "send":
            server.send(patron)
        elif does == "cancel" and asks[patron]:
            server.larder.cancels(patron, {data.draw(st.sampled_from(asks[patron])).seq})
        elif does == "go":
            server.larder.goes(patron)
            server.answers.pop(patron, None)
            patrons[at] = Patron()
            asks[patrons[at]] = []
            server.asked += server.larder.to_make()
    server.settle(*patrons)
    for patron in patrons:
        answers = server.answers.get(patron, [])
        assert sorted(ask.seq for ask, _ in answers) == [ask.seq for ask in asks[patron]]
        assert all(given is None or given.ticket[1:] == ask.key for ask, given in answers)
