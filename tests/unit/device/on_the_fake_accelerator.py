"""Whole loaders on the fake accelerator; run as a script, which prints what became of each scene.

    python -m tests.unit.device.on_the_fake_accelerator LIBRARY COUNT

COUNT is of the samples in an epoch.

A scene is a function that is given the accelerator's switches. Batches are compared with those of the host. The scenes
whose names begin with "without" take a wait away, and pass if they see wrong values.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import sys
import threading
import traceback
import warnings

import torch

from swift_loader.device.cuda import CudaStage
from swift_loader.device.driver import TorchDriver
from swift_loader.device.pagelock import PageLocks
from swift_loader.device.underway import Underway
from tests.datasets import Pictures, Records
from tests.loaders import made
from tests.unit.device.fake_accelerator import install

COUNT = int(sys.argv[2]) if __name__ == "__main__" else 0
NBYTES = 8 * 64 * 1024  # of one batch's pictures
FEW_SLOTS = 4 * 600_000


@contextlib.contextmanager
def loader_on(device, dataset=Pictures, to_device=None, **settings):
    with made(dataset, {"count": COUNT}, **settings) as loader:
        loader.start(0, device, to_device)
        yield loader


def host(epochs=1, dataset=Pictures):
    with loader_on(None, dataset) as loader:
        return [[[leaf.clone() for leaf in leaves(batch)] for batch in loader] for _ in range(epochs)]


def leaves(batch):
    return [
        value for value in (batch.values() if isinstance(batch, dict) else batch) if isinstance(value, torch.Tensor)
    ]


def work(batch):
    """What a training step does: reads the batch on the current stream, some time later."""
    return [torch.empty_like(leaf).copy_(leaf, non_blocking=True) for leaf in leaves(batch)]


def is_same(results, expected):
    return all(
        torch.equal(result.cpu(), value)
        for step, values in zip(results, expected, strict=True)
        for result, value in zip(step, values, strict=True)
    )


def run(device="fdev:0", epochs=1, **settings):
    """Whether all epochs, each batch dropped as soon as its work was given to the device, are as on the host."""
    dataset = settings.get("dataset", Pictures)
    expected = host(epochs, dataset)
    verdicts = []
    with loader_on(device, **settings) as loader:
        for epoch in expected:
            results = []
            for batch in loader:
                assert {leaf.device for leaf in leaves(batch)} == {torch.device(device)}
                results.append(work(batch))
                del batch
            verdicts.append(is_same(results, epoch))
    return all(verdicts)


def late(fake):
    before = fake.fake_late_copies(), fake.fake_early_copies()
    return lambda: (fake.fake_late_copies() - before[0], fake.fake_early_copies() - before[1])


def batches_are_those_of_the_host(fake):
    fake.fake_delays(3_000, 1_000)
    copies = late(fake)
    assert run(epochs=2, max_nb_batch_on_device=2)
    count, early = copies()
    assert early == 0
    assert count >= 2 * 2 * COUNT // 8


def small_leaves_and_text_too(fake):
    fake.fake_delays(3_000, 1_000)
    assert run(dataset=Records)


def few_slots_are_enough(fake):
    fake.fake_delays(2_000, 0)
    assert run(epochs=2, max_nb_batch_on_device=3, memory_budget=FEW_SLOTS)


def slow_work_on_dropped_batches(fake):
    fake.fake_delays(0, 5_000)
    assert run(max_nb_batch_on_device=2)


def a_stream_of_the_consumers_own(fake):
    fake.fake_delays(5_000, 2_000)
    stream = torch.Stream(device="fdev:0")
    with stream:
        assert run()


def the_other_device_and_none_named(fake):
    fake.fake_delays(1_000, 1_000)
    assert run("fdev:1")
    torch.accelerator.set_device_index(1)
    with loader_on("fdev") as loader:
        assert {leaf.device for batch in loader for leaf in leaves(batch)} == {torch.device("fdev:1")}
    torch.accelerator.set_device_index(0)
    with loader_on(1) as loader:
        assert leaves(next(iter(loader)))[0].device == torch.device("fdev:1")


def two_devices_at_once(fake):
    fake.fake_delays(2_000, 1_000)
    (expected,) = host()
    with loader_on("fdev:0") as one, loader_on("fdev:1") as other:
        results = [[work(batch) for batch in both] for both in zip(one, other, strict=True)]
        for place in (0, 1):
            assert is_same([step[place] for step in results], expected)


def memory_stays_within_what_was_asked_for(fake):
    fake.fake_delays(0, 0)
    for ahead in (1, 3):
        idle_nbytes, most = fake.fake_live_nbytes(), 0
        with loader_on("fdev:0", max_nb_batch_on_device=ahead) as loader:
            for batch in loader:
                most = max(most, fake.fake_live_nbytes() - idle_nbytes)
                del batch
        assert most <= (ahead + 2) * (NBYTES + 64)
        assert fake.fake_live_nbytes() == idle_nbytes


def slots_are_locked_while_they_are_there(fake):
    count = fake.fake_locked_count()
    with loader_on("fdev:0") as loader:
        for batch in loader:
            del batch
        assert fake.fake_locked_count() > count
        slots = loader._runtime._source._exchange._shelf.all()
        memory = [torch.from_numpy(slot.memory) for slot in slots if slot.page_lock is not None]
        assert memory
        assert all(one.is_pinned() for one in memory)
        del slots, memory
    gc.collect()
    assert fake.fake_locked_count() == count


def refused_locks_are_told_and_staged(fake):
    fake.fake_delays(3_000, 1_000)
    fake.fake_refuse_locks(1)
    copies = late(fake)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert run()
    fake.fake_refuse_locks(0)
    assert [str(one.message).partition(". ")[0].split(": ")[1] for one in told] == ["out of memory (error 2)"]
    assert copies()[1] == 0


def a_function_that_changes_the_batch_in_its_place(fake):
    fake.fake_delays(5_000, 0)
    calls = []

    def to_device(batch, device):
        calls.append((device, threading.current_thread()))
        batch = list(batch)
        for place, leaf in enumerate(batch):
            batch[place] = leaf.to(device, non_blocking=True)
        return batch

    assert run(to_device=to_device, memory_budget=FEW_SLOTS)
    assert calls == [(torch.device("fdev:0"), threading.main_thread())] * (COUNT // 8)


def no_worker_processes(fake):
    fake.fake_delays(2_000, 1_000)
    assert run(worker_per_consumer=0)


def epochs_left_early(fake):
    fake.fake_delays(2_000, 0)
    expected = host(6)
    with loader_on("fdev:0", max_nb_batch_on_device=3) as loader:
        for number, epoch in enumerate(expected):
            results = [work(batch) for batch in itertools.islice(loader, 1 + number)]
            assert is_same(results, epoch[: 1 + number])


@contextlib.contextmanager
def changed(owner, name, action):
    before = getattr(owner, name)
    setattr(owner, name, action)
    try:
        yield
    finally:
        setattr(owner, name, before)


def without_the_consumers_wait(fake):
    fake.fake_delays(20_000, 0)
    with changed(TorchDriver, "wait", lambda *_: None):
        assert not run()


def without_holding_what_is_read(fake):
    fake.fake_delays(20_000, 0)
    rooms, cover = set(), PageLocks.cover

    def covered(locks, room):
        """The slots must not be unmapped under copies that nobody waits for: not before the stage was closed."""
        rooms.add(room)
        return cover(locks, room)

    close = changed(CudaStage, "close", lambda stage: stage._stream.synchronize())
    with changed(Underway, "add", lambda *_: None), changed(PageLocks, "cover", covered), close:
        assert not run(memory_budget=FEW_SLOTS, max_nb_batch_on_device=3)


def without_recording_memory_on_the_consumers_stream(fake):
    fake.fake_delays(0, 20_000)
    with changed(TorchDriver, "used_on", lambda *_: None):
        assert not run()


SCENES = [
    batches_are_those_of_the_host, small_leaves_and_text_too, few_slots_are_enough, slow_work_on_dropped_batches,
    a_stream_of_the_consumers_own, the_other_device_and_none_named, two_devices_at_once,
    memory_stays_within_what_was_asked_for, slots_are_locked_while_they_are_there, refused_locks_are_told_and_staged,
    a_function_that_changes_the_batch_in_its_place, no_worker_processes, epochs_left_early, without_the_consumers_wait,
    without_holding_what_is_read, without_recording_memory_on_the_consumers_stream,
]  # fmt: skip


def main():
    fake = install(sys.argv[1])
    outcomes = {}
    for scene in SCENES:
        fake.fake_delays(0, 0)
        try:
            scene(fake)
            outcomes[scene.__name__] = ""
        except BaseException:
            outcomes[scene.__name__] = traceback.format_exc()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
