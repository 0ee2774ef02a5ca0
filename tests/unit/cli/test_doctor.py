"""The doctor: odd machines are seen for what they are, each with what to do; and this machine, for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swift_loader.cli import diagnosis, doctor, facts, main, trial
from swift_loader.cli.facts import Facts
from tests.watching import ROOT, until

GOOD = {"versions": {"swift_loader": "1", "Python": "3", "torch": "2", "numpy": "2"}, "kernel": "6"}
MB = 1 << 20

ODD = [
    ({"versions": {"Python": "3.12", "numpy": "2"}}, "versions", "problem", "torch is missing", "pip install torch"),
    ({"memfd_refusal": "not permitted"}, "files in memory", "problem", "refused: not permitted", "seccomp"),
    ({"seals": False}, "files in memory", "advice", "cannot be sealed", "shrinks"),
    ({"populates": False}, "files in memory", "advice", "not populated", "MADV_POPULATE_WRITE"),
    ({"pidfd_refusal": "not implemented"}, "watching workers", "problem", "pidfd_open is refused", "Linux 5.4"),
    ({"lifeline_refusal": "invalid"}, "watching workers", "problem", "F_SETSIG is refused: invalid", "outlives"),
    ({"proc_is_mounted": False}, "watching workers", "advice", "/proc is not there", "mount -t proc"),
    ({"memory_free": 700 * MB, "memory_is_limited": True}, "memory", "advice", "700 MB free within", "--memory="),
    ({"memory_free": 100 * MB}, "memory", "problem", "100 MB free of 32 GB", "smaller batch_size"),
    ({"files": (64, 128)}, "open files", "advice", "at most 128", "ulimit -Hn"),
    ({"files": (16, 16)}, "open files", "problem", "at most 16", "one needs"),
    ({"files": (1024, 4096)}, "open files", "ok", "limit 4,096, which loaders raise from 1,024", ""),
    ({"files": (1024, -1)}, "open files", "ok", "no limit, which loaders raise from 1,024", ""),
    ({"pids_left": 20}, "processes", "advice", "20 more are allowed", "--pids-limit"),
    ({"processes": (2, 2)}, "processes", "problem", "2", "ulimit -u"),
    ({"core_quota": 0.5}, "cores", "advice", "8 cores, time for 0.5 by quota", "--cpus="),
    ({"cores_allowed": 4}, "cores", "advice", "8 cores, 4 by affinity", "Plan for 4"),
    ({"cores": 1, "cores_allowed": 1}, "cores", "advice", "1 core", "worker_threads"),
    ({"core_quota": 2.5}, "library threads", "advice", "8 in the trainer for 2.5 cores", "OMP_NUM_THREADS=2"),
    ({"thread_variables": {"OMP_NUM_THREADS": "32"}}, "library threads", "advice", "OMP_NUM_THREADS=32", "fight"),
    ({"thread_variables": {"OMP_NUM_THREADS": "1"}}, "library threads", "ok", "1 in a trainer", ""),
    (
        {"thread_variables": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "64"}},
        "library threads",
        "advice",
        "MKL_NUM_THREADS=64: 64 in the trainer for 8 cores",
        "export MKL_NUM_THREADS=8",
    ),
    ({"locked": (65536, 65536), "driver": True, "gpus": 1}, "page locks", "advice", "up to 64 kB", "ulimit -l"),
    ({"locked": (65536, 65536)}, "page locks", "ok", "no matter without a GPU", ""),
    ({"driver": True, "torch_cuda": None}, "GPU", "problem", "built without CUDA", "pytorch.org"),
    ({"driver": True, "torch_cuda": "12.8"}, "GPU", "problem", "sees no GPU", "nvidia-smi"),
    ({"driver": True, "torch_cuda": "12.8", "visible_devices": ""}, "GPU", "advice", "hidden", "unset CUDA"),
    ({"driver": True, "torch_cuda": "12.8", "gpus": 2, "visible_devices": "0,1"}, "GPU", "ok", "2 seen", ""),
    ({"numa_nodes": 2}, "NUMA", "advice", "2 nodes", "numactl"),
    ({"ptrace_scope": 1}, "debuggers", "ok", "parents only", ""),
    ({"temp_refusal": "none"}, "temporary files", "advice", "no folder", "TMPDIR"),
    ({"temp_free": 10 * MB}, "temporary files", "advice", "10 MB free in /tmp", "TMPDIR"),
    ({"orphans": (12, 13)}, "earlier runs", "problem", "2 processes", "kill -9 12 13"),
]


@pytest.mark.parametrize(("odd", "name", "verdict", "finding", "advice"), ODD, ids=[repr(row[0]) for row in ODD])
def test_an_odd_machine_is_seen_with_what_to_do(odd: dict, name: str, verdict: str, finding: str, advice: str):
    findings = diagnosis.diagnose(Facts(**{**GOOD, **odd}))
    (found,) = [one for one in findings if one.name == name]
    assert found.verdict == verdict
    assert finding in found.finding
    assert advice in f"{found.advice}\n{found.command}"
    assert (found.verdict == "ok") == (found.advice == found.command == "")
    assert all(len(line) <= 80 for line in doctor.report(findings, has_colors=False).splitlines())


def test_a_good_machine_is_told_so_and_a_bad_one_is_counted():
    good = diagnosis.diagnose(Facts(**GOOD))
    assert {one.verdict for one in good} == {"ok"}
    assert doctor.report(good, has_colors=False).endswith("\n\nAll is well.")
    worse = diagnosis.diagnose(Facts(**GOOD, numa_nodes=4))
    assert doctor.report(worse, has_colors=False).splitlines()[-1].startswith("Loaders work here")
    worst = diagnosis.diagnose(Facts(**GOOD, orphans=(7,), memory_free=MB))
    assert doctor.report(worst, has_colors=True).splitlines()[-1].startswith("2 problems: ")
    assert "\033[31mproblem" in doctor.report(worst, has_colors=True)


@pytest.fixture(scope="module")
def told() -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "swift_loader.cli.main", "doctor", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_the_command_looks_at_this_machine_and_starts_a_loader(told: subprocess.CompletedProcess[str]):
    assert told.stderr == ""
    seen = json.loads(told.stdout)
    problems = [one for one in seen["findings"] if one["verdict"] == "problem"]
    assert told.returncode == bool(problems), problems
    assert seen["facts"]["versions"]["Python"] == sys.version.split()[0]
    assert seen["facts"]["cores_allowed"] == len(os.sched_getaffinity(0))
    assert seen["facts"]["memfd_refusal"] == ""
    assert seen["trial"]["failure"] == ""
    assert seen["trial"]["first_batch_s"] > 0
    assert seen["trial"]["samples_per_s"] > 0


def test_every_start_method_is_tried_on_this_machine(told: subprocess.CompletedProcess[str]):
    starts = json.loads(told.stdout)["start_methods"]
    assert [start["method"] for start in starts] == ["auto", "forkserver", "spawn", "fork"]
    assert all(start["failure"] == "" and start["first_batch_s"] > 0 for start in starts)


def test_a_start_method_that_fails_is_told_with_its_reason():
    well, failed = trial.Start("spawn", "", 0.25), trial.Start("forkserver", "WorkerStartFailed: no more")
    assert doctor.of_starts([well]) == ("start methods", "ok", "first batch of one worker: spawn 0.25 s", "", "")
    found = doctor.of_starts([failed, well])
    assert found.verdict == "advice"
    assert found.advice == "start_method='forkserver' failed: WorkerStartFailed: no more"
    assert doctor.of_starts([failed]).verdict == "problem"


def test_the_report_is_plain_where_nobody_looks(capsys: pytest.CaptureFixture[str]):
    code = main.main(["doctor", "--no-trial"])
    lines = capsys.readouterr().out.splitlines()
    assert code == any(line.startswith("problem") for line in lines)
    assert all(len(line) <= 80 and line.isascii() for line in lines)
    assert [line.split()[0] for line in lines if line and not line.startswith(" ")][:3] == ["ok"] * 3


def test_a_trial_that_fails_is_a_problem_with_its_reason():
    tried = trial.run(100_000)
    assert tried.failure.startswith("ConfigError: 100000 workers need a limit of")
    assert doctor.of_trial(tried).verdict == "problem"


ORPHAN = """
import os, sys, time
from swift_loader.worker.guard import set_name
ends = os.pipe()  # its lifeline: the trainer has one end, and it the other
pid = os.fork()
if pid:
    print(pid, flush=True)
    sys.stdin.read()
    os._exit(0)
set_name("swift-worker-c0w1")
os.close(ends[1])
time.sleep(60)
"""


def test_a_worker_whose_trainer_is_gone_is_found_and_no_other_whatever_trainers_are_called():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", ORPHAN], **pipes, text=True, cwd=ROOT) as trainer:
        pid = int(trainer.stdout.readline())
        try:
            until(lambda: Path(f"/proc/{pid}/comm").read_text() == "swift-worker-c0\n", "its name")
            assert pid not in facts.gather().orphans
            trainer.stdin.close()
            assert trainer.wait(20) == 0
            until(lambda: pid in facts.gather().orphans, "the orphan")
        finally:
            os.kill(pid, 9)
    until(lambda: pid not in facts.gather().orphans, "its end")  # also where nobody has waited for it yet
