"""Whole loaders on an accelerator that was made for this: torch's own streams, events and pinned memory, without a GPU.

The stage, its driver and torch run as they do on CUDA; what the device is given, it does later, on threads of its own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.unit.device.fake_accelerator import build
from tests.unit.device.on_the_fake_accelerator import SCENES
from tests.watching import ROOT, begin_script, descendants, is_gone, until

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the accelerator is compiled with g++, which is not here"),
    pytest.mark.slow,  # half a minute of a compiler; that a slot is not reused too early, the simulated device shows
]


@pytest.fixture(scope="module")
def library(request):
    return build(request.config.cache.mkdir("fake_accelerator"))


@pytest.mark.parametrize("count", [24, 160])
def test_every_scene_on_the_accelerator_ends_well(library, count):
    """All in one process, since torch takes a device once and for good."""
    words = ["tests.unit.device.on_the_fake_accelerator", str(library), str(count)]
    command = [sys.executable, "-X", "faulthandler", "-m", *words]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stderr == ""
    outcomes = json.loads(run.stdout)
    assert list(outcomes) == [scene.__name__ for scene in SCENES]
    assert {scene: told for scene, told in outcomes.items() if told} == {}


FORGOTTEN = """
import sys
from tests.datasets import Pictures
from tests.loaders import made
from tests.unit.device.fake_accelerator import install

fake = install(sys.argv[1])
fake.fake_delays(300_000, 0)  # the interpreter ends while a copy is under way
loader = made(Pictures)
loader.start(0, "fdev:0")
batch = next(iter(loader))
print("done")
"""


def test_a_loader_that_was_forgotten_lets_the_interpreter_end_in_peace(library, tmp_path):
    with begin_script(tmp_path, FORGOTTEN, str(library)) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "done\n"), err
    assert not [line for line in err.splitlines() if "Warning" not in line and not line.startswith(" ")], err


INTERRUPTED = """
import os, sys
os.setpgid(0, 0)
from tests.datasets import Pictures
from tests.loaders import made
from tests.unit.device.fake_accelerator import install

fake = install(sys.argv[1])
fake.fake_delays(2_000, 1_000)
with made(Pictures, {"count": 1 << 30}, max_nb_batch_on_device=2) as loader:
    loader.start(0, "fdev:0")
    for step, batch in enumerate(loader):
        if step == 5:
            print("goes on", flush=True)
"""


def test_c4_ctrl_c_while_a_thread_lands_ahead_gives_one_traceback(library, tmp_path):
    with begin_script(tmp_path, INTERRUPTED, str(library)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "goes on\n"
        family = descendants(process.pid)
        begun = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert time.monotonic() - begun < 10  # to reach: 1 s
    assert process.returncode == -signal.SIGINT
    assert err.count("Traceback") == 1, err
    assert err.endswith("\nKeyboardInterrupt\n"), err
    until(lambda: not [one for one in family if not is_gone(one)])
