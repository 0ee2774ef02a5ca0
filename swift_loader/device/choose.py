"""Which stage serves a device, and whether there is such a device at all.

Asks torch without waking the device: nothing of it is initialised before the workers were started.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from swift_loader.device.cuda import CudaStage
from swift_loader.device.driver import NAMES, TorchDriver
from swift_loader.device.host import HostStage
from swift_loader.device.pagelock import PageLocks
from swift_loader.device.plain import PlainStage, Work
from swift_loader.errors import ConfigError
from swift_loader.settings.checks import whole_number

if TYPE_CHECKING:
    from swift_loader.device.stage import Stage

#: These are everywhere; "meta" has shapes and no data.
_HOST, _SHAPES = "cpu", "meta"


def stage_for(
    device: Any,
    to_device: Callable[[Any, Any], Any] | None,
    decoder: Callable[[bytes], Any] | None,
    ahead: int,
) -> Stage:
    """The stage for what the user named.

    Raises:
        ConfigError: if there is no such device.
    """
    target = None if device is None else _named(device)
    if target is None or target.type == _HOST:
        return HostStage(decoder, target, to_device)
    if target.type == _SHAPES:
        return PlainStage(Work(target, None), decoder, to_device)
    module = _module_of(target)
    _refuse_absent(target, module)
    if not all(hasattr(module, name) for name in NAMES):
        return PlainStage(Work(target, module), decoder, to_device)
    driver = TorchDriver(target)
    if to_device is None:
        return CudaStage(driver, decoder, ahead)
    return PlainStage(Work(target, module), decoder, to_device, PageLocks(driver))


def _named(device: Any) -> torch.device:
    number = whole_number(device)
    try:
        return torch.device(device if number is None else number)
    except (RuntimeError, TypeError) as error:
        if number is not None and number >= 0:
            raise ConfigError(
                f"device {number} means cuda:{number}, and no CUDA is here (torch {torch.__version__}). "
                f"{_what_is_there()}"
            ) from None
        raise ConfigError(f"device must be a torch.device, its name or its index, not {device!r}: {error}") from None


def _module_of(device: torch.device) -> Any:
    try:
        return torch.get_device_module(device)
    except RuntimeError:
        raise ConfigError(
            f"device {device} is not known to this torch ({torch.__version__}): import the package that brings it, "
            f"before start(). {_what_is_there()}"
        ) from None


def _refuse_absent(device: torch.device, module: Any) -> None:
    is_available: Callable[[], bool] | None = getattr(module, "is_available", None)
    if is_available is not None and not is_available():
        raise ConfigError(
            f"device {device} is not available to this torch ({torch.__version__}): this build has no support for it, "
            f"or no driver or no device was found. {_what_is_there()}"
        )
    device_count: Callable[[], int] | None = getattr(module, "device_count", None)
    index: Any = device.index
    if device_count is not None and index is not None and index >= (count := device_count()):
        raise ConfigError(f"device {device} was asked for, and there are {count} of {device.type!r}, counted from 0")


def _what_is_there() -> str:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return 'Here is only device="cpu"'
    return f'Here are device="cpu" and {torch.accelerator.device_count()} of {accelerator.type!r}'
