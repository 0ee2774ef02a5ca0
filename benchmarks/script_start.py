"""From the script to the first batch: seconds from constructing the loader in a script to the first batch in hand.

Measures: real scripts, each in an interpreter of its own, whose dataset class stands in the script, with `import torch`
at the top: the first loader, and the third one of the same process; where no copy of the script may be made (a thread
runs): at once, a second after the loader was constructed, and the third one; a class that imports torch only in
`__getitem__`, 8 and 16 workers; two ranks over gloo with one worker each. Beside it torch's DataLoader as it is (fork).

Leaves out: the imports of the script, which both sides pay before; and the second that one case waits. Beside them an
interpreter that only imports torch, since that is most of a start where no copy may be made.

Command: `python -m benchmarks.script_start`. The last table is `results/script_start.txt`.

Caveat: the import of torch alone takes 0.6 to 0.9 s on these machines, two at a time more than a second each.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from functools import partial

from benchmarks import duel, machine
from benchmarks.question import Case, Column, Goal, Question, Result, Settings, Side

SCRIPT = """
import json, os, sys, threading, time
TORCH
from swift_loader import SwiftLoader
how = json.loads(sys.argv[1])
if how["has_torch"]:
    from torch.utils.data import DataLoader, Dataset
else:
    Dataset = object

class InScript(Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        import torch
        return torch.full((128,), float(index)), index

def first_of(side):
    begun = time.perf_counter()
    if side == "torch":
        batches = iter(DataLoader(InScript(), 32, num_workers=how["workers"]))
        next(batches)
        return time.perf_counter() - begun
    loader = SwiftLoader(InScript, {}, 32, how["world"], how["workers"], seed=1)
    time.sleep(how["wait"])
    with loader:
        loader.start(rank)
        next(iter(loader))
        return time.perf_counter() - begun - how["wait"]

rank = int(os.environ.get("RANK", 0))
if how["world"] > 1:
    import torch.distributed as dist
    dist.init_process_group("gloo", rank=rank, world_size=how["world"])
    dist.barrier()
go_on = threading.Event()
if how["thread"]:
    threading.Thread(target=go_on.wait, daemon=True).start()
firsts = [first_of(how["side"]) for _ in range(3)]
if how["world"] > 1:
    dist.barrier()
    dist.destroy_process_group()
print(json.dumps(firsts))
"""


def run_script(_settings: Settings, which: int = 0, **how: object) -> Result:
    """Runs the script, on two ranks if there are two; the figure is the slower one's."""
    how = {"side": "swift", "workers": 2, "world": 1, "wait": 0.0, "thread": False, "has_torch": True, **how}
    text = SCRIPT.replace("TORCH", "import torch" if how["has_torch"] else "")
    world = int(str(how["world"]))
    with socket.create_server(("127.0.0.1", 0)) as free:
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    command = [sys.executable, "-c", text, json.dumps(how)]
    running = [
        subprocess.Popen(command, cwd=machine.ROOT, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(world)
    ]
    told = [json.loads(one.communicate(timeout=100)[0]) for one in running]
    if any(one.returncode for one in running):
        raise RuntimeError("a script failed; what it wrote to standard error tells why")
    firsts = [max(firsts) for firsts in zip(*told, strict=True)]
    return {"first_batch_s": firsts[which], **{f"loader_{at + 1}_s": value for at, value in enumerate(firsts)}}


def import_torch(_settings: Settings) -> Result:
    """What an interpreter takes that does nothing else: who cannot be forked from the script has to wait for one."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return {"first_batch_s": time.perf_counter() - begun}


def _pair(name: str, label: str, **how: object) -> list[Case]:
    torchs = {key: value for key, value in how.items() if key not in ("thread", "wait")}
    return [
        Case(name, f"ours, {label}", Side.OURS, partial(run_script, **how), group=label),
        Case(f"{name}_torch", f"torch, {label}", Side.TORCH, partial(run_script, side="torch", **torchs), group=label),
    ]


CASES = [
    *_pair("first", "first loader"),
    *_pair("third", "third loader", which=2),
    Case("at_once", "ours, beside a thread, at once", Side.OURS, partial(run_script, thread=True)),
    Case("later", "ours, beside a thread, after a second", Side.OURS, partial(run_script, thread=True, wait=1.5)),
    Case("third_beside", "ours, beside a thread, third loader", Side.OURS, partial(run_script, thread=True, which=2)),
    Case("late_torch_8", "ours, torch in __getitem__, 8", Side.OURS, partial(run_script, workers=8, has_torch=False)),
    Case(
        "late_torch_16", "ours, torch in __getitem__, 16", Side.OURS, partial(run_script, workers=16, has_torch=False)
    ),
    Case("import", "an interpreter that imports torch", Side.CEILING, import_torch),
    Case("alone", "no workers at all", Side.CEILING, partial(run_script, workers=0)),
    *_pair("ranks", "two ranks", workers=1, world=2),
]

QUESTION = Question(
    name="script_start",
    title="From the script to the first batch: a class in the script, torch at its top",
    metric="first_batch_s",
    unit="seconds",
    higher_is_better=False,
    cases=tuple(CASES),
    goals=(
        Goal("first loader, s", "first", at_most=0.1),
        Goal("third loader, s", "third", at_most=0.1),
        Goal("beside a thread, at once, s", "at_once", at_most=0.9),
        Goal("beside a thread, after a second, s", "later", at_most=0.1),
        Goal("beside a thread, third loader, s", "third_beside", at_most=0.1),
        Goal("torch in __getitem__, 8 workers, s", "late_torch_8", at_most=1.0),
        Goal("torch in __getitem__, 16 workers, s", "late_torch_16", at_most=1.5),
        Goal("two ranks, s", "ranks", at_most=1.0),
        Goal("first loader / torch", "first", "first_torch"),
        Goal("beside a thread, at once / import", "at_once", "import"),
        Goal("torch in __getitem__, 8 / import", "late_torch_8", "import"),
    ),
    columns=(Column("loader_1_s", "1st"), Column("loader_2_s", "2nd"), Column("loader_3_s", "3rd")),
)

QUESTIONS = (QUESTION,)

if __name__ == "__main__":
    raise SystemExit(duel.main(QUESTIONS))
