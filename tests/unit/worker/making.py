"""A batch maker without a worker around it."""

from __future__ import annotations

import numpy as np

from swift_loader.device.host import HostStage
from swift_loader.device.stage import Cargo
from swift_loader.plan.ahead import Ahead
from swift_loader.settings.loader import LoaderConfig
from swift_loader.wire.facts import Facts
from swift_loader.wire.page import Cell
from swift_loader.wire.recipe import Recipe
from swift_loader.worker.berth import Wanted
from swift_loader.worker.fetch import Fetcher
from swift_loader.worker.info import WorkerInfo
from swift_loader.worker.maker import BatchMaker


class Listed:
    """A dataset of given samples; an exception among them is raised, a function is called."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        sample = self.samples[index]
        if isinstance(sample, Exception):
            raise sample
        return sample() if callable(sample) else sample


class Memory:
    def __init__(self, nbytes):
        self.memory, self.nbytes, self.views = np.full(nbytes, 0xAB, np.uint8), nbytes, {}


class Berth:
    """One slot, kept from batch to batch as a worker keeps it."""

    def __init__(self):
        self.slot = Memory(64)
        self.word = [1]
        self.wanted = Wanted(self.word, 1)
        self.following = None
        self.careful = False
        self.slot_ns = 0
        self.made = 0

    def room(self, nbytes, keep=0):
        if self.slot.nbytes < nbytes:
            larger = Memory(nbytes)
            larger.memory[:keep] = self.slot.memory[:keep]
            self.slot = larger
            self.made += 1
        return self.slot


def config(batch_size=4, **settings):
    settings.setdefault("even", "none")
    return LoaderConfig.parse(batch_size, 1, 0, settings.pop("shuffle", False), settings)


def cell():
    return Cell(memoryview(bytearray(64)).cast("q"))


def info_for(settings, worker=0):
    per_sample = settings.random_per == "sample" or settings.worker_threads > 1
    return WorkerInfo(0, worker, 7, per_sample=per_sample)


def fetcher(dataset, **settings):
    parsed = config(**settings)
    return Fetcher(dataset, parsed, info_for(parsed), cell())


class Making:
    """Makes batches of a dataset and lands them."""

    def __init__(self, dataset, batch_size=4, worker=0, **settings):
        self.dataset = dataset
        self.config = config(batch_size, **settings)
        recipe = Recipe(None, {}, dataset, self.config, 7, 0)
        self.cell = cell()
        self.info = info_for(self.config, worker)
        ahead = Ahead(recipe.plan(Facts(len(dataset))), 0, batch_size)
        self.maker = BatchMaker(recipe, dataset, ahead, self.info, self.cell)
        self.berth = Berth()
        self.stage = HostStage(self.config.batch_decoder, None, None)

    def made(self, step, epoch=0, seq=1):
        return self.maker.make(seq, epoch, step, self.berth)

    def batch(self, step, epoch=0):
        made = self.made(step, epoch)
        slot = self.berth.slot

        def hold(shape, dtype, offset):
            return np.ndarray(shape, dtype, slot.memory, offset)

        return self.stage.land(Cargo(made.spec, made.rows, slot.memory, {}, made.stream, made.spans, hold))


__all__ = ["Berth", "Listed", "Making", "Wanted", "config", "fetcher", "info_for"]
