"""A network of this machine's own: a namespace with a server in it, and a link to it that can be cut. Needs root."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

_numbers = itertools.count()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@dataclass(frozen=True)
class Network:
    """A namespace, reached from here over one link."""

    name: str
    link: str
    here: str
    there: str

    @property
    def enter(self) -> list[str]:
        """The words before a command that runs in there."""
        return ["ip", "netns", "exec", self.name]

    def cut(self) -> None:
        """Nobody is told."""
        # At the far end: were it this one, the way there would be another, and somebody else might answer.
        ip("-n", self.name, "link", "set", "eth0", "down")

    def mend(self) -> None:
        ip("-n", self.name, "link", "set", "eth0", "up")

    def swallow(self) -> None:
        """What is sent from there vanishes; what is sent from here arrives."""
        ip("-n", self.name, "route", "add", "blackhole", f"{self.here}/32")

    def mend_swallowing(self) -> None:
        ip("-n", self.name, "route", "del", "blackhole", f"{self.here}/32")

    def slow_down(self, rate: str) -> None:
        """So much a second, as ``tc`` says it, from there to here."""
        words = ["dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
        subprocess.run(["tc", "-n", self.name, "qdisc", "add", *words], check=True, capture_output=True, timeout=30)


@contextlib.contextmanager
def network() -> Iterator[Network]:
    number = next(_numbers)
    name = f"swift{os.getpid()}n{number}"
    link = f"sw{os.getpid() % 1_000_000}n{number}"
    net = f"10.{199 + number % 50}.{os.getpid() % 250}"
    made = Network(name, link, f"{net}.1", f"{net}.2")
    try:
        ip("netns", "add", name)
        ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("addr", "add", f"{made.here}/24", "dev", link)
        ip("link", "set", link, "up")
        ip("-n", name, "addr", "add", f"{made.there}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield made
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=30)
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True, timeout=30)


def can_be_made() -> bool:
    """Whether this user may make one here."""
    try:
        with network():
            return True
    except (OSError, subprocess.SubprocessError):
        return False
