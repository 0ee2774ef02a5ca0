"""A script in a fork of the warm interpreter is what it would be in an interpreter that was started for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import warm
from tests.watching import begin_script, begin_warm, run_warm

TELLS = """
import atexit, inspect, json, os, signal, sys, threading
from pathlib import Path
from dataclasses import dataclass

@dataclass
class Mine:
    number: int

atexit.register(print, "at the end")
threading.Thread(target=lambda: (threading.main_thread().join(), print("of a thread"))).start()
print(json.dumps({
    "words": sys.argv[1:], "file": __file__, "folder": os.getcwd(), "path": sys.path[0], "env": os.environ["MINE"],
    "main": [Mine.__module__, sys.modules["__main__"].Mine is Mine, __name__, inspect.getsource(Mine)],
    "threads": len(os.listdir("/proc/self/task")) - 1, "descriptors": sorted(os.listdir("/proc/self/fd"))[:3],
    "ours": [name for name in sys.modules if name.partition(".")[0] in ("swift_loader", "tests")],
    "children": Path(f"/proc/self/task/{os.getpid()}/children").read_text(),
    "signals": [str(signal.getsignal(one)) for one in (2, 13, 15)],
}))
"""


def test_a_script_finds_and_leaves_what_it_would_in_an_interpreter_of_its_own(tmp_path: Path):
    told = []
    for begin in (begin_script, begin_warm):
        with begin(tmp_path, TELLS, "one", "two words", MINE="yes") as script:
            out, err = script.communicate(timeout=60)
        assert (script.returncode, err) == (0, "")
        told.append(out.splitlines())
    assert told[1] == told[0]
    first, *rest = told[1]
    assert json.loads(first)["words"] == ["one", "two words"]
    assert rest == ["of a thread", "at the end"]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("import sys; sys.exit(3)", 3, ""), ("import os; os._exit(4)", 4, ""), ("1 / 0", 1, "ZeroDivisionError"),
        ("import os; os.abort()", -signal.SIGABRT, ""),
    ],
)  # fmt: skip
def test_however_it_ends_that_is_told(text: str, code: int, said: str, tmp_path: Path):
    with begin_warm(tmp_path, text) as script:
        _, err = script.communicate(timeout=60)
    assert script.returncode == code
    assert said in err


def test_one_that_does_not_end_is_told_and_can_be_killed(tmp_path: Path):
    with begin_warm(tmp_path, "import time; time.sleep(100)") as script:
        with pytest.raises(subprocess.TimeoutExpired):
            script.communicate(timeout=0.1)
        script.kill()
    assert script.returncode == -signal.SIGKILL


def test_several_run_at_the_same_time_and_draw_other_numbers(tmp_path: Path):
    text = "import random, sys, numpy, time; print(random.random(), numpy.random.random(), flush=True); time.sleep(0.1)"
    scripts = [begin_warm(tmp_path, text, name=f"{number}.py") for number in range(3)]
    drawn = []
    for one in scripts:
        with one:
            drawn += one.communicate(timeout=60)[0].split()
    assert len(set(drawn)) == 6


def test_after_it_has_died_there_is_another(tmp_path: Path):
    run_warm(tmp_path, "print(1)")
    (pid,) = warm.server.pids
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert run_warm(tmp_path, "print(2)") == "2\n"
