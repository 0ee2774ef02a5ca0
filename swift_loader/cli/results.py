"""Puts a command's results into files: JSON, a chart, and a page that stands by itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swift_loader.cli import chart
from swift_loader.cli.page import Page, as_html
from swift_loader.host.outfile import publish


def write(folder: Path, name: str, told: dict[str, Any], panels: Sequence[chart.Panel], page: Page) -> bool:
    """Writes ``name.json``, ``name.png`` and ``name.html``; says on standard error where, or why not."""
    path = (folder / name).absolute()
    try:
        publish(path.with_suffix(".json"), (json.dumps(told, indent=1) + "\n").encode())
        publish(path.with_suffix(".png"), chart.png(panels))
        publish(path.with_suffix(".html"), as_html(page._replace(svg=chart.svg(panels))).encode())
    except OSError as error:
        print(f"not written: {path}: {error.strerror}; name another folder with --out", file=sys.stderr)
        return False
    print(f"written: {folder / name}.html .png .json", file=sys.stderr)
    return True
