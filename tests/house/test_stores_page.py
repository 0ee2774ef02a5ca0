"""The page on stores: its code runs from top to bottom, on a folder in place of a server."""

from __future__ import annotations

import re
from pathlib import Path

from tests.watching import run_warm

PAGE = Path(__file__).resolve().parents[2] / "swift_loader" / "docs" / "stores.md"


def test_the_code_of_the_page_runs_from_top_to_bottom(tmp_path: Path):
    pieces = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    script = "".join(pieces) + "\nprint('all of it')"
    said = run_warm(tmp_path, script, PYTHONWARNINGS="error", TMPDIR=str(tmp_path))
    lines = said.splitlines()
    assert re.fullmatch(r"200 pictures in \d+ shards", lines[0])
    assert lines[1:] == ["4 torch.Size([36, 3, 32, 32]) torch.int64", "all of it"]
