"""What samples are made of, drawn by hypothesis; and the way from samples to a batch, without a worker in between."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st

from swift_loader.batch.codec import encode
from swift_loader.batch.collate import RowWriter, spec_of
from swift_loader.batch.layout import BatchSpec
from swift_loader.batch.tree import describe
from swift_loader.device.host import HostStage
from swift_loader.device.stage import Cargo
from tests.slow import examples

examples = settings(max_examples=examples(100), derandomize=True, deadline=None, database=None)


class Pair(NamedTuple):
    left: Any
    right: Any


class Typed(NamedTuple):
    image: Any
    label: Any = 0


@dataclass
class Box:
    content: Any
    label: Any = None


@dataclass(frozen=True, slots=True)
class Sealed:
    content: Any


@dataclass
class Checked:
    """Refuses whatever is not one sample."""

    content: Any

    def __post_init__(self):
        raise AssertionError("a batch is no sample")

    @classmethod
    def of(cls, content):
        made = object.__new__(cls)
        made.content = content
        return made


class Named(dict):
    """A dict whose constructor wants something else."""

    def __init__(self, name):
        super().__init__(name=name)


keys = st.one_of(st.text(max_size=4), st.integers(-3, 3), st.booleans(), st.tuples(st.integers(0, 2)))


def structures(leaves, max_leaves=10):
    """Containers of any depth and kind around ``leaves``."""

    def deeper(inner):
        dicts = st.dictionaries(keys, inner, max_size=3)
        return st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            dicts,
            dicts.map(OrderedDict),
            dicts.map(lambda items: defaultdict(list, items)),
            st.tuples(inner, inner).map(lambda both: Pair(*both)),
            st.tuples(inner, inner).map(lambda both: Typed(*both)),
            st.tuples(inner, inner).map(lambda both: Box(*both)),
            inner.map(Sealed),
            inner.map(Checked.of),
        )

    return st.recursive(leaves, deeper, max_leaves=max_leaves)


def collated(samples, *, ragged=False, capacity=None):
    """The batch as the consumer gets it."""
    spec = spec_of(samples[0], capacity or len(samples))
    memory = np.full(spec.nbytes, 0xAB, np.uint8)
    writer = RowWriter(spec, memory, ragged=ragged)
    spec, objects = written(writer, samples)
    if writer.is_apart:
        memory = np.concatenate([memory, np.full(spec.nbytes - len(memory), 0xAB, np.uint8)])
        writer.lay(memory)
    return landed(spec, objects, memory, len(samples))


def written(writer: RowWriter, samples) -> tuple[BatchSpec, list[list[Any]]]:
    """Writes the samples to the rows."""
    writer.begin()
    for row, sample in enumerate(samples):
        writer.write(row, sample)
    return writer.finish()


def landed(spec, objects, memory, rows, stage=None):
    """Lands what was written, in memory that nobody counts the holders of."""
    stream = encode(objects).stream if objects else None

    def hold(shape, dtype, offset):
        return np.ndarray(shape, dtype, memory, offset)

    return (stage or HostStage(None, None, None)).land(Cargo(spec, rows, memory, {}, stream, [], hold))


def same(one, other) -> bool:
    """Whether two batches are of the same structure, types, dtypes, shapes and bits."""
    structure = describe(one)
    if structure != describe(other):
        return False
    leaves = zip(structure.leaves(one), structure.leaves(other), strict=True)
    return all(type(a) is type(b) and (_bits(a) == _bits(b) if is_array(a) else a == b) for a, b in leaves)


def is_array(value) -> bool:
    return isinstance(value, np.ndarray | torch.Tensor)


def _bits(value):
    """Shape, dtype and bytes: what tells apart what ``==`` does not, such as one NaN from another."""
    if isinstance(value, torch.Tensor):
        data = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return tuple(value.shape), value.dtype, data.view(torch.uint8).numpy().tobytes() if data.numel() else b""
    return value.shape, value.dtype, value.tobytes()
