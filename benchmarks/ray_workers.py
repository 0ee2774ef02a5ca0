"""Workers on a Ray cluster: beside workers of this host, and beside Ray Data's `iter_torch_batches`.

Measures: seconds of one epoch on a cluster of this machine, the start of the loader (or of the iterator)
included; those from its first batch on; and the CPU that the training process takes for a batch, all its threads
counted. Both sides of a row run one after the other, each in a process with a cluster of its own, in alternating
rounds; the median of each.

    local     2 workers on the cluster beside 2 on this host: 150 batches of 64 decoded JPEG pictures, as uint8
              (9.6 MB) and as float32 (38.5 MB)
    decoding  Ray Data beside 2 workers on the cluster: 150 and 600 of those as uint8, and what a further batch takes
    memory    the same for 100 batches of 256 pictures that are in memory, 38.5 MB each
    tiny      the same for 1,000 batches of 32 x 128 floats
    train     the same in a TorchTrainer of 2 ranks: 150 batches for both together, decoded, uint8

Leaves out: the start of the cluster. All share two cores: between machines there are more of them, and a network.

Command: `python -m benchmarks.ray_workers PART`; `local` takes the cases behind it. Needs `ray[data,train]`. The last
table is `results/ray_workers.txt`.
"""

from __future__ import annotations

import io
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.jpeg_workload import cropped, jpeg_files
from benchmarks.workloads import Floats, MemoryImages

ROOT = Path(__file__).resolve().parents[1]
FILES, ROUNDS = 64, 3


class Pictures:
    """JPEG files, decoded, cropped and flipped: bytes, or numbers from 0 to 1."""

    def __init__(self, count: int, dtype: str) -> None:
        self.files, self.count, self.dtype = jpeg_files(FILES), count, dtype

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        pixels = cropped(Image.open(io.BytesIO(self.files[index % FILES])).convert("RGB"))
        if self.dtype == "uint8":
            pixels = (pixels * np.float32(255)).astype(np.uint8)
        return {"x": pixels, "y": index}


class Named:
    """A dataset of arrays, as one of dicts, which both sides take."""

    def __init__(self, kind: Any, count: int) -> None:
        self.dataset = kind(count)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = self.dataset[index]
        return {"x": sample[0] if isinstance(sample, tuple) else sample}


CASES: dict[str, tuple[Any, dict[str, Any], int]] = {
    "uint8": (Pictures, {"dtype": "uint8"}, 64),
    "float32": (Pictures, {"dtype": "float32"}, 64),
    "memory": (Named, {"kind": MemoryImages}, 256),
    "tiny": (Named, {"kind": Floats}, 32),
}


class Made:
    """Ray Data's way: an actor that makes the rows of a batch."""

    def __init__(self, case: str, count: int) -> None:
        kind, kwargs, _ = CASES[case]
        self.dataset = kind(count=count, **kwargs)

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        samples = [self.dataset[int(index)] for index in rows["id"]]
        return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}


def rows(case: str, batches: int) -> Any:
    import ray.data

    size = CASES[case][2]
    count = batches * size
    return ray.data.range(count).map_batches(
        Made, fn_constructor_args=(case, count), batch_size=size, concurrency=2, num_cpus=1
    )


def loader(case: str, batches: int, workers: int, engine: Any, consumers: int = 1) -> Any:
    from swift_loader import SwiftLoader

    kind, kwargs, size = CASES[case]
    settings = {"shuffle": False, "engine": engine, "validate": False}
    return SwiftLoader(kind, {"count": batches * size, **kwargs}, size, consumers, workers, **settings)


def went_through(batches: Any) -> tuple[int, float, float]:
    """How many there were, and the seconds and the CPU that they took, but for the first."""
    seen, began, cpu = 0, 0.0, 0.0
    for batch in batches:
        assert float(batch["x"].flatten()[0]) >= 0.0
        began, cpu = began or time.perf_counter(), cpu or time.process_time()
        seen += 1
    return seen, time.perf_counter() - began, time.process_time() - cpu


def child(side: str, case: str, count: int) -> None:
    """One side: prints seconds, and milliseconds of CPU for a batch."""
    import ray
    import ray.data
    import torch

    from swift_loader import RayEngine, SwiftLoader

    assert torch, SwiftLoader  # imported now, as a training script has done
    if side != "local":
        ray.init(num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    began = time.perf_counter()
    if side == "data":
        seen, on, used = went_through(rows(case, count).iter_torch_batches(batch_size=CASES[case][2]))
        took = time.perf_counter() - began
    else:
        engine = "local" if side == "local" else RayEngine(workers=2, workers_per_actor=2)
        with loader(case, count, 2 if side == "local" else 0, engine) as batches:
            batches.start(0)
            seen, on, used = went_through(batches)
            took = time.perf_counter() - began
    assert seen == count, seen
    print("took", took, on, 1000 * used / (count - 1))


def train(side: str, case: str, count: int) -> None:
    """The same in a TorchTrainer of two ranks: prints the seconds of the slower."""
    import ray
    import ray.train
    from ray.train.torch import TorchTrainer

    def each(where: dict[str, Any]) -> None:
        from swift_loader import RayEngine

        rank = ray.train.get_context().get_world_rank()
        began = time.perf_counter()
        if side == "data":
            shard = ray.train.get_dataset_shard("train")
            seen, on, _ = went_through(shard.iter_torch_batches(batch_size=CASES[case][2]))
        else:
            with loader(case, count, 0, RayEngine(workers=1), consumers=2) as batches:
                batches.start(rank)
                seen, on, _ = went_through(batches)
        took = time.perf_counter() - began
        Path(where["folder"], f"rank{rank}").write_text(f"{took} {on} {seen}")

    ray.init(num_cpus=6, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            each,
            train_loop_config={"folder": folder},
            scaling_config=ray.train.ScalingConfig(num_workers=2),
            run_config=ray.train.RunConfig(storage_path=folder),
            datasets={"train": rows(case, count)} if side == "data" else None,
        )
        trainer.fit()
        told = [Path(folder, f"rank{rank}").read_text().split() for rank in (0, 1)]
    assert sum(int(seen) for _, _, seen in told) >= count, told
    print("took", *max(told, key=lambda one: float(one[0]))[:2], 0.0)


def measured(what: str, side: str, case: str, count: int) -> tuple[float, float, float]:
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ray_workers", what, side, case, str(count)],
        cwd=ROOT, env={**os.environ, **token, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    _, took, on, cpu = next(line for line in done.stdout.splitlines() if line.startswith("took ")).split()
    return float(took), float(on), float(cpu)


def row(case: str, count: int, sides: tuple[str, str], rounds: int = ROUNDS, what: str = "child") -> list[float]:
    """Prints one; gives back the median seconds of both sides."""
    found = [[measured(what, side, case, count) for side in sides] for _ in range(rounds)]
    seconds = [statistics.median(one[at][0] for one in found) for at in (0, 1)]
    on = [statistics.median(one[at][1] for one in found) for at in (0, 1)]
    cpu = [statistics.median(one[at][2] for one in found) for at in (0, 1)]
    whole, rest = (statistics.median(one[0][at] / one[1][at] for one in found) for at in (0, 1))
    print(f"{case}, {count} batches: {sides[0]} / {sides[1]} {whole:.2f}, from the first batch on {rest:.2f}")
    for at, side in enumerate(sides):
        told = f"{seconds[at]:.2f} s, {on[at]:.2f} s from the first batch on, {cpu[at]:.2f} ms of CPU a batch"
        print(f"    {side:<6}{told}", flush=True)
    return seconds


def main() -> None:
    part = sys.argv[1]
    if part == "local":
        for case in sys.argv[2:] or ("uint8", "float32"):
            row(case, 150, ("local", "ray"))
    elif part == "decoding":
        short = row("uint8", 150, ("data", "ray"), rounds=1)
        long = row("uint8", 600, ("data", "ray"), rounds=1)
        further = [(b - a) / 450 for a, b in zip(short, long, strict=True)]
        print(
            f"a further batch: {1000 * further[0]:.1f} ms and {1000 * further[1]:.1f} ms, {further[0] / further[1]:.2f}"
        )
    elif part in ("memory", "tiny"):
        row(part, 100 if part == "memory" else 1000, ("data", "ray"))
    elif part == "train":
        row("uint8", 150, ("data", "ray"), rounds=1, what="train_child")
    elif part == "child":
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        train(sys.argv[2], sys.argv[3], int(sys.argv[4]))


if __name__ == "__main__":
    main()
