"""An interpreter that has imported torch, and becomes a script each time it is asked to: a fork instead of a start.

A start and torch take most of a second of a core; the fork takes milliseconds. What runs is the script's own process,
with its own environment, folder and output, and it ends as an interpreter ends. Only what is outside of the project has
been imported. Not for tests of what a start or an end is like, nor of what an environment says to one (PYTHON*, but for
PYTHONWARNINGS, which is heard).

    with Script(folder, (str(path), *words), env) as script:
        out, err = script.communicate(timeout=100)

Words may begin with ``-m`` or ``-c``, as Python's own. With ``mounts``, shell commands, the script has a mount
namespace of its own, in which these have run.

Imports nothing of the tests, since scripts are to find it as it is without them.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import importlib.util
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
import warnings
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
_MOST_NBYTES = 1 << 17
_CLONE_NEWNS = 0x00020000


class _Server:
    """The interpreter, as the tests of this process know it. It begins when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    @property
    def pids(self) -> set[int]:
        """Its process."""
        return set() if self._process is None else {self._process.pid}

    @property
    def fds(self) -> set[int]:
        """What this process holds for it."""
        return set() if self._socket is None else {self._socket.fileno()}

    def fork(self, asked: dict[str, Any], fds: list[int]) -> tuple[int, int]:
        """Has a script run; gives back its pid and a pidfd."""
        if self._process is not None and self._process.poll() is not None:  # a test has killed it: there is another
            self.end()
        if self._socket is None:
            self._begin()
        assert self._socket is not None
        try:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], fds)
            answer, (pidfd,), _, _ = socket.recv_fds(self._socket, 64, 1)
        except (OSError, ValueError):  # it has died: the next script has another
            self.end()
            raise
        return int(answer), pidfd

    def end(self) -> None:
        """Ends it, and with it none of its scripts."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait(60)
        self._socket = self._process = None

    def _begin(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default::ResourceWarning"},
                pass_fds=[theirs.fileno()],
                stdout=subprocess.DEVNULL,
            )
        self._socket.settimeout(60)


server = _Server()


class Script:
    """A script that runs in a fork of the warm interpreter; as `subprocess.Popen`, as far as tests ask for it."""

    def __init__(self, folder: Path, words: tuple[str, ...], env: dict[str, str], mounts: str = "") -> None:
        self.returncode: int | None = None
        self._read_nbytes = 0
        asked = {"words": words, "folder": str(folder), "env": env, "mounts": mounts}
        with contextlib.ExitStack() as stack:
            # Files, not pipes: nobody has to read them meanwhile.
            self._out, self._err = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
            self._status, theirs = os.pipe()
            stack.callback(os.close, self._status)
            try:
                self.pid, self._pidfd = server.fork(asked, [self._out.fileno(), self._err.fileno(), theirs])
            finally:
                os.close(theirs)
            stack.callback(os.close, self._pidfd)
            self._held = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._held:
            self.wait(60)

    def kill(self) -> None:
        """As `subprocess.Popen.kill`."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        """As `subprocess.Popen.wait`."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"script {self.pid}", timeout)
            self.returncode = int(os.read(self._status, 16))
        return self.returncode

    def readline(self, timeout: float = 60.0) -> str:
        """The next line that it prints, as soon as that is there; nothing where it has ended before."""
        deadline = time.monotonic() + timeout
        while True:
            has_ended = self.returncode is not None or bool(select.select([self._status], [], [], 0)[0])
            # Not by the file object: the place in the file is the script's, which writes there.
            line, end, _ = os.pread(self._out.fileno(), _MOST_NBYTES, self._read_nbytes).partition(b"\n")
            if end or has_ended:
                self._read_nbytes += len(line) + len(end)
                return (line + end).decode()
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"script {self.pid}", timeout)
            time.sleep(0.002)

    def send_signal(self, number: int) -> None:
        """As `subprocess.Popen.send_signal`."""
        if self.returncode is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """As `subprocess.Popen.communicate`; what was read line by line is there too."""
        self.wait(timeout)
        found = []
        for file in (self._out, self._err):
            file.seek(0)
            found.append(file.read())
        return found[0], found[1]


def _serve(asking: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Forks for each that asks. Comes back in the fork with what was asked for, and at the end with nothing."""
    running: dict[int, tuple[int, int]] = {}  # by pidfd: its pid, and where its end is told
    while True:
        ready, _, _ = select.select([asking, *running], [], [])
        for pidfd in running.keys() & set(ready):
            pid, told = running.pop(pidfd)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.write(told, str(code).encode())
            os.close(told)
            os.close(pidfd)
        if asking not in ready:
            continue
        data, fds, _, _ = socket.recv_fds(asking, _MOST_NBYTES, 3)
        if not data:
            return None
        if (pid := os.fork()) == 0:
            for pidfd, (_, told) in running.items():
                os.close(pidfd)
                os.close(told)
            asking.close()
            return json.loads(data), fds
        os.close(fds[0])
        os.close(fds[1])
        pidfd = os.pidfd_open(pid)
        running[pidfd] = (pid, fds[2])
        socket.send_fds(asking, [str(pid).encode()], [pidfd])


def _become(asked: dict[str, Any], fds: list[int]) -> types.CodeType:
    """Makes this process what an interpreter is that has been started with that script."""
    for number, fd in enumerate(fds[:2], start=1):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    os.environ.clear()
    os.environ.update(asked["env"])
    if asked["mounts"]:
        _mount(asked["mounts"])
    os.chdir(asked["folder"])
    tempfile.tempdir = None
    random.seed()
    sys.modules["numpy"].random.seed()
    sys.warnoptions[:] = filter(None, os.environ.get("PYTHONWARNINGS", "").split(","))
    warnings._processoptions(sys.warnoptions)  # type: ignore[attr-defined] # as a start does it
    sys.orig_argv[:] = [sys.executable, *asked["words"]]
    main = types.ModuleType("__main__")
    code = _read(asked["words"], main)
    sys.path_importer_cache.clear()
    sys.modules["__main__"] = main
    return code


def _mount(commands: str) -> None:
    """Nobody else sees what these mount."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    alone = "mount --make-rprivate /"
    subprocess.run(["/bin/sh", "-c", f"{alone} && {commands}"], check=True, timeout=60)


def _read(words: list[str], main: types.ModuleType) -> types.CodeType:
    """What is to run; ``main`` and the paths are told of it as Python tells them."""
    if words[0] == "-m":
        sys.path[0] = str(Path.cwd())
        spec = importlib.util.find_spec(words[1])
        assert spec is not None
        loader = spec.loader
        assert isinstance(loader, SourceFileLoader)
        main.__dict__.update(
            __builtins__=builtins, __file__=spec.origin, __cached__=spec.cached, __spec__=spec, __loader__=loader,
            __package__=spec.parent,
        )  # fmt: skip
        sys.argv[:] = [str(spec.origin), *words[2:]]
        code = loader.get_code(words[1])
        assert code is not None
        return code
    if words[0] == "-c":
        sys.path[0] = ""
        main.__dict__.update(__builtins__=builtins, __loader__=BuiltinImporter)
        sys.argv[:] = ["-c", *words[2:]]
        return compile(words[1], "<string>", "exec")
    path = str(Path(words[0]).absolute())
    sys.path[0] = str(Path(path).parent)
    main.__dict__.update(
        __builtins__=builtins, __file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path)
    )
    sys.argv[:] = words
    return compile(Path(path).read_text(encoding="utf-8"), path, "exec")


def _main() -> None:
    import torch  # noqa: F401 - for those to come

    with socket.socket(fileno=int(sys.argv[1])) as asking:
        found = _serve(asking)
    if found is not None:
        code = _become(*found)
        del found
        exec(code, sys.modules["__main__"].__dict__)


if __name__ == "__main__":
    _main()
