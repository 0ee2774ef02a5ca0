"""Where workers come from: a copy of the trainer where that is harmless, else a server that all loaders share."""

from __future__ import annotations

from pathlib import Path

from tests.watching import run_script, run_warm

#: What a script has that no other interpreter knows: its classes, settings, an open file, a module made by hand.
COPIED = """
import enum, os, sys, types, warnings
import psutil, torch
from torch.utils.data import Dataset
from swift_loader import SwiftLoader

torch.set_default_dtype(torch.float64)
made_by_hand = types.ModuleType("made_by_hand")
made_by_hand.FACTOR = 3
sys.modules["made_by_hand"] = made_by_hand
opened = open(__file__)

class Split(enum.Enum):
    TRAIN = 1

class Base(Dataset):
    def __init__(self, count):
        self.count, self.lines = count, (line for line in opened)
    def __len__(self):
        return self.count

class Set(Base):
    def __getitem__(self, index):
        import made_by_hand
        return torch.tensor(float(index)) * made_by_hand.FACTOR, hash("a name"), os.getppid(), Split.TRAIN.value

def commands():
    return [child.name() for child in psutil.Process().children()]

loader = SwiftLoader(Set, {"count": 8}, 4, 1, 2, shuffle=False)
{between}
with loader:
    loader.start(0)
    values, hashes, parents, splits = zip(*loader)
    (parent,) = {int(one) for batch in parents for one in batch}
    is_copy = psutil.Process(parent).cmdline() == psutil.Process().cmdline()
    opened.close()
    print(values[0].dtype, torch.cat(values).tolist() == [3.0 * i for i in range(8)],
          {int(one) for batch in hashes for one in batch} == {hash("a name")}, is_copy)
"""


def test_workers_have_all_that_the_script_has(tmp_path: Path):
    assert run_warm(tmp_path, COPIED.replace("{between}", "")) == "torch.float64 True True True\n"


def test_a_copy_is_made_beside_the_bars_of_tqdm_and_the_loaders_that_run(tmp_path: Path):
    between = """
import tqdm
quiet = open(os.devnull, "w")
bar = tqdm.tqdm(total=3, file=quiet)
assert tqdm.tqdm.monitor.is_alive()
other = SwiftLoader(Set, {"count": 8}, 4, 1, 2)
other.start(0)
import atexit
atexit.register(lambda: (other.close(), bar.close(), quiet.close()))
"""
    assert run_warm(tmp_path, COPIED.replace("{between}", between)) == "torch.float64 True True True\n"


HARMS = """
import os, sys, threading, types
from swift_loader.engines import copied

print(copied.harm())

go_on = threading.Event()
thread = threading.Thread(target=go_on.wait, name="somebody")
thread.start()
print(copied.harm())
go_on.set(); thread.join()

import _thread
lock = _thread.allocate_lock(); lock.acquire()
done = _thread.allocate_lock(); done.acquire()
_thread.start_new_thread(lambda: (lock.acquire(), done.release()), ())
while not copied.harm(): pass
print(copied.harm()[:26])
lock.release(); done.acquire()
while copied.harm(): pass

sys.modules["jax"] = types.ModuleType("jax")
print(copied.harm())
del sys.modules["jax"]

import numpy as np
held = np.ones((1 << 30) // 8 + (1 << 22))
print(copied.harm()[:18], copied.harm(holds_dataset=True))
del held

class Cuda:
    is_initialized = staticmethod(lambda: True)
torch = types.ModuleType("torch")
torch.cuda = Cuda
sys.modules["torch"] = torch
print(copied.harm())
sys.modules["torch"] = types.ModuleType("torch")

class Distributed:
    is_available = is_initialized = staticmethod(lambda: True)
    backends = "gloo"
    get_backend_config = staticmethod(lambda: Distributed.backends)
sys.modules["torch.distributed"] = Distributed
for Distributed.backends in ("gloo", "cpu:gloo,cuda:gloo", "nccl", "cpu:gloo,cuda:nccl", "mpi"):
    print(copied.harm())
"""


def test_what_makes_a_copy_harmful_is_told(tmp_path: Path):
    assert run_warm(tmp_path, HARMS).splitlines() == [
        "None",
        "other threads run (somebody)",
        "other threads run (thread ",
        "jax is loaded",
        "this process holds None",
        "torch.cuda was initialised",
        "None",
        "None",
        "there is a process group of nccl",
        "there is a process group of nccl",
        "there is a process group of mpi",
    ]


NATIVE = """
import ctypes, threading
from swift_loader.engines import copied
def named():
    ctypes.CDLL(None).prctl(15, b"tokio-runtime-w", 0, 0, 0)
    ready.set()
    go_on.wait()
ready, go_on = threading.Event(), threading.Event()
thread = threading.Thread(target=named, name="swift-stand-in")
thread.start()
ready.wait()
print(copied._strange_native_threads(set()), copied._strange_native_threads({thread.native_id}))
go_on.set()
"""


def test_threads_of_a_foreign_runtime_are_known_by_their_names(tmp_path: Path):
    assert run_warm(tmp_path, NATIVE) == "['tokio-runtime-w'] []\n"


SHARED = """
import multiprocessing, os, socket, subprocess, sys
from swift_loader import SwiftLoader
from tests.datasets import Numbers

class Lines:                                 # looks for each sample in a file that is open already
    def __init__(self, path):
        self.file = open(path, "rb")
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        self.file.seek(index * 8)
        return int(self.file.read(8))

class Held:                                  # asks a manager's process for each
    def __init__(self, held):
        self.held = held
    def __len__(self):
        return 200
    def __getitem__(self, index):
        return self.held[index]

def is_right(dataset, **settings):
    with SwiftLoader.from_dataset(dataset, 8, 1, 4, shuffle=False, **settings) as loader:
        loader.start(0)
        return [i for batch in loader for i in batch.tolist()] == list(range(len(dataset)))

with open("lines", "w") as file:
    file.writelines(f"{i:8}" for i in range(4000))
lines = Lines("lines")
print("files", is_right(lines), is_right(lines, share_dataset=True))
lines.file.close()
with multiprocessing.Manager() as manager:
    held = manager.dict({i: i for i in range(200)})
    print("managers", len(held) == 200, is_right(Held(held)), is_right(Held(held), share_dataset=True))

socket.setdefaulttimeout(30)
listening = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listening.getsockname())
client.settimeout(None)
server, _ = listening.accept()
with SwiftLoader(Numbers, {}, 8, 1, 1) as loader:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as cat:
        pass                                 # it ends as its pipe is closed: nothing was forked yet that holds it
    loader.start(0)
    next(iter(loader))
    address = listening.getsockname()
    server.close()
    print("blocks", os.get_blocking(client.fileno()), client.recv(1))  # the other end sees it at once
    listening.close()
    socket.create_server(address).close()    # and the port is free
    client.close()
"""


def test_a_copy_shares_no_place_in_a_file_nor_connection(tmp_path: Path):
    assert run_warm(tmp_path, SHARED).splitlines() == [
        "files True True",
        "managers True True True",
        "blocks True b''",
    ]


HASHES = """
import contextlib, sys
import psutil
from swift_loader import SwiftLoader
from tests.hashing import Animals

def maps(method, workers, kill=False):
    with SwiftLoader(Animals, {}, 6, 1, workers, shuffle=False, start_method=method, data_queue_size=1) as loader:
        loader.start(0)
        found = []
        for epoch in range(3):
            found += [batch.tolist() for batch in loader]
            if kill:
                family = [one for one in psutil.Process().children(recursive=True) if one.name().startswith("swift-")]
                for one in family:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()
        return {tuple(one) for one in found}

if len(sys.argv) == 1:
    print(len(maps("forkserver", 2) | maps("forkserver", 1, kill=True) | maps("spawn", 1)))
    print(len(maps("auto", 2) | maps("auto", 0)))
print(sorted(maps("forkserver", 2)))
"""


def test_all_workers_hash_alike_in_each_run_and_a_copy_as_its_trainer(tmp_path: Path):
    """All that are started by themselves, replacements and those of other loaders too."""
    first = run_script(tmp_path, HASHES, PYTHONHASHSEED="random").splitlines()
    assert first[:2] == ["1", "1"]
    assert run_script(tmp_path, HASHES, "again", PYTHONHASHSEED="random").splitlines() == first[2:]
