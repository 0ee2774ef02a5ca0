"""What is set in one process is gathered as plain values, and set in another when its module is loaded there."""

from __future__ import annotations

import csv
import importlib
import io
import locale
import logging
import pickle
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from swift_loader.travel.once_loaded import once_loaded
from swift_loader.travel.script_settings import ScriptSettings, gathered


class OfTheTest(UserWarning):
    """A kind that a script might have."""


@pytest.fixture(autouse=True)
def _as_before():
    """What a test sets here is put back."""
    root, disabled = logging.root, logging.root.manager.disable
    handlers, level, argv, time_out = list(root.handlers), root.level, sys.argv, socket.getdefaulttimeout()
    limit, widest, where = sys.getrecursionlimit(), csv.field_size_limit(), locale.setlocale(locale.LC_ALL)
    with warnings.catch_warnings():
        yield
    root.handlers[:], sys.argv = handlers, argv
    root.setLevel(level), logging.disable(disabled), socket.setdefaulttimeout(time_out)
    sys.setrecursionlimit(limit), csv.field_size_limit(widest), locale.setlocale(locale.LC_ALL, where)


def test_filters_of_warnings_hold_in_their_order_and_those_of_unknown_classes_are_left_out():
    warnings.resetwarnings()
    warnings.filterwarnings("error", "a (b|c)", UserWarning, r"some\.module", 3)
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("always", OfTheTest)
    before = list(warnings.filters)
    carried = gathered()
    kinds = carried.values["warnings"]
    assert kinds[0] == ("always", "", (__name__, "OfTheTest"), "", 0)
    kinds.insert(0, ("error", "", ("no.such.module", "Kind"), "", 0))
    kinds.insert(0, ("error", "", (__name__, "NoSuchKind"), "", 0))
    warnings.resetwarnings()
    carried.apply()
    assert warnings.filters == before


def test_loggers_have_their_levels_and_the_root_its_streams_and_files(tmp_path, capsys):
    root = logging.root
    root.handlers[:] = []
    logging.basicConfig(level=logging.DEBUG, format="%(levelname)s of %(name)s: %(message)s", stream=sys.stderr)
    root.addHandler(logging.StreamHandler(sys.stdout))
    root.handlers[1].setLevel(logging.ERROR)
    root.addHandler(logging.FileHandler(tmp_path / "log", delay=True))
    root.addHandler(logging.StreamHandler(io.StringIO()))  # nobody else has it
    root.addHandler(logging.FileHandler(tmp_path / "anew", mode="w", delay=True))  # of two, each would overwrite
    logging.getLogger("carried.quiet").setLevel(logging.ERROR)
    carried = gathered()
    root.handlers[:] = [logging.NullHandler()]
    root.setLevel(logging.CRITICAL)
    logging.getLogger("carried.quiet").setLevel(logging.NOTSET)
    carried.apply()
    logging.getLogger("carried.quiet").warning("not told")
    logging.getLogger("carried").debug("debug")
    logging.getLogger("carried").error("error")
    told = capsys.readouterr()
    assert told.err == "DEBUG of carried: debug\nERROR of carried: error\n"
    assert told.out == "error\n"
    assert (tmp_path / "log").read_text() == "debug\nerror\n"
    assert not (tmp_path / "anew").exists()
    logging.getLogger("carried.quiet").setLevel(logging.NOTSET)
    root.handlers[-1].close()


def test_limits_and_words_are_carried():
    csv.field_size_limit(77), socket.setdefaulttimeout(7.5), sys.setrecursionlimit(5_000)
    locale.setlocale(locale.LC_ALL, "C")
    sys.argv = ["here.py", "1"]
    carried = gathered()
    csv.field_size_limit(1), socket.setdefaulttimeout(None), sys.setrecursionlimit(2_000)
    sys.argv = []
    carried.apply()
    assert (csv.field_size_limit(), socket.getdefaulttimeout(), sys.getrecursionlimit()) == (77, 7.5, 5_000)
    assert sys.argv == ["here.py", "1"]


def test_what_cannot_be_set_leaves_the_rest():
    ScriptSettings({"locale": "no such locale", "recursion limit": 5_001}).apply()
    assert sys.getrecursionlimit() == 5_001


def test_it_is_small_plain_and_does_not_show_its_secret():
    carried = gathered()
    sent = pickle.dumps(carried)
    assert pickle.loads(sent) == carried
    assert len(sent) < 100_000
    assert carried.secret is not None
    assert str(carried.secret) not in repr(carried)


def test_nothing_is_imported_for_it():
    code = (
        "import sys; from swift_loader.travel.script_settings import gathered, ScriptSettings;"
        "before = set(sys.modules);"
        "ScriptSettings({**gathered().values, 'torch\\'s dtype': 'float64', 'cut pictures': True}).apply();"
        "assert set(sys.modules) == before; assert 'PIL' not in before and 'torch' not in before;"
        "from PIL import ImageFile; assert ImageFile.LOAD_TRUNCATED_IMAGES; import PIL.Image"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("late_part", "late_part.within", "late_part.other"):
        sys.modules.pop(name, None)


def test_a_module_that_is_loaded_later_is_met_then_once(home):
    (home / "late_part").mkdir()
    (home / "late_part" / "__init__.py").write_text("VALUE = 1\n")
    (home / "late_part" / "within.py").write_text("VALUE = 2\n")
    met = []
    once_loaded("late_part.within", lambda module: met.append(module.VALUE))
    once_loaded("late_part", lambda module: met.append(module.VALUE))
    once_loaded("late_part", lambda module: met.append(-module.VALUE))
    assert met == []
    module = importlib.import_module("late_part")
    assert met == [1, -1]
    importlib.import_module("late_part.within")
    assert met == [1, -1, 2]
    assert "exec_module" in dir(module.__spec__.loader)
    importlib.reload(module)
    assert met == [1, -1, 2]
    once_loaded("late_part", lambda module: met.append(module.VALUE + 9))
    assert met[-1] == 10


def test_a_module_that_could_not_be_loaded_is_met_when_it_can(home):
    met = []
    once_loaded("late_part", lambda module: met.append(module.VALUE))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("late_part")
    (home / "late_part.py").write_text("raise ValueError\n")
    importlib.invalidate_caches()
    with pytest.raises(ValueError):  # noqa: PT011 - its own
        importlib.import_module("late_part")
    (home / "late_part.py").write_text("VALUE = 3\n# longer\n")
    importlib.invalidate_caches()
    importlib.import_module("late_part")
    assert met == [3]
