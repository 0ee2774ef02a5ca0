"""What could not be run where this project is made: its path to a GPU. One page of pass and fail, for those with GPUs.

    python -m benchmarks.gpu_check              exits with 0 if all is well, 1 if something failed, 2 without a GPU
    python -m benchmarks.gpu_check --rehearse   on the CPU: shows only that the script itself works

Each line is one promise, tried on the real thing: that slots are page-locked and copied from as fast as torch's own
pinned memory, that copies and computing overlap, that no batch is used before it is there and none is overwritten
while it is used (checked by the device, without ever waiting for it), that memory stays within what was asked for. A
line that needs more GPUs than there are says so. Takes about a minute. Left out: speeds beyond the two ratios.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from swift_loader import SwiftLoader
from swift_loader.device.driver import TorchDriver
from swift_loader.device.pagelock import PageLock
from swift_loader.wire.slot import Slot

COUNT, PIXELS, BATCH = 512, 3 * 64 * 64, 32
BATCH_NBYTES = BATCH * PIXELS


class Skipped(Exception):
    """This line needs what is not here."""


class Marked:
    """Every byte of sample i says i."""

    def __init__(self, count: int = COUNT, pixels: int = PIXELS) -> None:
        self.count, self.pixels = count, pixels

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return {"image": np.full(self.pixels, index % 251, np.uint8), "index": index}


class Judge:
    """Compares on the device, in its own time; asked only at the end whether all was well."""

    def __init__(self, device: torch.device) -> None:
        self.wrong = torch.zeros((), dtype=torch.int64, device=device)
        self.indices: list[torch.Tensor] = []

    def see(self, batch: Any) -> None:
        expected = (batch["index"] % 251).to(torch.uint8).unsqueeze(1)
        self.wrong += (batch["image"] != expected).sum()
        self.indices.append(batch["index"].clone())

    def order(self) -> list[int]:
        wrong = int(self.wrong)
        assert wrong == 0, f"{wrong} bytes on the device were not those of their sample"
        return [index for indices in self.indices for index in indices.tolist()]


class Check:
    """The lines, one method each; a docstring is the line's name, what is given back the detail behind it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_gpu = device.type != "cpu"

    @contextmanager
    def loader(self, device: Any = None, to_device: Any = None, **settings: Any) -> Any:
        settings = {"batch_size": BATCH, "nb_consumer": 1, "worker_per_consumer": 2, "seed": 5, **settings}
        with SwiftLoader(Marked, settings.pop("kwargs", {}), **settings) as loader:
            loader.start(0, self.device if device is None else device, to_device)
            yield loader

    def expected(self, epochs: int) -> list[list[int]]:
        with self.loader(torch.device("cpu")) as loader:
            return [[index for batch in loader for index in batch["index"].tolist()] for _ in range(epochs)]

    def work(self, size: int = 1024, rounds: int = 8) -> torch.Tensor:
        """Keeps the device busy, without waiting for it."""
        matrix = torch.ones(size, size, device=self.device)
        for _ in range(rounds):
            matrix = matrix @ matrix * 1e-3
        return matrix

    def synchronize(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def needs_gpu(self, count: int = 1) -> None:
        if not self.is_gpu:
            raise Skipped("a rehearsal has no GPU")
        if torch.cuda.device_count() < count:
            raise Skipped(f"needs {count} GPUs, here is {torch.cuda.device_count()}")

    # The lines ----------------------------------------------------------------------------------------------------

    def registration(self) -> str:
        """slots are page-locked, and unlocked when they are gone"""
        self.needs_gpu()
        slot, driver = Slot.create(64 << 20), TorchDriver(self.device)
        memory = torch.from_numpy(slot.memory)
        try:
            begun = time.perf_counter()
            lock = PageLock(driver, slot.memory)
            took_ms = (time.perf_counter() - begun) * 1e3
            assert memory.is_pinned(), "torch does not see the memory as pinned"
            del lock
            assert not memory.is_pinned(), "the memory is still pinned after its lock is gone"
        finally:
            slot.close()
        with self.loader() as loader, warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in loader:
                pass
            slots = loader._runtime._source._exchange._shelf.all()
            locked = sum(slot.page_lock is not None for slot in slots)
            assert locked, "no slot of a running loader is locked"
            return f"64 MB in {took_ms:.0f} ms; {locked} slots of a loader"

    def bandwidth(self) -> str:
        """copies from a slot are as fast as from torch's pinned memory"""
        self.needs_gpu()
        nbytes = 128 << 20
        slot, driver = Slot.create(nbytes), TorchDriver(self.device)
        plain = torch.empty(nbytes, dtype=torch.uint8)
        sources = {"pageable": plain, "pinned": plain.pin_memory(), "slot": torch.from_numpy(slot.memory)[:nbytes]}
        slot.page_lock = PageLock(driver, slot.memory)
        target = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        speeds = {}
        for name, source in sources.items():
            laps = []
            for _ in range(5):
                self.synchronize()
                begun = time.perf_counter()
                target.copy_(source, non_blocking=True)
                self.synchronize()
                laps.append(nbytes / (time.perf_counter() - begun) / 1e9)
            speeds[name] = max(laps)
        del source, sources
        slot.close()
        assert speeds["slot"] > 0.8 * speeds["pinned"], f"GB/s: {speeds}"
        return ", ".join(f"{name} {speed:.1f} GB/s" for name, speed in speeds.items())

    def overlap(self) -> str:
        """copies and computing overlap"""
        self.needs_gpu()
        kwargs = {"count": 2048, "pixels": 3 * 256 * 256}
        with self.loader(kwargs=kwargs, max_nb_batch_on_device=2) as loader:
            list(itertools.islice(loader, 8))  # slots are made and locked, the device is warm
            self.work()
            alone = self._seconds(lambda: [None for _ in loader])
            steps = len(loader)
            rounds = 8
            while (step := self._seconds(lambda: self.work(2048, rounds))) < 1.5 * alone / steps:  # noqa: B023
                rounds *= 2
            both = self._seconds(lambda: [self.work(2048, rounds) for _ in loader])
        computing = step * steps
        assert both < computing + 0.5 * alone, f"data {alone:.2f} s, computing {computing:.2f} s, together {both:.2f} s"
        return f"data {alone:.2f} s, computing {computing:.2f} s, together {both:.2f} s"

    def _seconds(self, action: Callable[[], Any]) -> float:
        self.synchronize()
        begun = time.perf_counter()
        action()
        self.synchronize()
        return time.perf_counter() - begun

    def order(self) -> str:
        """order and bytes are the host's, while the device is busy"""
        return self._stress(max_nb_batch_on_device=1)

    def reuse(self) -> str:
        """few slots, used again and again, are never overwritten under a copy"""
        return self._stress(epochs=6, max_nb_batch_on_device=3, memory_budget=5 * BATCH_NBYTES)

    def own_stream(self) -> str:
        """a consumer may work on a stream of its own"""
        self.needs_gpu()
        stream = torch.cuda.Stream(self.device)
        with torch.cuda.stream(stream):
            return self._stress(max_nb_batch_on_device=2)

    def own_function(self) -> str:
        """a to_device that changes the batch in its place is waited for"""

        def to_device(batch: Any, device: torch.device) -> Any:
            for name, tensor in batch.items():
                batch[name] = tensor.to(device, non_blocking=True)
            return batch

        return self._stress(epochs=4, to_device=to_device, memory_budget=5 * BATCH_NBYTES)

    def without_workers(self) -> str:
        """without worker processes"""
        return self._stress(worker_per_consumer=0)

    def _stress(self, epochs: int = 3, to_device: Any = None, **settings: Any) -> str:
        expected, judges = self.expected(epochs), []
        with self.loader(to_device=to_device, **settings) as loader:
            for _ in range(epochs):
                judges.append(judge := Judge(self.device))
                for batch in loader:
                    self.work(256, 4)
                    judge.see(batch)
                    del batch
        assert [judge.order() for judge in judges] == expected, "batches came in another order than on the host"
        return f"{epochs} epochs, {sum(map(len, expected)):,} samples compared on the device"

    def leaving(self) -> str:
        """epochs that are left early leave nothing to the next"""
        expected = self.expected(8)
        with self.loader(max_nb_batch_on_device=3) as loader:
            for epoch in expected:
                judge, steps = Judge(self.device), 1 + epoch[0] % 4
                for batch in itertools.islice(loader, steps):
                    judge.see(batch)
                assert judge.order() == epoch[: steps * BATCH], "a batch of an epoch that was left was handed out"
        return f"{len(expected)} epochs"

    def staging(self) -> str:
        """where page-locking is refused, one warning and the same batches"""
        self.needs_gpu()
        real = TorchDriver.lock

        def twice(driver: TorchDriver, address: int, nbytes: int) -> str | None:
            first = real(driver, address, nbytes)
            second = real(driver, address, nbytes)  # refused by the runtime itself, which notes an error
            if first is None:
                driver.unlock(address)
            return second

        TorchDriver.lock = twice  # type: ignore[method-assign]
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                detail = self._stress()
        finally:
            TorchDriver.lock = real  # type: ignore[method-assign]
        messages = [str(one.message) for one in told if "page-locked" in str(one.message)]
        assert len(messages) == 1, f"{len(messages)} warnings"
        return f"{detail}; told: {messages[0].partition(': ')[2].partition('.')[0]}"

    def bound(self) -> str:
        """device memory stays within max_nb_batch_on_device"""
        self.needs_gpu()
        kwargs, details = {"count": 512, "pixels": 1 << 17}, []
        nbytes = BATCH << 17
        for ahead in (1, 4):
            with self.loader(kwargs=kwargs, max_nb_batch_on_device=ahead) as loader:
                torch.cuda.reset_peak_memory_stats(self.device)
                before = torch.cuda.memory_allocated(self.device)
                for batch in loader:
                    self.synchronize()
                    del batch
                peak = torch.cuda.max_memory_allocated(self.device) - before
            # Those ahead, the one in use, one that is handed over; and what the allocator rounds up.
            assert peak <= (ahead + 2.5) * nbytes, f"{peak / nbytes:.1f} batches with {ahead} ahead"
            details.append(f"{peak / nbytes:.1f} batches with {ahead} ahead")
        return ", ".join(details)

    def resume(self) -> str:
        """a run goes on where its state was taken, bit for bit"""
        (expected,) = self.expected(1)
        judge = Judge(self.device)
        with self.loader(max_nb_batch_on_device=3) as loader:
            for batch in itertools.islice(loader, 5):
                judge.see(batch)
            state = loader.state_dict()
        with self.loader(max_nb_batch_on_device=3) as loader:
            loader.load_state_dict(state)
            for batch in loader:
                judge.see(batch)
        assert judge.order() == expected, "the resumed run gave other batches"
        return f"after 5 of {len(expected) // BATCH} steps"

    def devices(self) -> str:
        """one process feeds two devices; a name without a number means the current one"""
        self.needs_gpu(2)
        first, second = (torch.device("cuda", index) for index in (0, 1))
        torch.cuda.set_device(1)
        try:
            with self.loader(first) as one, self.loader("cuda") as other:
                judges = Judge(first), Judge(second)
                for batches in zip(one, other, strict=True):
                    assert [batch["image"].device for batch in batches] == [first, second]
                    judges[0].see(batches[0])
                    judges[1].see(batches[1])
                assert judges[0].order() == judges[1].order()
        finally:
            torch.cuda.set_device(0)
        return "cuda:0 and cuda:1"

    def ranks(self) -> str:
        """DDP over nccl: ranks share the samples, and the loss falls"""
        self.needs_gpu(2)
        torch.multiprocessing.start_processes(_rank, args=(2,), nprocs=2, start_method="spawn")
        return "2 ranks"

    def exit(self) -> str:
        """a loader that was forgotten lets the interpreter end in peace"""
        script = (
            "from benchmarks.gpu_check import *\n"
            f"loader = SwiftLoader(Marked, {{}}, {BATCH}, 1, 2, seed=5)\n"
            f"loader.start(0, {str(self.device)!r})\n"
            "kept = next(iter(loader))\n"
        )
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
        assert run.returncode == 0, run.stderr[-300:]
        assert not any(word in run.stderr for word in ("Exception", "Error", "terminate")), run.stderr[-300:]
        return "exit code 0"


def _rank(rank: int, world: int) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:29512", rank=rank, world_size=world)
    try:
        with SwiftLoader(Marked, {}, BATCH, world, 2, seed=5) as loader:
            loader.start(rank, device)
            _train(loader, device)
    finally:
        torch.distributed.destroy_process_group()


def _train(loader: SwiftLoader, device: torch.device) -> None:
    model = torch.nn.Linear(PIXELS, 1).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    seen, losses = [], []
    for batch in itertools.chain.from_iterable(loader for _ in range(4)):
        loss = ((model(batch["image"] / 255) - (batch["index"] % 251 / 251).unsqueeze(1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        seen.append(batch["index"])
    assert losses[-1] < losses[0], "the loss does not fall"
    counts = torch.bincount(torch.cat(seen[: len(loader)]), minlength=COUNT)
    torch.distributed.all_reduce(counts)
    assert bool((counts == 1).all()), "the ranks' first epoch is not each sample once"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true", help="on the CPU: shows only that the script itself works")
    rehearses = parser.parse_args().rehearse
    if not rehearses and not torch.cuda.is_available():
        print(f"no GPU that torch {torch.__version__} can use was found here: nothing was checked")
        return 2
    device = torch.device("cpu") if rehearses else torch.device("cuda", torch.cuda.current_device())
    check = Check(device)
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    print(f"Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    print(f"{platform.platform()}; {', '.join(names) or 'no GPU'}; ulimit -l {limit}\n")
    lines = [
        check.registration, check.bandwidth, check.overlap, check.order, check.reuse, check.own_stream,
        check.own_function, check.without_workers, check.leaving, check.staging, check.bound, check.resume,
        check.devices, check.ranks, check.exit,
    ]  # fmt: skip
    return 1 if sum([_failed(line) for line in lines]) else 0


def _failed(line: Callable[[], str]) -> bool:
    begun = time.perf_counter()
    try:
        verdict, detail = "pass", line()
    except Skipped as why:
        verdict, detail = "----", str(why)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this line's
        verdict, detail = "FAIL", f"{type(error).__name__}: {error}"
    print(f"{verdict}  {line.__doc__}  ({time.perf_counter() - begun:.1f} s)\n      {detail}", flush=True)
    return verdict == "FAIL"


if __name__ == "__main__":
    sys.exit(main())
