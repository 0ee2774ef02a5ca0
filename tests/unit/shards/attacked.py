"""What an attack may cost: a tenth of a second of a core, and 64 MB."""

import contextlib
import resource
import time

MOST_S, MOST_KB = 0.1, 64 << 10


@contextlib.contextmanager
def prompt_and_small(times=1):
    """Within it, no more is used; ``times`` as much time."""
    peak_kb, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    assert time.process_time() - began < MOST_S * times
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kb < MOST_KB
