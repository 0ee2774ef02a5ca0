"""Loaders with workers on a Ray cluster, each case in a process of its own: ``python -m tests.on_ray CASE``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from swift_loader import ConfigError, DataError, RayEngine, SwiftLoader, WorkerStartFailed
from tests import served_loaders
from tests.served_loaders import plain
from tests.served_streams import ROOT
from tests.watching import until


@dataclass
class Pair:
    """A class of the script."""

    first: np.ndarray
    second: int


class Pairs(served_loaders.Rows):
    def __getitem__(self, index: int) -> Any:
        return Pair(np.arange(3) * index, index)


class Unbuilt:
    def __init__(self) -> None:
        raise FileNotFoundError("no such place as nowhere")

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        return index


def as_ray_wants_it() -> dict[str, str]:
    """The environment of all processes of one cluster."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return {**os.environ, **token, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}


def run(case: str, limit_s: float = 200.0) -> str:
    """Runs a case of this file; gives back what it has printed."""
    words = [sys.executable, "-m", "tests.on_ray", case]
    environment = {**as_ray_wants_it(), "SWIFT_RAY_FOLDER": (folder := tempfile.mkdtemp(prefix="ray-"))}
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextlib.contextmanager
def cluster(cpus: int = 2, **settings: Any) -> Iterator[Any]:
    import ray

    where = {"_node_ip_address": "127.0.0.1", "_temp_dir": os.environ["SWIFT_RAY_FOLDER"]}
    settings = {"include_dashboard": False, "log_to_driver": False, **where, **settings}
    try:
        yield ray.init(num_cpus=cpus, object_store_memory=100 << 20, **settings)
    finally:
        ray.shutdown()


def made(kind: Any, workers: int = 0, engine: Any = "local", **settings: Any) -> SwiftLoader:
    return SwiftLoader(kind, {}, 8, 1, workers, seed=7, engine=engine, **settings)


def stream(*args: Any, epochs: int = 2, **settings: Any) -> list[Any]:
    with made(*args, **settings) as loader:
        loader.start(0)
        return [[pickled(batch) for batch in loader] for _ in range(epochs)]


def pickled(batch: Any) -> Any:
    return ("Pair", plain(batch.first), plain(batch.second)) if isinstance(batch, Pair) else plain(batch)


def servers() -> list[str]:
    """The processes of servers that are there."""
    names = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            names.append(path.read_text().strip())
    return [name for name in names if name.startswith("swift-c0g")]


def alike() -> None:
    """The same stream from workers here, there and in both places; whatever batches are made of."""
    import ray

    two = RayEngine(workers=2, workers_per_actor=2)
    with cluster():
        expected = stream(served_loaders.Rows, 2)
        assert stream(served_loaders.Rows, 0, "ray") == expected
        assert stream(served_loaders.Rows, 1, RayEngine(workers=1)) == expected
        assert stream(Pairs, 0, two) == stream(Pairs, 2)
        assert stream(served_loaders.Named, 0, two) == stream(served_loaders.Named, 2)  # lent, not sent
        with made(served_loaders.Unsendable, 0, two, collate_fn=lambda rows: {"rows": rows, 7: {1, 2}}) as loader:
            loader.start(0)
            batches = iter(loader)
            first = next(batches)
            assert isinstance(first["rows"][0], served_loaders.Pair)
            assert [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)] == ["swift-c0g0"]
            until(lambda: servers() == ["swift-c0g0"], "one server")
            state = loader.state_dict()
            second = next(batches)
        with made(served_loaders.Unsendable, 2, collate_fn=lambda rows: {"rows": rows, 7: {1, 2}}) as loader:
            loader.load_state_dict(state)
            loader.start(0)
            assert next(iter(loader)) == second
        for workers, engine in ((0, two), (2, "local")):
            try:
                stream(served_loaders.Failing, workers, engine)
            except DataError as error:
                assert "row 21 is missing" in str(error)  # noqa: PT017 - of two loaders
                assert isinstance(error.__cause__, LookupError)  # noqa: PT017
                assert error.index == 21  # noqa: PT017
            else:
                raise AssertionError
        try:
            stream(Unbuilt, 0, two)
        except WorkerStartFailed as error:
            assert "could not build the dataset: FileNotFoundError: no such place" in str(error)  # noqa: PT017
        until(lambda: not servers(), "no server")
    print("alike")


class Unhurried(served_loaders.Rows):
    """Takes its time, so that one worker is not enough; where it must not, the same without."""

    def __init__(self) -> None:
        super().__init__(2400)

    def __getitem__(self, index: int) -> Any:
        if "SWIFT_HURRY" not in os.environ:
            time.sleep(0.008)
        return super().__getitem__(index)


def watched(workers: int, engine: Any, step_s: float) -> None:
    """Trains for an epoch, and prints a line for each batch; then a digest of all, and the longest wait."""
    digest, longest_s = hashlib.sha256(), 0.0
    with made(Unhurried, workers, engine) as loader:
        loader.start(0)
        batches = iter(loader)
        for step in range(len(loader)):
            began_s = time.monotonic()
            batch = next(batches)
            longest_s = max(longest_s, time.monotonic() - began_s)
            digest.update(repr(plain(batch)).encode())
            print("batch", step, round(time.monotonic() - began_s, 3), flush=True)
            time.sleep(step_s)
        lost = loader.statistics().get("servers_lost", 0)
    print("result", digest.hexdigest(), round(longest_s, 3), lost, flush=True)


def mixed() -> None:
    watched(1, RayEngine(workers=2, workers_per_actor=2), 0.03)


def slow_step() -> None:
    """For longer than Ray waits for a lost head."""
    watched(1, RayEngine(workers=2, workers_per_actor=2), 0.33)


def far_alone() -> None:
    watched(0, RayEngine(workers=2, workers_per_actor=2), 0.0)


def here() -> None:
    os.environ["SWIFT_HURRY"] = "1"
    watched(2, "local", 0.0)


def short() -> None:
    """A cluster that has no place: it is told; and an error where there are no other workers."""
    from swift_loader.engines import cluster as engine

    engine._PENDING_TOLD_S = 0.5
    with cluster(cpus=1):
        asked = RayEngine(workers=2, workers_per_actor=2, start_timeout_s=2.0)
        with warnings.catch_warnings(record=True) as told, made(Unhurried, 1, asked) as loader:
            warnings.simplefilter("always")
            loader.start(0)
            batches = iter(loader)
            until(lambda: next(batches) is not None and "asks for" in str([one.message for one in told]), "a note")
        (note,) = [str(one.message) for one in told if "asks for" in str(one.message)]
        print(note)
        try:
            stream(served_loaders.Rows, 0, asked)
        except WorkerStartFailed as error:
            print(error)


class Shipped(served_loaders.Rows):
    """Tells what it has found where it is built, and not where the trainer is."""

    def __init__(self) -> None:
        import beside  # there is none here

        super().__init__()
        print("built with", os.environ["SHIPPED"], beside.WORD, Path("shipped.txt").read_text(), flush=True)


def counted() -> None:
    """What Ray's own metrics, logs and state tell; what a job has shipped; and an example that is submitted."""
    import ray
    from ray.util import state

    folder = Path(os.environ["SWIFT_RAY_FOLDER"])
    (folder / "work").mkdir()
    (folder / "work" / "shipped.txt").write_text("a file")
    (folder / "beside").mkdir()
    (folder / "beside" / "__init__.py").write_text("WORD = 'a module'")
    job = {"working_dir": str(folder / "work"), "py_modules": [str(folder / "beside")]}
    shown = {"log_to_driver": True, "include_dashboard": True, "_system_config": {"metrics_report_interval_ms": 500}}
    with cluster(runtime_env=job, **shown) as there:
        try:
            stream(Shipped, 0, RayEngine(workers=1, runtime_env={"working_dir": str(folder / "work")}))
        except ConfigError as error:
            print(error)
        port = ray.nodes()[0]["MetricsExportPort"]
        engine = RayEngine(workers=2, workers_per_actor=2, runtime_env={"env_vars": {"SHIPPED": "a variable"}})
        with made(Shipped, 0, engine) as loader:
            loader.start(0)
            seen = sum(1 for _ in loader)

            def told() -> dict[str, float]:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                    lines = [line for line in page.read().decode().splitlines() if 'actor="swift-c0g0"' in line]
                return {line.split("{")[0]: float(line.split()[-1]) for line in lines}

            until(lambda: told().get("ray_swift_batches_made_total", 0) >= seen, "as many batches as were taken")
            print(sorted(told()))
            assert told()["ray_swift_batch_bytes_total"] > 0
            assert told()["ray_swift_batch_seconds_total"] > 0
            print([(actor.name, actor.state) for actor in state.list_actors()])
        words = [sys.executable, str(ROOT / "examples/ray/submit.py"), f"http://{there.dashboard_url}"]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=150)
        print(done.stdout, done.stderr if done.returncode else "")


def nowhere() -> None:
    """Without a cluster."""
    try:
        stream(served_loaders.Rows, 0, "ray")
    except ConfigError as error:
        print(error)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
