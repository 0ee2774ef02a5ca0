"""Builds the accelerator of fake_accelerator.cpp and shows it to torch as ``torch.fdev``, as if it were ``torch.cuda``.

A process that has it has it for good, so only scripts of their own process install it.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import subprocess
import sys
import types
from pathlib import Path

import torch

SOURCE = Path(__file__).with_suffix(".cpp")
DEVICE_COUNT = 2


def build(folder):
    """The library, in ``folder``: compiled there, unless it was already of this source for this torch.

    It takes seconds; of several processes that want it, one compiles it and the others wait.
    """
    made_of = hashlib.sha256(SOURCE.read_bytes() + f"{torch.__version__} {sys.version}".encode()).hexdigest()[:16]
    library = Path(folder) / f"fake_accelerator-{made_of}.so"
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(library)
    return library


def _compile(library):
    root = Path(torch.__file__).parent
    abi, new = int(torch.compiled_with_cxx11_abi()), library.with_suffix(".new")
    command = ["g++", "-O1", "-std=c++20", "-fPIC", "-shared", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
    command += [f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include", str(SOURCE), "-o", str(new)]
    command += [f"-L{root}/lib", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{root}/lib"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    new.rename(library)


class Runtime:
    """What ``torch.cuda.cudart()`` gives."""

    def __init__(self, library):
        self._library = library

    def cudaHostRegister(self, address, nbytes, flags):  # noqa: N802 - its name
        assert flags == 1
        return self._library.fake_lock(ctypes.c_size_t(address), ctypes.c_size_t(nbytes))

    def cudaHostUnregister(self, address):  # noqa: N802 - its name
        return self._library.fake_unlock(ctypes.c_size_t(address))

    def cudaError(self, code):  # noqa: N802 - its name
        return code

    def cudaGetErrorString(self, code):  # noqa: N802 - its name
        return {2: "out of memory", 712: "already locked", 713: "not locked"}[code]


def install(path):
    """Loads the library; gives it back, for its switches and counters."""
    torch.utils.rename_privateuse1_backend("fdev")
    library = ctypes.CDLL(str(path))
    for name in ("fake_late_copies", "fake_early_copies", "fake_live_nbytes", "fake_locked_count"):
        getattr(library, name).restype = ctypes.c_int64
    library.fake_delays.argtypes = (ctypes.c_int64, ctypes.c_int64)
    library.fake_install()
    module = types.ModuleType("torch.fdev")
    module.is_available = lambda: True
    module.device_count = lambda: DEVICE_COUNT
    module.current_device = torch.accelerator.current_device_index
    module.device = _device
    module.Stream = lambda device: torch.Stream(device=device)
    module.Event = lambda blocking=False: torch.Event("fdev", blocking=blocking)
    module.stream = lambda stream: stream
    module.current_stream = torch.accelerator.current_stream
    module.cudart = lambda: Runtime(library)
    torch._register_device_module("fdev", module)
    torch.utils.generate_methods_for_privateuse1_backend()
    torch.empty(1).pin_memory()  # from here on torch asks the device what is pinned
    sys.modules["torch.fdev"] = module
    return library


class _device:  # noqa: N801 - as torch.cuda.device
    def __init__(self, device):
        self._index = torch.device(device).index

    def __enter__(self):
        self._before = torch.accelerator.current_device_index()
        torch.accelerator.set_device_index(self._index)

    def __exit__(self, *_):
        torch.accelerator.set_device_index(self._before)
