"""What a forked process looks at it has for itself, page by page: little is looked at, and little is loaded there."""

import subprocess
import sys
from types import ModuleType

from swift_loader.worker.libraries import libraries_since


class Counted(dict):
    """Modules that say when all of them are looked at."""

    def items(self):
        raise AssertionError("all were looked at")

    values = __iter__ = keys = items


def test_of_two_thousand_modules_only_those_that_came_since_are_looked_at(monkeypatch):
    modules = Counted(sys.modules)
    monkeypatch.setattr(sys, "modules", modules)
    before = len(modules)
    assert libraries_since(before) == []
    modules["of a library"] = subprocess
    modules["of the user"] = ModuleType("made by hand")
    assert libraries_since(before) == ["of a library"]


def test_a_module_that_was_thrown_out_meanwhile_does_no_harm(monkeypatch):
    modules = dict(sys.modules)
    monkeypatch.setattr(sys, "modules", modules)
    before = len(modules)
    del modules[next(iter(modules))]
    assert libraries_since(before) == []


def test_numpys_masked_arrays_are_not_loaded_to_collate_plain_ones():
    code = (
        "import sys, numpy as np; from swift_loader.batch.collate import spec_of; import swift_loader.worker.worker; "
        "spec_of((np.zeros(3), 1), 4); print('numpy.ma' in sys.modules, 'numpy.random' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
