"""What training on a set in a bucket costs."""

import pytest

from swift_loader.errors import ConfigError
from swift_loader.shards.bill import Training, bill_of

IMAGENET = ([582] * 2200, [64_020_000] * 2200)


def test_an_epoch_of_imagenet():
    bill = bill_of(*IMAGENET, Training(batch=256, consumers=8))
    assert bill.steps == 626
    assert bill.nbytes == pytest.approx(140.8e9, rel=0.001)
    assert bill.requests == 17_600
    assert bill.usd == pytest.approx(0.00704)
    assert bill.usd_elsewhere == pytest.approx(12.68, rel=0.01)
    assert bill.upload_usd == pytest.approx(0.011)
    assert bill.memory_nbytes == pytest.approx(8 * 64 * 1.5 * 8e6, rel=0.01)
    assert 0.1 < bill.first_batch_s < 0.2


def test_nodes_share_what_is_read_and_a_cache_keeps_its_part():
    bill = bill_of(*IMAGENET, Training(consumers=8, nodes=4, cache=70.4e9))
    assert bill.nbytes == pytest.approx(140.8e9 / 4, rel=0.001)
    assert bill.kept == pytest.approx(0.5, rel=0.001)


def test_memory_is_never_more_than_the_node_reads():
    assert bill_of([10], [1000], Training(consumers=8)).memory_nbytes <= 1000


@pytest.mark.parametrize(
    "training", [Training(batch=0), Training(consumers=3, nodes=2), Training(cache=-1), Training(nodes=0)]
)
def test_what_cannot_be_trained_is_refused(training):
    with pytest.raises(ConfigError):
        bill_of(*IMAGENET, training)
