"""How many workers, threads and queues a loader wants on this machine, found by short runs of loaders.

Knows a loader only as something that it may start with other counts, take batches from, and close. Does not know who
asks (`loader`), nor how the answer is drawn (`cli`).
"""

from swift_loader.tuning.asked import Wishes, tuned
from swift_loader.tuning.tuner import Progress
from swift_loader.tuning.tuning import Subject, Tuning

__all__ = ["Progress", "Subject", "Tuning", "Wishes", "tuned"]
