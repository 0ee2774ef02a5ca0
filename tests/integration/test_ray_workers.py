"""Loaders with workers on a Ray cluster: the stream is that of the same loader here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from swift_loader import ConfigError, RayEngine, SwiftLoader
from tests import on_ray


def test_workers_on_a_cluster_give_what_workers_here_give():
    assert on_ray.run("alike") == "alike\n"


@pytest.mark.slow
def test_a_cluster_without_room_is_told_and_workers_here_go_on():
    note, error = on_ray.run("short").splitlines()
    for text in (note, error):
        assert "the Ray actor swift-c0g0 has waited" in text
        assert "it asks for {'CPU': 2}; there are {'CPU': 1} in all, of which {'CPU': 1} are free" in text
    assert note.endswith("It is used as soon as it has one")
    assert error.startswith("swift-worker-c0w0 could not be started: ")


def script(*words: str) -> str:
    """What an example, or the command, prints on a cluster of its own."""
    folder = tempfile.mkdtemp(prefix="ray-")
    environment = {**on_ray.as_ray_wants_it(), "RAY_TMPDIR": folder}
    environment.pop("RAY_ADDRESS", None)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *words],
            cwd=on_ray.ROOT, env=environment, capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_ray_tells_what_its_actors_do_gives_them_what_the_job_has_shipped_and_takes_an_example_as_a_job():
    pytest.importorskip("opentelemetry.exporter.prometheus", reason="metrics pages, and submitting, need ray[default]")
    told = on_ray.run("counted")
    assert "Folders are shipped with a job, and not for an actor: ray.init(runtime_env=...)" in told
    assert told.count("built with a variable a module a file") == 2  # each of both workers, in the trainer's output
    names = ["batch_bytes_total", "batch_seconds_total", "batches_made_total", "batches_waiting"]
    assert str([f"ray_swift_{name}" for name in names]) in told
    assert "[('swift-c0g0', 'ALIVE')]" in told
    assert told.count("2048 different pictures") == 2  # the job


@pytest.mark.slow
def test_the_demo_has_its_workers_on_a_cluster_of_its_own():
    told = script("-m", "swift_loader.cli.main", "demo", "--ray", "--epochs", "2")
    assert "test accuracy" in told
    assert "swift-c0g0" in told


@pytest.mark.slow
def test_the_page_runs_as_it_is_pasted(tmp_path: Path):
    page = (on_ray.ROOT / "swift_loader" / "docs" / "ray.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "squares.py").write_text(code)
    assert len(re.findall(r"^tensor\(", script(str(tmp_path / "squares.py")), re.MULTILINE)) == 8


@pytest.mark.slow
def test_an_example_trains_without_ray_train():
    told = script("examples/ray/plain.py")
    assert told.count("2048 different pictures") == 2


@pytest.mark.soak
def test_an_example_trains_with_ray_train():
    assert re.search(r"loss [\d.]+ in epoch 3", script("examples/ray/train.py"))


@pytest.mark.slow
def test_an_example_goes_on_from_its_checkpoint_when_a_rank_has_died():
    told = script("examples/ray/train.py", "--fail-once")
    assert re.search(r"loss [\d.]+ in epoch 3", told)
    assert re.search(r"rank [01] goes on in epoch 1", told)


@pytest.mark.slow
def test_without_a_cluster_it_is_said_how_to_have_one():
    assert "Start one (ray start --head), call ray.init()" in on_ray.run("nowhere")


def test_without_ray_a_sentence_tells_what_to_install():
    script = (
        "import sys; sys.modules['ray'] = None\n"
        "from swift_loader import SwiftLoader\n"
        "SwiftLoader(list, {'x': 1}, 1, 1, 0, engine='ray')\n"
        "from swift_loader.engines import ray\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert "need the package ray: pip install 'swift-loader[ray]'" in done.stderr


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("rey", "did you mean 'ray'"),
        (7, "'local', 'ray' or a RayEngine"),
        ({"workers": 2}, "'local', 'ray' or a RayEngine"),
    ],
)
def test_an_engine_that_there_is_not_is_refused(engine: object, words: str):
    with pytest.raises(ConfigError, match=words):
        SwiftLoader(range, {}, 1, 1, 0, engine=engine)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("workers", 0), ("workers_per_actor", 1.5), ("placement", "everywhere"), ("ports", (5, 4)), ("ports", 7),
        ("resources", 3), ("runtime_env", "here"), ("address", ""), ("start_timeout_s", 0),
    ],
)  # fmt: skip
def test_a_setting_of_the_engine_is_checked_where_it_is_written(word: str, value: object):
    with pytest.raises(ConfigError, match=word):
        RayEngine(**{word: value})
