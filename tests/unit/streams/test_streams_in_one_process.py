"""Datasets, streams and transformers without a server."""

from __future__ import annotations

import pickle
from itertools import islice

import numpy as np
import pytest

from swift_loader.streams import (
    AbstractDataStream,
    DataStream,
    IndexableDataset,
    IterableDataset,
    Mapping,
    SequentialExampleScheme,
    SequentialScheme,
    ShuffledScheme,
    Transformer,
)


class Bare(AbstractDataStream):
    def reset(self): ...
    def close(self): ...
    def next_epoch(self): ...
    def get_epoch_iterator(self, as_dict=False): ...


class Doubling(Transformer):
    def transform_batch(self, batch):
        return tuple(2 * np.asarray(part) for part in batch)


def lists() -> IndexableDataset:
    return IndexableDataset({"features": [[at] * 2 for at in range(5)], "targets": [0, 1, 0, 1, 0]})


def stream(size=2, **settings) -> DataStream:
    return DataStream.default_stream(dataset=lists(), iteration_scheme=SequentialScheme(5, size), **settings)


def test_lists_stay_lists():
    assert list(stream(3).get_epoch_iterator()) == [
        ([[0, 0], [1, 1], [2, 2]], [0, 1, 0]),
        ([[3, 3], [4, 4]], [1, 0]),
    ]


def test_arrays_stay_arrays():
    dataset = IndexableDataset(np.eye(3), 1)
    ((batch,),) = DataStream(dataset, iteration_scheme=SequentialScheme(2, 2)).get_epoch_iterator()
    assert dataset.sources == ("data",)
    assert np.array_equal(batch, np.eye(3)[1:])


def test_every_epoch_is_whole_and_shuffled_ones_differ():
    shuffled = DataStream(lists(), iteration_scheme=ShuffledScheme(5, 2))
    epochs = [[t for f, _ in shuffled.get_epoch_iterator() for (t, _) in f] for _ in range(4)]
    assert all(sorted(epoch) == list(range(5)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_an_epoch_that_is_left_is_not_gone_on_with():
    of_lists = stream()
    next(of_lists.get_epoch_iterator())
    assert len(list(of_lists.get_epoch_iterator())) == 3


def test_an_iterator_that_has_ended_stays_so():
    batches = stream().get_epoch_iterator()
    assert len(list(batches)) == 3
    with pytest.raises(StopIteration):
        next(batches)


def test_batches_are_dicts_where_asked():
    (first, *_) = stream(5).get_epoch_iterator(as_dict=True)
    assert first.keys() == {"features", "targets"}
    assert [len(list(epoch)) for epoch in islice(stream().iterate_epochs(), 3)] == [3, 3, 3]


def test_an_iterable_is_read_from_its_beginning_in_each_epoch():
    of_rows = DataStream(IterableDataset(np.eye(2)))
    assert [len(list(of_rows.get_epoch_iterator())) for _ in range(2)] == [2, 2]
    next(of_rows.get_epoch_iterator())
    of_rows.reset()
    assert len(list(of_rows.get_epoch_iterator())) == 2


def test_a_transformer_takes_from_the_stream_it_wraps():
    doubled = Doubling(stream(5))
    assert doubled.sources == ("features", "targets")
    assert [[part.tolist() for part in batch] for batch in doubled.get_epoch_iterator()] == [
        [[[0, 0], [2, 2], [4, 4], [6, 6], [8, 8]], [0, 2, 0, 2, 0]]
    ]
    with pytest.raises(ValueError, match="takes no requests"):
        doubled.get_data([0])
    with pytest.raises(NotImplementedError, match="no transform_example"):
        next(Doubling(lists().get_example_stream()).get_epoch_iterator())


def test_a_mapping_adds_sources():
    counted = Mapping(stream(5), lambda batch: (len(batch[0]),), add_sources=("count",))
    assert counted.sources == ("features", "targets", "count")
    assert [batch[2] for batch in counted.get_epoch_iterator()] == [5]


def test_a_dataset_says_what_it_wants_around_its_stream():
    class Wanting(IndexableDataset):
        default_transformers = ((Doubling, (), {}),)

    made = DataStream.default_stream(Wanting([1, 2]), iteration_scheme=SequentialScheme(2, 2))
    assert isinstance(made, Doubling)


def test_whether_it_gives_examples_is_the_schemes_to_say():
    assert DataStream(lists(), iteration_scheme=SequentialExampleScheme(2)).produces_examples
    assert not stream().produces_examples
    with pytest.raises(ValueError, match="set produces_examples"):
        _ = Bare().produces_examples
    with pytest.raises(ValueError, match="cannot be set beside it"):
        Bare(SequentialExampleScheme(2)).produces_examples = True


def test_sources_and_labels_can_be_set():
    labels = {"data": ("batch", "features")}
    rows = IterableDataset(np.eye(2), axis_labels=labels)
    of_rows = DataStream(rows)
    assert of_rows.axis_labels == labels
    of_rows.sources = ("features",)
    assert of_rows.sources == ("features",)
    assert DataStream(IterableDataset(np.eye(2))).axis_labels is None


def test_a_dataset_gives_some_of_its_sources():
    dataset = IndexableDataset({"a": [1, 2], "b": [3, 4]}, sources=("b",))
    assert dataset.get_data(request=[1]) == ([4],)
    assert dataset.b == [3, 4]
    assert dataset.num_examples == 2
    assert pickle.loads(pickle.dumps(dataset)).b == [3, 4]
    with pytest.raises(AttributeError):
        _ = dataset.a


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: IndexableDataset({"a": [1], "b": [1, 2]}), "different lengths"),
        (lambda: IndexableDataset({"a": [1]}, sources=("c",)), "were asked for"),
        (lambda: IndexableDataset([1]).get_data(), "asked for indices"),
        (lambda: IterableDataset(3), "not: int"),
        (lambda: IterableDataset([1]).get_data(iter([1]), [0]), "takes no requests"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
