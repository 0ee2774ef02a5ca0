"""Training without Ray Train, with a worker on this host and two on a Ray cluster.

    python examples/ray/plain.py                       # a cluster of this machine alone, which ends with the script
    RAY_ADDRESS=head:6379 python examples/ray/plain.py
    ray job submit --working-dir . -- python examples/ray/plain.py      # in a cluster that runs, as a job

In a job, Ray sets RAY_ADDRESS itself. examples/ray/submit.py submits it by Python.
"""

import os

import numpy as np
import ray

from swift_loader import RayEngine, SwiftLoader


class Pictures:
    """Takes a while to make each."""

    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> dict:
        noise = np.random.default_rng(index).random((3, 64, 64), dtype=np.float32)
        for _ in range(100):
            noise = np.sqrt(noise)
        return {"image": noise, "index": index}


def main() -> None:
    if "RAY_ADDRESS" not in os.environ:
        ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    engine = RayEngine(workers=2, workers_per_actor=2)
    with SwiftLoader(Pictures, {}, 64, 1, worker_per_consumer=1, seed=1, engine=engine) as loader:
        loader.start(0)
        for epoch in range(2):
            seen = set()
            for batch in loader:
                seen.update(batch["index"].tolist())
            print(f"epoch {epoch}: {len(seen)} different pictures")
        print(loader.report())
    ray.shutdown()


if __name__ == "__main__":
    main()
