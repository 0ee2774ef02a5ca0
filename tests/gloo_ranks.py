"""Ranks of `torch.distributed` over gloo for tests: one process each, and what each of them tells.

A rank runs a script whose standard output is one JSON value. Knows nothing of what the script does.
"""

from __future__ import annotations

import json
import random
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.warm import Script
from tests.watching import begin_warm

#: Four ranks that import torch at the same time, on a busy machine of two cores.
DEADLINE_S = 150.0
#: Below are those of well-known services.
_LOWEST_PORT = 10_000


def run_ranks(folder: Path, script: str, *words: Any, world: int) -> list[Any]:
    """What each of ``world`` ranks told. All must end well, within one deadline for them all.

    The script finds its rank in the environment, as torchrun would have it, and ``words`` as JSON in ``sys.argv``.
    """
    arguments = [json.dumps(word) for word in words]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    with ExitStack() as stack:
        ranks: list[Script] = []
        for rank in range(world):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
            process = begin_warm(folder, script, *arguments, name=f"rank{rank}.py", **common, **own)
            ranks.append(stack.enter_context(process))
            stack.callback(process.kill)
        deadline = time.monotonic() + DEADLINE_S
        told = [process.communicate(timeout=max(0.1, deadline - time.monotonic())) for process in ranks]
    said = "\n".join(f"-- rank {rank}\n{out[-2000:]}\n{err[-4000:]}" for rank, (out, err) in enumerate(told))
    assert [process.returncode for process in ranks] == [0] * world, said
    return [json.loads(out) for out, _ in told]


def free_port() -> int:
    """A port on which nobody listens.

    Not one that the system would choose: it could give that to somebody's outgoing connection in the seconds before the
    ranks are ready to listen.
    """
    lowest, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    below = range(_LOWEST_PORT, int(lowest))
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().choice(below) if below else 0))
            port: int = probe.getsockname()[1]
            return port
