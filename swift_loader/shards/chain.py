"""Stages of a stream of samples, as webdataset's users know them: what each does to what came before it.

Knows of no set, and of no epoch.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from swift_loader.errors import ConfigError
from swift_loader.settings.checks import whole
from swift_loader.shards import stages
from swift_loader.shards.columns import in_columns
from swift_loader.shards.course import WHOLE, Course
from swift_loader.shards.decode import Decoding
from swift_loader.shards.flow import Batching, Each, Flow, Mix, Select, Some, Then, Unbatch
from swift_loader.shards.stages import Handler, Stage, functions_of, handled


@dataclass(frozen=True)
class Links:
    """What is done to samples, in order."""

    samples: tuple[Stage, ...] = ()
    """To each sample."""
    batching: Batching | None = None
    batches: tuple[Stage, ...] = ()
    """To each batch."""
    course: Course = WHOLE
    flows: tuple[Flow, ...] = ()
    """To what comes of all that."""
    length: int | None = None
    """What was said of it."""


class Chain(ABC):
    """What has stages. Each method gives another chain, with one more; this one stays as it is."""

    _links: Links

    @abstractmethod
    def _with(self, links: Links) -> Self:
        """Another one, with these stages."""

    def decode(self, *how: Any, only: Sequence[str] | None = None, handler: Handler | None = None) -> Self:
        """Bytes become values: images as one word says (``"pil"``, ``"rgb8"``, ``"torchrgb"``, ...), others by name.

        A function is called with ``".jpg"`` and the bytes, and gives None where it is not for it.
        """
        words = [one for one in how if isinstance(one, str)]
        functions: Any = functions_of("decode", [one for one in how if not isinstance(one, str)])
        if len(words) > 1:
            raise ConfigError(f"decode takes one word for images, not {words}")
        chosen = None if only is None else frozenset([only] if isinstance(only, str) else only)
        stage = stages.Decode(Decoding(words[0] if words else None), functions, chosen)
        return self._stage(handled(stage, handler), of_samples="decode")

    def to_tuple(
        self, *names: str, missing_is_error: bool = True, none_is_error: bool = True, handler: Handler | None = None
    ) -> Self:
        """Fields become a tuple; ``"jpg;png"`` is the first of these that a sample has."""
        given = tuple(names[0].split()) if len(names) == 1 else names
        if not given or set(map(type, given)) != {str} or "" in given:
            raise ConfigError(f'to_tuple takes names of fields, such as "jpg;png", "cls", not {names!r}')
        return self._stage(
            handled(stages.ToTuple(given, missing_is_error, none_is_error), handler), of_samples="to_tuple"
        )

    def map(self, function: Stage, handler: Handler | None = None) -> Self:
        """A function of each sample; behind `batched`, of each batch."""
        return self._stage(handled(functions_of("map", [function])[0], handler))

    def map_tuple(self, *functions: Stage, handler: Handler | None = None) -> Self:
        """A function for each item of tuples, from the first on."""
        return self._stage(handled(stages.MapTuple(functions_of("map_tuple", functions)), handler))

    def map_dict(self, handler: Handler | None = None, **functions: Stage) -> Self:
        """A function for each of some fields."""
        functions_of("map_dict", list(functions.values()))
        return self._stage(handled(stages.MapDict(functions), handler))

    def rename(self, handler: Handler | None = None, **names: str) -> Self:
        """Other names of fields: ``rename(image="jpg;png")``."""
        return self._stage(handled(stages.Rename(names), handler))

    def select_fields(self, wanted: Callable[[str], bool]) -> Self:
        """Only fields of which a function says so."""
        return self._stage(stages.SelectFields(functions_of("select_fields", [wanted])[0]))

    def batched(
        self,
        batchsize: int,
        collation_fn: Stage | None = in_columns,
        partial: bool = True,  # noqa: FBT001, FBT002 - as it always was
    ) -> Self:
        """So many samples as a batch, by default a list of columns.

        Args:
            batchsize: How many.
            collation_fn: Makes a batch of a list of samples; None: the list itself.
            partial: The last batches too, if they are smaller. All ranks have as many: without it, as few.
        """
        batching = Batching(whole("batched", batchsize, least=1), collation_fn, partial)
        links = self._links
        if links.flows or links.batching is not None or links.course.bends:
            return self._flow(batching)
        return self._with(replace(links, batching=batching))

    def unbatched(self) -> Self:
        """Batches become samples again."""
        return self._flow(Unbatch())

    def select(self, wanted: Stage) -> Self:
        """Samples, or batches, of which a function says so. Each worker has its own: `batched` behind it, too."""
        return self._flow(Select(functions_of("select", [wanted])[0]))

    def shuffle(self, size: int = 0, *_: Any, **__: Any) -> Self:
        """Nothing more than the order has already: all samples are mixed. Behind `select`, a buffer of this size."""
        return self._flow(Mix(size)) if self._links.flows and size > 1 else self._with(self._links)

    def slice(self, *bounds: int | None) -> Self:
        """Some of the samples, or of the batches, of each epoch, as `itertools.islice` takes them."""
        course = self._links.course.sliced(*bounds)
        return self._flow(Some(bounds)) if self._links.flows else self._with(replace(self._links, course=course))

    def repeat(self, nepochs: int) -> Self:
        """So many epochs as one, each in an order of its own."""
        return self._bent("repeat", self._links.course.times(whole("repeat", nepochs, least=1)))

    def with_epoch(self, count: int) -> Self:
        """Epochs of so many samples, or batches, whatever the set has: one goes on where the last has ended."""
        return self._bent("with_epoch", self._links.course.cut(whole("with_epoch", count, least=1)))

    def with_length(self, count: int) -> Self:
        """Says what `len` is."""
        return self._with(replace(self._links, length=whole("with_length", count, least=0)))

    def compose(self, *functions: Callable[[Self], Any]) -> Any:
        """What functions of this dataset make of it, one after the other."""
        made: Any = self
        for function in functions:
            made = function(made)
        return made

    def then(self, function: Callable[..., Iterator[Any]], *words: Any, **named: Any) -> Self:
        """What a function makes of the stream: it takes an iterator, and gives one."""
        return self._flow(Then(function, words, named))

    def webdataset(self) -> Any:
        """The same samples as a pipeline of webdataset's, with all stages that it has."""
        return importlib.import_module("swift_loader.shards.as_webdataset").pipeline(self)

    def _stage(self, stage: Stage, of_samples: str = "") -> Self:
        links = self._links
        if of_samples and (links.batching is not None or links.flows):
            raise ConfigError(f"{of_samples} is for samples: call it before batched and select")
        if links.flows:
            return self._flow(Each(stage))
        if links.batching is not None:
            return self._with(replace(links, batches=(*links.batches, stage)))
        return self._with(replace(links, samples=(*links.samples, stage)))

    def _flow(self, flow: Flow) -> Self:
        return self._with(replace(self._links, flows=(*self._links.flows, flow)))

    def _bent(self, name: str, course: Course) -> Self:
        if self._links.flows:
            raise ConfigError(f"{name} is for what has a length: call it before select, unbatched and then")
        return self._with(replace(self._links, course=course))
