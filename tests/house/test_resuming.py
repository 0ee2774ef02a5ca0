"""The harness that kills jobs and begins them again sees what it is there to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import resuming

#: Counts to 50 and digests what it counted. ``how`` is what is wrong with it.
JOB = """
import ctypes, hashlib, os, pathlib, subprocess, sys, time

how, checkpoint = sys.argv[1], pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
if how == "fails":
    sys.exit("no such data")
if how == "has others":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
if how == "leaves a worker":
    named, names = os.pipe()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"swift-worker", 0, 0, 0)
        os.write(names, b"!")
        time.sleep(60)
    os.read(named, 1)
is_first = checkpoint and not checkpoint.exists()
step, total = 0, 0
if checkpoint and checkpoint.exists() and how != "begins anew":
    step, total = map(int, checkpoint.read_text().split())
    step += how == "loses a step"
while step < 50:
    step += 1
    total = (total * 31 + step) % 10**9
    print(f"step {step}", flush=True)
    if checkpoint and step % 5 == 0:
        checkpoint.with_name("new").write_text(f"{step} {total}")
        checkpoint.with_name("new").replace(checkpoint)
    if is_first and step == 30:
        time.sleep(60)  # it is killed here at the latest
if how != "says nothing":
    print("digest", hashlib.sha256(str(total).encode()).hexdigest())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def check(script: Path, how: str) -> list[str]:
    checkpoint = script.parent / "here"
    return resuming.check_that_it_resumes(script, how, checkpoint=checkpoint, steps=range(6, 30), seed=1)


def test_a_job_that_goes_on_where_it_was_passes(script: Path):
    assert resuming.steps_of(check(script, "alone")) == list(range(1, 51))
    assert resuming.run(script, "alone") == resuming.digest_of(resuming.lines_of(script, "alone"))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("begins anew", "began all over again"),
        ("loses a step", "other weights after it was killed"),
        ("fails", "no such data"),
        ("says nothing", "no digest was printed"),
    ],
)
def test_a_job_that_does_not_is_told(how: str, told: str, script: Path):
    with pytest.raises(AssertionError, match=told):
        check(script, how)


def test_a_worker_that_outlives_its_job_is_told_and_ended(script: Path, monkeypatch):
    monkeypatch.setattr(resuming, "GONE_WITHIN_S", 0.5)
    with pytest.raises(AssertionError, match=r"left are \['\d+ swift-worker'\]"):
        resuming.kill_at(script, "leaves a worker", "--checkpoint", str(script.parent / "here"), step=10)


def test_all_that_a_killed_job_has_started_is_gone(script: Path):
    """Sessions of their own do not help; that nothing is left is looked at after every test."""
    resuming.kill_at(script, "has others", "--checkpoint", str(script.parent / "here"), step=10)


def test_a_job_that_ends_before_the_step_is_told(script: Path):
    with pytest.raises(AssertionError, match="it ended before step 70"):
        resuming.kill_at(script, "alone", step=70)
