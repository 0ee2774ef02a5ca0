"""Samples that were left out of batches (`on_error="skip"`): counted, and refused when they are too many."""

from __future__ import annotations

from collections import deque

from swift_loader.errors import DataError


class LeftOut:
    """What one consumer did not get, of batches that were handed out: so the count does not depend on chance."""

    def __init__(self, most: int, consumer: int) -> None:
        self.count = 0
        self._most = most
        self._consumer = consumer
        self._last: deque[str] = deque(maxlen=3)

    def add(self, skipped: list[tuple[int, str]], epoch: int, step: int) -> None:
        """Counts the samples of one batch, each with the reason.

        Raises:
            DataError: if there are now more than ``max_skipped`` allows.
        """
        self.count += len(skipped)
        self._last.extend(reason for _, reason in skipped)
        if self.count > self._most:
            last = "\n  ".join(self._last)
            raise DataError(
                f"{self.count} samples were left out, more than max_skipped={self._most} (consumer {self._consumer}, "
                f"epoch {epoch}, step {step}); the last:\n  {last}"
            )
