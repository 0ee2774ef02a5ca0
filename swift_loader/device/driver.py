"""What is asked of a device that has streams and page-locks memory: a handful of calls, all through torch.

The stage decides in which order; here is only what each of them is in torch. The device's module is looked up by its
name, so a device that offers what `torch.cuda` offers is served by the same lines.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from swift_loader.device.stage import DeviceTimer, Event

#: What the device's module must offer.
NAMES = ("Stream", "Event", "stream", "current_stream", "device", "current_device", "cudart")
#: cudaHostRegisterPortable: locked for all devices, not only for the thread's current one.
_PORTABLE = 1


class Driver(Protocol):
    """One device. Streams are opaque; current streams and ``using`` are a thread's own."""

    device: torch.device

    def open(self) -> None:
        """Called once, on the consumer's thread: which device is the current one is known now."""
        ...

    def new_stream(self) -> Any:
        """A stream beside the others."""
        ...

    def current_stream(self) -> Any:
        """The stream that this thread's work for the device goes to."""
        ...

    def using(self, stream: Any) -> AbstractContextManager[Any]:
        """Has this thread's work, and its new memory, belong to ``stream``."""
        ...

    def record(self, stream: Any) -> Event:
        """An event that fires when all that was given to ``stream`` so far is done."""
        ...

    def timer(self, stream: Any) -> DeviceTimer | None:
        """Measures what is given to ``stream`` from now on; None where the device has no clock."""
        ...

    def wait(self, stream: Any, event: Event) -> None:
        """Has what is given to ``stream`` from now on wait for ``event``; this thread does not wait."""
        ...

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Begins to copy to new memory of the device, on this thread's current stream."""
        ...

    def staged(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy in page-locked memory of torch's own, which it does not use again before it was read."""
        ...

    def used_on(self, tensor: torch.Tensor, stream: Any) -> None:
        """The tensor's memory, once dropped, is not used again before what was given to ``stream`` by then is done."""
        ...

    def lock(self, address: int, nbytes: int) -> str | None:
        """Page-locks memory; if that cannot be, says why."""
        ...

    def unlock(self, address: int) -> str | None:
        """Lets go of memory that was locked; if that cannot be, says why."""
        ...


class TorchDriver:
    """A device through its module: ``torch.cuda``, or one that offers the same."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module: Any = torch.get_device_module(device)
        self._has_clock = True

    def open(self) -> None:
        """See `Driver`."""
        index: Any = self.device.index
        if index is None:
            self.device = torch.device(self.device.type, self._module.current_device())

    def new_stream(self) -> Any:
        """See `Driver`."""
        return self._module.Stream(device=self.device)

    def current_stream(self) -> Any:
        """See `Driver`."""
        return self._module.current_stream(self.device)

    def using(self, stream: Any) -> AbstractContextManager[Any]:
        """See `Driver`."""
        return self._module.stream(stream)  # type: ignore[no-any-return] # as torch.cuda.stream

    def record(self, stream: Any) -> Event:
        """See `Driver`."""
        event = self._module.Event(blocking=True)  # whoever waits for it sleeps, and does not spin
        event.record(stream)
        return event  # type: ignore[no-any-return] # as torch.cuda.Event

    def timer(self, stream: Any) -> DeviceTimer | None:
        """See `Driver`."""
        if not self._has_clock:
            return None
        try:
            return _Timer(self._module.Event, stream)
        except (TypeError, RuntimeError, NotImplementedError):  # a device whose events cannot do that
            self._has_clock = False
            return None

    def wait(self, stream: Any, event: Event) -> None:
        """See `Driver`."""
        stream.wait_event(event)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """See `Driver`."""
        return tensor.to(self.device, non_blocking=True)

    def staged(self, tensor: torch.Tensor) -> torch.Tensor:
        """See `Driver`."""
        return tensor.pin_memory()

    def used_on(self, tensor: torch.Tensor, stream: Any) -> None:
        """See `Driver`."""
        tensor.record_stream(stream)

    def lock(self, address: int, nbytes: int) -> str | None:
        """See `Driver`.

        The CUDA runtime keeps a failed call's error for the thread that made it, and torch looks there after it has
        launched a kernel. So a thread makes this call that never launches one.
        """
        reasons: list[str | None] = []

        def locking() -> None:
            try:
                with self._module.device(self.device):
                    runtime = self._module.cudart()
                    reasons.append(_reason(runtime, runtime.cudaHostRegister(address, nbytes, _PORTABLE)))
            except Exception as error:  # noqa: BLE001 - of the binding: the batch can be landed all the same
                reasons.append(str(error))

        thread = threading.Thread(target=locking, name="swift-page-lock")
        thread.start()
        thread.join()
        return reasons[0]

    def unlock(self, address: int) -> str | None:
        """See `Driver`. May be called on any thread: on the right device, so that no other one is woken for it."""
        with self._module.device(self.device):
            runtime = self._module.cudart()
            return _reason(runtime, runtime.cudaHostUnregister(address))


class _Timer:
    """Two events of a stream."""

    def __init__(self, event: Any, stream: Any) -> None:
        self._stream = stream
        self._first, self._last = event(enable_timing=True), event(enable_timing=True)
        self._first.record(stream)

    def stop(self) -> None:
        """See `DeviceTimer`."""
        self._last.record(self._stream)

    def elapsed_ns(self) -> int | None:
        """See `DeviceTimer`."""
        try:
            return int(self._first.elapsed_time(self._last) * 1e6) if self._last.query() else None
        except (RuntimeError, NotImplementedError):  # a device that is broken tells so whoever uses it
            return None


def _reason(runtime: Any, result: Any) -> str | None:
    code = int(result)
    return None if code == 0 else f"{runtime.cudaGetErrorString(runtime.cudaError(code))} (error {code})"
