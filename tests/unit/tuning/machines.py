"""Machines that do not exist: what a loader would do there, by the physics of workers, threads and cores."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from swift_loader.tuning.looks import Choice, Evidence, Failure, Look
from swift_loader.tuning.physics import Machine
from swift_loader.tuning.policy import Task, search

BATCH = 32


@dataclass
class Synthetic:
    """A dataset on a machine. Times are of one batch, in seconds."""

    cores: float = 2.0
    cpu_s: float = 0.05
    wait_s: float = 0.0
    consumer_s: float = 0.04
    noise: float = 0.0
    """Of one look."""
    drift: float = 0.0
    """The whole machine becomes slower and faster by so much, from look to look."""
    crowding: float = 0.0
    """What each worker beyond the cores costs."""
    stall: float = 0.0
    """Slow samples take so much of the rate, where the queue is no longer than usual."""
    briskness: float = 0.0
    """A longer message queue brings so much."""
    memory: int = 1 << 40
    worker_nbytes: int = 1 << 20
    bears_threads: bool = True
    seed: int = 1
    asked: list[Choice] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._pace = 1.0

    def capacity(self, choice: Choice) -> float:
        """Batches per second, if nobody slows it down."""
        own_s = self.cpu_s + self.wait_s / min(choice.threads, BATCH)
        by_cores = self.cores / self.cpu_s * (1 - self.crowding * max(0.0, choice.workers - self.cores))
        rate = min(choice.workers / own_s, by_cores)
        rate *= 1 - (self.stall if choice.data_queue <= 10 else 0.0)
        return rate * (1 + (self.briskness if choice.message_queue > 10 else 0.0))

    def rate(self, choice: Choice) -> float:
        """Batches per second that the consumer gets."""
        return min(self.capacity(choice), 1 / self.consumer_s) if self.consumer_s else self.capacity(choice)

    def look(self, choice: Choice, *, is_hurried: bool = False) -> Look | Failure:
        self.asked.append(choice)
        if choice.threads > 1 and not self.bears_threads:
            return Failure("fetch of sample 3 raised RuntimeError: not in threads")
        self._pace *= 1 + self._chance.gauss(0, self.drift)
        pace = self._pace * max(0.1, 1 + self._chance.gauss(0, self.noise))
        capacity = self.capacity(choice) * pace
        consumer_s = 0.0 if is_hurried else self.consumer_s
        rate = min(capacity, 1 / consumer_s) if consumer_s else capacity
        seconds = 40 / rate
        own_s = self.cpu_s + self.wait_s / min(choice.threads, BATCH)
        crowded_s = max(own_s, choice.workers * self.cpu_s / self.cores)  # they wait for a core
        return Look(
            batches=40,
            seconds=seconds,
            wait_s=seconds - 40 * consumer_s,
            made_s=min(40 * crowded_s / pace, seconds * choice.workers),
            samples=40 * BATCH,
            cpu_s=40 * self.cpu_s / pace,
            queued_s=40 * (crowded_s - own_s) / pace,
            worker_nbytes=self.worker_nbytes,
        )

    def tuned(self, **task: object) -> tuple[Choice, Evidence]:
        """What the policy comes to here."""
        evidence = Evidence()
        asking = search(
            Task(
                machine=Machine(self.cores, self.memory), base=Choice(1), consumer_s=self.consumer_s, batch_size=BATCH,
                **task,
            ),
            evidence,
        )  # fmt: skip
        question = next(asking)
        while True:
            answer = self.look(question.choice, is_hurried=question.is_hurried)
            if isinstance(answer, Failure):
                evidence.failures[question.choice] = answer
            else:
                evidence.add(question.choice, answer, is_hurried=question.is_hurried)
            try:
                question = asking.send(answer)
            except StopIteration as end:
                return end.value, evidence

    def fewest(self, within: float, most: int = 64, threads: int = 1) -> int:
        """The fewest workers that reach such a share of the best."""
        best = max(self.rate(Choice(count, threads)) for count in range(1, most + 1))
        return next(count for count in range(1, most + 1) if self.rate(Choice(count, threads)) >= within * best)
