"""Whole loaders on an accelerator that was made for this: torch's own streams, events and pinned memory, without a GPU.

The stage, its driver and torch run as they do on CUDA; what the device is given, it does later, on threads of its own.
"""

import json
import shutil
import subprocess
import sys

import pytest

from tests.unit.device.fake_accelerator import build
from tests.unit.device.on_the_fake_accelerator import SCENES
from tests.watching import ROOT, begin_script

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the accelerator is compiled with g++, which is not here"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("accelerator"))


@pytest.fixture(scope="module")
def outcomes(library):
    """What became of each scene; all in one process, since torch takes a device once and for good."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.unit.device.on_the_fake_accelerator", str(library)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stderr == ""
    return json.loads(run.stdout)


@pytest.mark.parametrize("scene", [scene.__name__ for scene in SCENES])
def test_on_the_accelerator(outcomes, scene):
    assert not outcomes[scene], outcomes[scene]


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
