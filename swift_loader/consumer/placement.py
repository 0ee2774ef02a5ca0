"""Which consumer a loader serves, and what its batches land on. Importing this does not import torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from swift_loader.consumer import ranks
from swift_loader.errors import ConfigError
from swift_loader.settings.checks import whole_number
from swift_loader.settings.loader import LoaderConfig

if TYPE_CHECKING:
    import torch

    from swift_loader.device.stage import Stage


def stage_of(config: LoaderConfig, device: Any, to_device: Callable[[Any, Any], Any] | None) -> Stage:
    if to_device is not None and not callable(to_device):
        raise ConfigError(f"to_device must be callable as to_device(batch, device), not {to_device!r}")
    from swift_loader.device.choose import stage_for  # noqa: PLC0415 - importing the package must not import torch

    return stage_for(device, to_device, config.batch_decoder, config.device_batches)


def current_device() -> torch.device | None:
    import torch  # noqa: PLC0415 - importing the package must not import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return None
    return torch.device(accelerator.type, torch.accelerator.current_device_index())


def name_of(device: Any) -> str:
    """What waits when data is late, in words: "GPU", or "consumer" where there is none."""
    if device is None:
        return "consumer"
    kind = (
        "cuda" if whole_number(device) is not None else getattr(device, "type", None) or str(device).partition(":")[0]
    )
    return "consumer" if kind in ("cpu", "meta") else "GPU"


def checked_index(index: Any, count: int) -> int:
    number = whole_number(index)
    if number is None:
        raise ConfigError(f"consumer_index must be a whole number, not {index!r}")
    if not 0 <= number < count:
        raise ConfigError(f"consumer_index must be from 0 to {count - 1} with nb_consumer={count}, not {index}")
    return number


def checked_epoch(epoch: Any) -> int:
    number = whole_number(epoch)
    if number is None or number < 0:
        raise ConfigError(f"set_epoch takes a whole number from 0 on, not {epoch!r}")
    return number


def own_index(count: int) -> int:
    """Which of so many consumers this process is, where there is no doubt."""
    if count == 1:
        return 0
    distributed = ranks.world()
    if distributed is not None and distributed.get_world_size() == count:
        return int(distributed.get_rank())
    raise ConfigError(
        f"which of the {count} consumers is this? Call loader.start(consumer_index, device) before iterating, "
        "for example loader.start(fabric.global_rank, fabric.device)"
    )


def own_count(counts: list[int]) -> int:
    """How many batches this process takes, of what each consumer does, where there is no doubt."""
    if len(set(counts)) == 1:
        return counts[0]
    distributed = ranks.world()
    if distributed is not None and distributed.get_world_size() == len(counts):
        return counts[int(distributed.get_rank())]
    several = sorted(set(counts))
    raise ConfigError(f"consumers take {several} batches each: call start(consumer_index) before len()")
