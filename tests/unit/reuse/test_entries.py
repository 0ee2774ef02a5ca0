"""An entry checks itself: what was changed, is half written, or lies in another's place is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.reuse import entry
from swift_loader.reuse.entry import Entry, pack, seed_of, seeds_of, sound, unpack
from swift_loader.reuse.generation import Generations

WORD = st.integers(0, (1 << 64) - 1)
ENTRIES = st.builds(Entry, WORD, WORD, WORD, WORD, st.integers(1, (1 << 64) - 1), WORD, WORD)


def _words(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, np.uint64).reshape(-1, 8)


@given(ENTRIES, WORD)
def test_an_entry_comes_back_one_by_one_and_in_rows(made: Entry, store_id: int):
    raw = pack(made, store_id)
    assert unpack(raw, made.number, store_id) == made
    assert sound(_words(raw), store_id).all()
    assert seeds_of(_words(raw), store_id) == [seed_of(made.number, made.made_for, store_id)]


@given(ENTRIES, WORD)
def test_every_flipped_bit_of_an_entry_is_found(made: Entry, store_id: int):
    raw = pack(made, store_id)
    for bit in range(8 * entry.NBYTES):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        assert unpack(changed, made.number, store_id) is None
        assert not sound(_words(bytes(changed)), store_id).any()


@given(ENTRIES, WORD, st.integers(8, 56))
def test_half_an_entry_over_another_is_none(made: Entry, store_id: int, at: int):
    other = made._replace(made_for=made.made_for ^ 1, digest=made.digest ^ 5)
    torn = pack(made, store_id)[:at] + pack(other, store_id)[at:]
    if torn not in (pack(made, store_id), pack(other, store_id)):
        assert unpack(torn, made.number, store_id) is None


def test_nothing_is_no_entry():
    assert unpack(bytes(64), 0, 7) is None
    assert not sound(_words(bytes(128)), 0).any()


def test_an_entry_of_another_sample_or_store_is_none():
    raw = pack(Entry(3, 0, 64, 10, 64, 1, 99), 7)
    assert unpack(raw, 4, 7) is None
    assert unpack(raw, 3, 9) is None


@given(st.integers(0, 500), st.integers(0, 1000), st.integers(2, 9), st.booleans())
def test_a_generation_begins_at_or_before_the_epoch_and_lasts_to_it(epoch, index, every, spread):
    generations = Generations(every, spread=spread)
    first = generations.made_for(epoch, index)
    assert first <= epoch <= generations.last_of(first)
    assert generations.made_for(first, index) == first
    assert int(np.broadcast_to(generations.all_made_for(epoch, np.array([index])), 1)[0]) == first


@pytest.mark.parametrize("every", [2, 3, 7])
def test_spread_makes_an_equal_part_anew_in_each_epoch_and_all_makes_all_in_one(every: int):
    samples = range(every * 10)
    for epoch in range(1, 3 * every):
        anew = [i for i in samples if Generations(every, spread=True).made_for(epoch, i) == epoch]
        assert len(anew) == 10
        anew = [i for i in samples if Generations(every).made_for(epoch, i) == epoch]
        assert len(anew) == (len(samples) if epoch % every == 0 else 0)


def test_what_never_changes_is_made_for_the_first_epoch():
    assert {Generations().made_for(epoch, 5) for epoch in range(9)} == {0}
    assert Generations().last_of(0) is None
