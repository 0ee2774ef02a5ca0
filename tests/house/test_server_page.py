"""The page on servers: its two files run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.served_streams import ROOT, free_port

PAGE = ROOT / "swift_loader" / "docs" / "server.md"


def test_the_two_files_of_the_page_run(tmp_path: Path):
    server, train = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[:2]
    port = free_port()  # another test may have the usual one
    (tmp_path / "server.py").write_text(server.replace("create_data_stream())", f"create_data_stream(), port={port})"))
    (tmp_path / "train.py").write_text(train.replace('"targets"))', f'"targets"), port={port})'))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    running = subprocess.Popen([sys.executable, "server.py"], cwd=tmp_path, env=environment)
    try:
        said = subprocess.run(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        running.terminate()
        running.wait(10)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == [f"{epoch} (100, 128) int64" for epoch in (0, 1) for _ in range(10)]
