"""What `swift-loader doctor` says of a machine: facts in, findings out. Pure.

A problem keeps loaders from working, or workers from ending with their trainer; advice costs speed or may surprise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from swift_loader.cli.facts import Facts
from swift_loader.pool.budget import files_needed
from swift_loader.telemetry.words import nbytes

Verdict = Literal["ok", "advice", "problem"]

_GB, _MB = 1 << 30, 1 << 20
#: Loaders of this many workers are typical on a node.
_WORKERS = 16
#: What a process needs to begin with: an interpreter with torch, and the slots of a modest batch.
_LITTLE_MEMORY, _SCARCE_MEMORY = 1 * _GB, 256 * _MB
#: A ring of slots of a usual image workload.
_USUAL_LOCKED = 1 * _GB
_LITTLE_TEMP = 256 * _MB
#: So many processes are named at a time: the command that ends them has a line.
_MOST_PIDS = 6


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    verdict: Verdict
    finding: str
    advice: str = ""
    """What to do, in words."""
    command: str = ""
    """What to type; a line for each of several ways."""


def diagnose(facts: Facts) -> list[Finding]:
    """All findings, in the order of the report."""
    return [one(facts) for one in CHECKS]


def _versions(facts: Facts) -> Finding:
    text = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    text += f", Linux {facts.kernel}" if facts.kernel else ""
    missing = [name for name in ("torch", "numpy") if name not in facts.versions]
    if missing:
        return Finding("versions", "problem", f"{text}; {missing[0]} is missing", "", f"pip install {missing[0]}")
    return Finding("versions", "ok", text)


def _memory_files(facts: Facts) -> Finding:
    name = "files in memory"
    if facts.memfd_refusal:
        return Finding(
            name, "problem", f"refused: {facts.memfd_refusal}",
            "Workers hand batches over in them. Have the seccomp profile of the container allow memfd_create, or work "
            "without workers: worker_per_consumer=0.", "docker run --security-opt seccomp=unconfined ...",
        )  # fmt: skip
    size = f"; no need of /dev/shm ({nbytes(facts.shared_memory, 1024)})" if facts.shared_memory else ""
    if not facts.seals:
        return Finding(
            name, "advice", f"there, but they cannot be sealed{size}",
            "Batches are safe from other users, not from a dataset that shrinks its own files in memory.",
        )  # fmt: skip
    if not facts.populates:
        return Finding(
            name, "advice", f"there, but not populated at once{size}",
            "New slots take longer, in the first moments of a run only. Linux 5.14 knows MADV_POPULATE_WRITE.",
        )  # fmt: skip
    return Finding(name, "ok", f"memfd, seals, populate{size}")


def _watching(facts: Facts) -> Finding:
    name = "watching workers"
    if facts.pidfd_refusal or facts.lifeline_refusal:
        what = "pidfd_open" if facts.pidfd_refusal else "F_SETSIG"
        return Finding(
            name, "problem", f"{what} is refused: {facts.pidfd_refusal or facts.lifeline_refusal}",
            "Without it a worker's death is not seen, or a worker outlives its trainer. It takes Linux 5.4 or later, "
            "and a sandbox that lets it pass (gVisor does not).",
        )  # fmt: skip
    if not facts.proc_is_mounted:
        return Finding(
            name, "advice", "pidfd, F_SETSIG; but /proc is not there",
            "Stopped workers are then found only after timeout_s, and free memory is guessed.",
            "mount -t proc proc /proc",
        )  # fmt: skip
    return Finding(name, "ok", "pidfd, F_SETSIG")


def _memory(facts: Facts) -> Finding:
    where = "within the job's limit" if facts.memory_is_limited else f"of {nbytes(facts.memory_total, 1024)}"
    text = f"{nbytes(facts.memory_free, 1024)} free {where}"
    if facts.memory_free < _LITTLE_MEMORY:
        verdict: Verdict = "problem" if facts.memory_free < _SCARCE_MEMORY else "advice"
        return Finding(
            "memory", verdict, text,
            "Half of it is what batches may take by default, and one batch a quarter of that. Give the job more, or "
            "take fewer workers and a smaller batch_size.",
            "docker run --memory=16g ...\nsbatch --mem=16G ..." if facts.memory_is_limited else "",
        )  # fmt: skip
    return Finding("memory", "ok", f"{text}; batches may take {nbytes(facts.memory_free // 2, 1024)}")


def _files(facts: Facts) -> Finding:
    soft, hard = facts.files
    needed = files_needed(_WORKERS)
    if 0 <= hard < needed:
        few = files_needed(1)
        return Finding(
            "open files", "problem" if hard < few else "advice", f"at most {hard:,}",
            f"{_WORKERS} workers need {needed:,}, one needs {few:,}. Raise the hard limit.",
            "ulimit -Hn 65536\ndocker run --ulimit nofile=65536 ...",
        )  # fmt: skip
    raised = "" if soft == hard or soft >= 1 << 16 else f", which loaders raise from {soft:,}"
    return Finding("open files", "ok", f"{'no limit' if hard < 0 else f'limit {min(hard, 1 << 16):,}'}{raised}")


def _processes(facts: Facts) -> Finding:
    allowed = [limit for limit in (facts.processes[0], facts.pids_left) if limit is not None and limit >= 0]
    left = min(allowed, default=None)
    if left is not None and left < 4 * _WORKERS:
        by_group = left == facts.pids_left
        return Finding(
            "processes", "problem" if left < 4 else "advice", f"{left:,} more are allowed" if by_group else f"{left:,}",
            f"A loader has one for each worker and one to start them, and each may have threads. Raise the limit of "
            f"the {'control group' if by_group else 'user'}, or take few workers.",
            "docker run --pids-limit=4096 ..." if by_group else "ulimit -u 4096",
        )  # fmt: skip
    return Finding("processes", "ok", "no limit near" if left is None else f"{left:,} allowed")


def _cores(facts: Facts) -> Finding:
    usable = min(facts.cores_allowed, facts.core_quota or facts.cores)
    parts = [f"{facts.cores} core{'s' if facts.cores > 1 else ''}"]
    if facts.cores_allowed < facts.cores:
        parts.append(f"{facts.cores_allowed} by affinity")
    if facts.core_quota is not None:
        parts.append(f"time for {facts.core_quota:g} by quota")
    text = ", ".join(parts)
    if usable < 2:
        return Finding(
            "cores", "advice", text,
            "Trainer and workers take turns on it: workers help only with datasets that wait (disk, network). "
            "worker_threads is for those.",
            "docker run --cpus=4 ...\nsbatch --cpus-per-task=4 ..." if usable < facts.cores else "",
        )  # fmt: skip
    if usable < facts.cores:
        return Finding(
            "cores", "advice", text, f"Plan for {usable:g}: all ranks' workers and trainers together, not more."
        )
    return Finding("cores", "ok", text)


def _threads(facts: Facts) -> Finding:
    name, usable = "library threads", min(facts.cores_allowed, facts.core_quota or facts.cores)
    known = {variable: int(text) for variable, text in facts.thread_variables.items() if text.isdigit()}
    # Others, such as MKL_NUM_THREADS, count for their own library where they are set, and this one for all.
    known.setdefault("OMP_NUM_THREADS", facts.cores_allowed)
    variable = max(known, key=lambda one: (known[one], one == "OMP_NUM_THREADS"))
    asked, count = facts.thread_variables.get(variable, ""), known[variable]
    told = f"{variable}={asked}" if asked else f"{variable} is not set"
    if count > usable:
        fitting = max(1, int(usable))
        return Finding(
            name, "advice", f"{told}: {count} in the trainer for {usable:g} cores",
            "They fight for the cores, with the workers too (workers have one each).",
            f"export {variable}={fitting}",
        )  # fmt: skip
    if not asked and usable > 1:
        return Finding(name, "ok", f"{count} in a trainer, 1 in a worker")
    return Finding(name, "ok", f"{count} in a trainer ({told}), 1 in a worker")


def _page_locks(facts: Facts) -> Finding:
    soft, hard = facts.locked
    if soft < 0 or soft >= _USUAL_LOCKED:
        return Finding("page locks", "ok", "no limit" if soft < 0 else f"up to {nbytes(soft, 1024)}")
    text = f"up to {nbytes(soft, 1024)}"
    if not facts.driver and not facts.gpus:
        return Finding("page locks", "ok", f"{text}; of no matter without a GPU")
    return Finding(
        "page locks", "advice", text,
        "Some drivers count slots, which are locked to be copied from without the processor. Where one refuses, "
        "copies take about twice as long, and a warning says so.",
        "ulimit -l unlimited\ndocker run --ulimit memlock=-1 ..." if hard != soft or hard >= 0 else "",
    )  # fmt: skip


def _gpu(facts: Facts) -> Finding:
    if facts.gpus:
        chosen = "" if facts.visible_devices is None else f" (CUDA_VISIBLE_DEVICES={facts.visible_devices})"
        return Finding("GPU", "ok", f"{facts.gpus} seen by torch, built for CUDA {facts.torch_cuda}{chosen}")
    if not facts.driver:
        return Finding("GPU", "ok", "none, and no driver: batches stay on the host")
    if facts.torch_cuda is None:
        return Finding(
            "GPU", "problem", "a driver is there, but this torch was built without CUDA",
            "Install one that was built with it: pytorch.org names the command for your driver.",
        )  # fmt: skip
    if facts.visible_devices is not None and facts.visible_devices.strip() in ("", "-1"):
        return Finding(
            "GPU",
            "advice",
            f"hidden: CUDA_VISIBLE_DEVICES is {facts.visible_devices!r}",
            "",
            "unset CUDA_VISIBLE_DEVICES",
        )
    return Finding(
        "GPU", "problem", f"a driver is there, but torch (CUDA {facts.torch_cuda}) sees no GPU",
        "The driver may be too old for this torch, or the container was started without GPUs.",
        "nvidia-smi\ndocker run --gpus all ...",
    )  # fmt: skip


def _numa(facts: Facts) -> Finding:
    if facts.numa_nodes < 2:
        return Finding("NUMA", "ok", "one node")
    return Finding(
        "NUMA", "advice", f"{facts.numa_nodes} nodes",
        "Slots lie where their worker runs. Start each rank on its GPU's node: its workers stay there too.",
        "numactl --cpunodebind=0 --membind=0 python train.py",
    )  # fmt: skip


def _tracing(facts: Facts) -> Finding:
    said = {
        None: "your own processes only (this kernel has no Yama)",
        0: "your own processes only",
        1: "parents only, as most distributions have it",
        2: "administrators only",
        3: "nobody",
    }
    text = said.get(facts.ptrace_scope, f"ptrace_scope={facts.ptrace_scope}")
    return Finding("debuggers", "ok", text)


def _temporary(facts: Facts) -> Finding:
    name = "temporary files"
    if facts.temp_refusal:
        return Finding(
            name, "advice", "no folder for them can be written to",
            "We write none, but torch and dill do, even when they are imported.", "export TMPDIR=/some/folder",
        )  # fmt: skip
    text = f"{nbytes(facts.temp_free, 1024)} free in {facts.temp_folder}"
    if facts.temp_free < _LITTLE_TEMP:
        return Finding(
            name, "advice", text, "We write none, but torch and others do.", "export TMPDIR=/a/larger/folder"
        )
    return Finding(name, "ok", text)


def _orphans(facts: Facts) -> Finding:
    if not facts.orphans:
        return Finding("earlier runs", "ok", "nothing is left of them")
    pids = " ".join(map(str, facts.orphans[:_MOST_PIDS]))
    return Finding(
        "earlier runs", "problem", f"{len(facts.orphans)} processes have lost their trainer: {pids}",
        "This should not happen: please report it, with how the trainer ended. They hold memory until they are ended.",
        f"kill -9 {pids}",
    )  # fmt: skip


CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    _versions, _memory_files, _watching, _memory, _files, _processes, _cores, _threads, _page_locks, _gpu, _numa,
    _tracing, _temporary, _orphans,
)  # fmt: skip
