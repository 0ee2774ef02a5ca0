"""What is written is what is read: each message is one datagram."""

import collections
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_loader.batch.collate import spec_of
from swift_loader.batch.layout import ENCODED, OBJECT
from swift_loader.errors import FailureReport
from swift_loader.plan.runs import Runs
from swift_loader.telemetry import BatchRecord
from swift_loader.wire import messages
from swift_loader.wire.facts import Facts
from swift_loader.wire.messages import Attachment, Cost, Failure, Hello, Order, Parcel
from tests.unit.batch.samples import Pair, examples

u32, u64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
orders = st.builds(Order, u64, u32, u64, u32, u64, st.booleans())
specs = st.sampled_from([None, OBJECT, ENCODED, spec_of({"a": Pair(1, (2.5, "x"))}, 7)])
spans = st.lists(st.tuples(u64, u64), max_size=3)
skipped = st.lists(st.tuples(u64, st.text(max_size=5)), max_size=3)
streams = st.one_of(st.none(), st.binary(max_size=9))
attachments = st.one_of(st.none(), st.builds(Attachment, specs, streams, spans, st.booleans(), skipped))
slowest = st.integers(-1, (1 << 63) - 1)
parcels = st.builds(
    Parcel, u64, u32, u32, u32, u64, st.builds(Cost, u64, u64, u64, u64, u64, slowest, u64, u64, u64, u64), attachments
)


@examples
@given(st.lists(orders, max_size=5))
def test_orders_come_as_they_were_given(some):
    datagram = messages.write_orders(some)
    assert datagram[0] == messages.ORDERS
    assert messages.read_orders(datagram) == some


@examples
@given(parcels)
def test_a_parcel_comes_as_it_was_sent(parcel):
    datagram = messages.write_parcel(parcel)
    assert datagram[0] == messages.PARCEL
    assert messages.read_parcel(datagram) == parcel


@examples
@given(st.lists(parcels, min_size=1, max_size=4), st.data())
def test_parcels_come_together_as_they_were_sent_or_not_at_all(some, data):
    datagram = messages.join_parcels([messages.write_parcel(parcel) for parcel in some])
    assert datagram[0] == messages.PARCELS
    assert messages.read(datagram) == some
    last = len(messages.write_parcel(some[-1]))
    with pytest.raises(messages.Garbled):
        messages.read(datagram[: -data.draw(st.integers(1, last + 3))])


def test_a_record_holds_a_cost_as_it_is():
    assert "-".join(Cost._fields) in "-".join(BatchRecord._fields)


@given(u64)
def test_a_void_order_is_named(seq):
    datagram = messages.write_void(seq)
    assert datagram[0] == messages.VOID
    assert messages.read_void(datagram) == seq


RARE = [
    Hello(7, Facts(100, Runs([60, 40]))),
    Failure(3, FailureReport.of(ValueError("x"), "fetch", 5)),
    ["any", {"thing": 1}],
]


@pytest.mark.parametrize("value", RARE, ids=repr)
def test_a_rare_message_comes_as_it_was_sent(value):
    datagram = messages.write_pickled(messages.HELLO, value)
    assert datagram[0] == messages.HELLO
    assert messages.read_pickled(datagram) == value


def test_the_datagram_of_a_usual_batch_is_small():
    assert len(messages.write_parcel(Parcel(1, 2, 3, 4, 5, Cost(6, 7, 8, 9, 10, 11)))) < 128


def test_a_layout_may_name_classes_that_only_dill_can_send():
    local = collections.namedtuple("Local", ["x"])  # noqa: PYI024 - made where no module names it
    spec = spec_of(local(1), 2)
    parcel = Parcel(1, 0, 0, 2, 0, attachment=Attachment(spec))
    again = messages.read_parcel(messages.write_parcel(parcel))
    assert again.attachment is not None
    assert again.attachment.spec is not None
    assert again.attachment.spec.columns == spec.columns
    assert again.attachment.spec.structure.build(iter([5])).x == 5


WORKER_AND_TRAINER = """
import collections, sys, types
from swift_loader.batch.collate import spec_of
from swift_loader.wire.messages import Attachment, Parcel, read_parcel, write_parcel

Pair = collections.namedtuple("Pair", "left right")
spec = spec_of(Pair(1, 2.5), 4)
main = sys.modules["__main__"]
sys.modules["__main__"] = types.ModuleType("__main__")  # a worker has another one
datagram = write_parcel(Parcel(1, 0, 0, 4, 0, attachment=Attachment(spec)))
sys.modules["__main__"] = main
assert read_parcel(datagram).attachment.spec == spec
print("arrived")
"""


def test_a_layout_may_name_classes_of_main():
    done = subprocess.run(
        [sys.executable, "-c", WORKER_AND_TRAINER], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "arrived", done.stderr
