"""Kills a writer at random moments and calls it again, until the set is there: run by test_a_killed_writer_goes_on.py.

Arguments: the folder, how many kills, and whether files get hidden names, as on disks that have none without.
"""

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from swift_loader import shards
from swift_loader.shards import folder as folders
from tests.unit.shards.sources import Mixed, digests


def write(folder):
    """The writer."""
    shards.create(Mixed(), folder, maxsize="40KB")


def child(folder, delay_s):
    """Whether a writer came to its end before it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            write(folder)
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    time.sleep(delay_s)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("the writer failed")
    return os.WIFEXITED(status)


def main(folder, kills, hidden):
    """Prints how many writers were killed, in how many sets, and how often shards were found."""
    if hidden:
        folders._NAMELESS = os.O_RDWR | os.O_DIRECTORY
    rng = random.Random(kills)
    began = time.monotonic()
    write(folder / "undisturbed")
    whole_s, expected = time.monotonic() - began, digests(folder / "undisturbed")
    killed = sets = found = 0
    while killed < kills:
        here = folder / "killed"
        while not child(here, rng.uniform(0, whole_s)):
            killed += 1
            found += any(here.glob("shard-*"))
            for name, digest in digests(here).items() if here.exists() else ():
                assert expected[name] == digest, "half of a file was seen"
        assert digests(here) == expected
        left = {path.name for path in here.iterdir()} - set(expected)
        assert not left, f"left behind: {left}"
        assert shards.verify(here) == []
        sets += 1
        shutil.rmtree(here)
    print(killed, sets, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "hidden")
