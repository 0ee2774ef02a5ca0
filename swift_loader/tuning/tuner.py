"""Has the policy ask and the rig look, for as long as there is time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic

from swift_loader.tuning.looks import Evidence, Failure, Look
from swift_loader.tuning.policy import Question, Task, search
from swift_loader.tuning.rig import Rig, Start
from swift_loader.tuning.tuning import Subject, Tuning, told

#: A look is at so many batches, or at least and at most at these shares of the time there is.
_BATCHES, _LEAST, _MOST = 40, 0.01, 0.04


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    now: str
    """What is looked at."""
    passed_s: float
    seconds: float
    """It ends after so many, or earlier."""
    so_far: Tuning
    """What is known."""


class Tuner:
    """Finds the fewest workers that are as good as any number of them.

    Args:
        start: Makes a loader and starts it.
        task: What to find out.
        subject: Whose loaders these are.
    """

    def __init__(self, start: Start, task: Task, subject: Subject) -> None:
        self._start = start
        self._task = task
        self._subject = subject
        self._evidence = Evidence()
        self._begun = monotonic()

    def run(
        self,
        seconds: float,
        on_progress: Callable[[Progress], object] | None = None,
        *,
        compares: bool = True,
    ) -> Tuning:
        """After so many seconds the answer is what is known by then.

        Raises:
            SwiftLoaderError: what the loader raises with one worker, or for samples that cannot be had.
            KeyboardInterrupt: with a note of what was found so far.
        """
        rig = Rig(self._start, self._task.consumer_s, compares=compares)
        try:
            return self._run(rig, seconds, on_progress)
        except KeyboardInterrupt as stop:
            stop.add_note(f"swift_loader was tuning; so far:\n{self._so_far()}")
            raise
        finally:
            rig.close()

    def _run(self, rig: Rig, seconds: float, on_progress: Callable[[Progress], object] | None) -> Tuning:
        asking = search(self._task, self._evidence)
        try:
            question = next(asking)
            # Something is looked at, however long the first loader took to start.
            while (passed_s := monotonic() - self._begun) < seconds or not self._evidence.looks:
                if on_progress is not None:
                    now = question.choice.words(self._task.base)
                    on_progress(Progress(now, passed_s, seconds, self._so_far()))
                question = asking.send(self._answer(rig, question, seconds))
        except StopIteration as end:
            found = told(self._evidence, self._task, self._subject, end.value)
            return replace(found, took_s=monotonic() - self._begun)
        return self._so_far()

    def _so_far(self) -> Tuning:
        found = told(self._evidence, self._task, self._subject, None)
        return replace(found, took_s=monotonic() - self._begun)

    def _answer(self, rig: Rig, question: Question, seconds: float) -> Look | Failure:
        choice, is_hurried, beside = question
        answer = rig.look(choice, self._look_s(seconds), is_hurried=is_hurried, beside=beside)
        if isinstance(answer, Failure):
            self._evidence.failures[choice] = answer
        else:
            self._evidence.add(choice, answer, is_hurried=is_hurried)
        return answer

    def _look_s(self, seconds: float) -> float:
        """How long to look: for enough batches, at the pace of the fastest so far."""
        rates = [look.rate for looks in self._evidence.looks.values() for look in looks]
        rates += [1 / self._task.consumer_s] if self._task.consumer_s else []
        wanted = _BATCHES / max(rates) if rates and max(rates) > 0 else 0.0
        return min(max(wanted, _LEAST * seconds), _MOST * seconds)
