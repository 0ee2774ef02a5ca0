"""Two hosts of one Ray cluster on this machine: network namespaces with addresses of their own, and a link between.

    with two_hosts(folder) as hosts: hosts.inside(0, words, ...)

The first has the head of the cluster and the trainer, the second all that is called "there". Needs root and iproute2.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.namespaces import ip
from tests.served_streams import ROOT

_HERE, _THERE = "10.77.0.1", "10.77.0.2"
_PORT = 6399
_UP_S = 60.0


class Hosts:
    """Both of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = [f"swift{end}{os.getpid()}" for end in "ab"]
        self.links = [f"sw{end}{os.getpid()}"[:15] for end in "ab"]
        self.environment = {
            **os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT), "RAY_ADDRESS": f"{_HERE}:{_PORT}",
        }  # fmt: skip

    def make(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        one, other = self.links
        ip("link", "add", one, "netns", self.names[0], "type", "veth", "peer", "name", other, "netns", self.names[1])
        for name, link, address in zip(self.names, self.links, (_HERE, _THERE), strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")

    def words(self, host: int, words: Sequence[str]) -> list[str]:
        """What runs a command on one of them."""
        return ["ip", "netns", "exec", self.names[host], *words]

    def start_head(self) -> None:
        words = ["--head", f"--node-ip-address={_HERE}", f"--port={_PORT}", "--num-cpus=0", "--include-dashboard=false"]
        self._start(0, [*words, f"--temp-dir={self.folder}"])

    def start_there(self) -> None:
        self._start(1, [f"--address={_HERE}:{_PORT}", f"--node-ip-address={_THERE}", "--num-cpus=2"])

    def _start(self, host: int, words: Sequence[str]) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *words, f"--object-store-memory={100 << 20}"]
        subprocess.run(
            self.words(host, command),
            env=self.environment, cwd=ROOT, check=True, capture_output=True, timeout=_UP_S,
        )  # fmt: skip

    def cut(self) -> None:
        """Nothing goes between them any more."""
        ip("-n", self.names[1], "link", "set", self.links[1], "down")

    def join(self) -> None:
        ip("-n", self.names[1], "link", "set", self.links[1], "up")

    def pids(self, host: int, word: str = "") -> list[int]:
        """The processes there, or those whose command or name begins with this."""
        words = ["ip", "netns", "pids", self.names[host]]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=10)
        found = []
        for pid in map(int, done.stdout.split()):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                if command.startswith(word) or Path(f"/proc/{pid}/comm").read_text().startswith(word):
                    found.append(pid)
        return found

    def kill(self, host: int, word: str = "") -> None:
        for pid in self.pids(host, word):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        """Whatever has happened: no process, no namespace, no link is left."""
        for _ in range(50):
            for host in (0, 1):
                self.kill(host)
            if not any(self.pids(host) for host in (0, 1)):
                break
            time.sleep(0.1)
        for name in self.names:
            with contextlib.suppress(subprocess.SubprocessError):
                ip("netns", "del", name)


@contextlib.contextmanager
def two_hosts(folder: Path, *, both: bool = True) -> Iterator[Hosts]:
    hosts = Hosts(folder)
    try:
        hosts.make()
        hosts.start_head()
        if both:
            hosts.start_there()
        yield hosts
    finally:
        hosts.end()
