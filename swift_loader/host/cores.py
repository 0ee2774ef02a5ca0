"""How many threads libraries may have for arithmetic, as the environment says it."""

from __future__ import annotations

#: Set before a worker's interpreter starts, since the libraries look only once. Many workers with many threads each
#: fight for the cores; a dataset that wants more asks for it in ``worker_init``.
THREAD_CAPS = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)
