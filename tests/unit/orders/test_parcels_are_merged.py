"""Parcels of many workers become one stream: in step order, or as they come within an epoch."""

from hypothesis import given
from hypothesis import strategies as st

from swift_loader.orders.merge import AsTheyCome, InOrder
from tests.unit.batch.samples import examples

epochs = st.lists(st.integers(0, 6), min_size=1, max_size=4)


def _numbered(merge, counts, first=1):
    """Tells the merge of epochs; gives back the tickets of each."""
    tickets = []
    for count in counts:
        merge.epoch(first, count)
        tickets.append(list(range(first, first + count)))
        first += count
    return tickets


@examples
@given(st.integers(0, 12).flatmap(lambda count: st.permutations(range(1, count + 1))))
def test_in_order_each_comes_once_and_as_early_as_it_may(arrivals):
    merge, out, come = InOrder(), [], set()
    for seq in arrivals:
        come.add(seq)
        out += merge.add(seq, str(seq))
        # All that could be given out was: up to the first that is missing.
        assert out == [str(seq) for seq in range(1, merge.next_seq)]
        assert merge.next_seq not in come
    assert len(out) == len(arrivals)


@examples
@given(epochs, st.data())
def test_as_they_come_each_comes_once_and_waits_only_for_earlier_epochs(counts, data):
    merge = AsTheyCome()
    tickets = _numbered(merge, counts)
    arrivals = data.draw(st.permutations([seq for epoch in tickets for seq in epoch]))
    out, come = [], []
    for seq in arrivals:
        come.append(seq)
        out += merge.add(seq, seq)
        may_come = []
        for epoch in tickets:
            may_come += [one for one in come if one in epoch]
            if not set(epoch) <= set(come):
                break
        assert out == may_come
        assert set(range(1, merge.next_seq)) <= set(out)
        assert merge.next_seq not in out
    assert sorted(out) == sorted(arrivals)


@examples
@given(st.sampled_from([InOrder, AsTheyCome]), epochs, st.data())
def test_a_restart_gives_back_what_waited_and_begins_anew(kind, counts, data):
    merge = kind()
    tickets = [seq for epoch in _numbered(merge, counts) for seq in epoch]
    arrivals = data.draw(st.permutations(tickets))
    arrivals = arrivals[: data.draw(st.integers(0, len(arrivals)))]
    out = [one for seq in arrivals for one in merge.add(seq, seq)]
    first = len(tickets) + 1
    void = merge.restart(first)
    assert sorted(out + void) == sorted(arrivals)
    assert merge.next_seq == first
    again = [seq for epoch in _numbered(merge, counts, first) for seq in epoch]
    assert [one for seq in again for one in merge.add(seq, seq)] == again


def test_a_parcel_of_the_next_epoch_waits_until_this_one_is_whole():
    merge = AsTheyCome()
    _numbered(merge, [2, 2])
    assert merge.add(4, "d") == []
    assert merge.add(2, "b") == ["b"]
    assert merge.add(3, "c") == []
    assert merge.add(1, "a") == ["a", "d", "c"]
