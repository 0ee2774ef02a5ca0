"""The page on shards: its code runs from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

from tests.watching import run_script

PAGE = Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "shards.md"


def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path: Path):
    pieces = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = "".join(pieces) + "\nimport shutil\nshutil.rmtree(folder.parent)\nprint('all of it')"
    said = run_script(tmp_path, script, PYTHONWARNINGS="error")
    assert re.fullmatch(r"1000 samples in \d+ shards\nall of it\n", said)
