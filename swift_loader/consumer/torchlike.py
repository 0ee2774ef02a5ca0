"""What torch's loader tells of itself, told of ours, for frameworks that ask: by the names that it has there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from swift_loader.host.warn import warn_user
from swift_loader.plan.position import State
from swift_loader.settings.checks import whole_number

if TYPE_CHECKING:
    from swift_loader.consumer.runtime import Runtime
    from swift_loader.settings.loader import LoaderConfig

#: So many batches are asked of the plan at a time.
_BLOCK = 64


class TorchLike(ABC):
    """A loader, as frameworks that know torch's see it."""

    _config: LoaderConfig

    @property
    def batch_size(self) -> int:
        """Samples in one consumer's batch."""
        return self._config.batch_size

    @property
    def num_workers(self) -> int:
        """What torch's loader calls ``worker_per_consumer``."""
        return self._config.worker_count

    @property
    def drop_last(self) -> bool:
        """Whether each consumer's last batch is left out if it is smaller."""
        return self._config.drop_last

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any] | None:
        """The function that was given; None for the default collate."""
        return self._config.collate_fn

    @property
    def prefetch_factor(self) -> int | None:
        """What torch's loader would be given to be as far ahead: batches of each worker; None where there is none."""
        return -(-self._config.data_queue_size // self.num_workers) if self.num_workers else None

    @property
    def sampler(self) -> EpochSetter:
        """What frameworks look for to call ``set_epoch`` on; there is nothing else to it."""
        return EpochSetter(self)

    @property
    def batch_sampler(self) -> BatchIndices:
        """The indices of each batch, for frameworks that make batches of them by themselves."""
        return BatchIndices(self)

    @abstractmethod
    def __len__(self) -> int:
        """How many batches this consumer takes per epoch."""

    @abstractmethod
    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration be this epoch."""

    @abstractmethod
    def state_dict(self) -> dict[str, int | str]:
        """Where this consumer is."""

    @abstractmethod
    def _started(self) -> Runtime: ...


class EpochSetter:
    """Stands where torch's loader has its sampler, for frameworks that tell it the epoch."""

    def __init__(self, loader: TorchLike) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """As `SwiftLoader.set_epoch`, but never back: a loader that a framework goes through again and again beside a
        longer one is ahead of the epochs that the framework counts.
        """
        number = whole_number(epoch)
        if number is None or not 0 <= number <= int(self._loader.state_dict()["epoch"]):
            self._loader.set_epoch(epoch)


class BatchIndices:
    """Stands where torch's loader has its batch sampler: accelerate's ``skip_first_batches`` hands it to one.

    An iteration counts as one over the loader: what it takes is the whole of that epoch, and the next one follows.
    """

    def __init__(self, loader: TorchLike) -> None:
        self._loader = loader
        self.sampler = loader.sampler
        self.batch_size = loader.batch_size
        self.drop_last = loader.drop_last

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        runtime = self._loader._started()
        plan, consumer, epoch = runtime.plan, runtime.consumer, runtime.course.next_epoch
        assert plan is not None
        warn_user(
            f"the batches of epoch {epoch} are made outside of the loader, of the indices in loader.batch_sampler: the "
            "same samples in the same order, but with other random numbers, torch's default collate if there is no "
            "collate_fn, in the host's memory, and not counted by loader.state_dict(). loader.load_state_dict(state) "
            "goes on at any step, at once, with the batches that the loader would have made",
            UserWarning,
        )
        runtime.resume(State.of_epoch(epoch + 1))
        for first in range(0, plan.step_count(epoch, consumer), _BLOCK):
            yield from plan.indices(epoch, consumer, first, _BLOCK)

    def set_epoch(self, epoch: int) -> None:
        """As `SwiftLoader.set_epoch`."""
        self._loader.set_epoch(epoch)
