"""Datasets of Hugging Face, as their users have them: tables on this disk, with a format, a transform, or pictures."""

from __future__ import annotations

import pytest

from tests.slow import slow
from tests.watching import run_warm

SCRIPT = """
import sys
import datasets, numpy as np, torch
from torch.utils.data import DataLoader
from swift_loader import SwiftLoader

datasets.disable_progress_bars()
how, method = sys.argv[1:]
rng = np.random.default_rng(0)
texts = [f"row {n}" for n in range(96)]
features = list(rng.random((96, 8), dtype=np.float32))
table = datasets.Dataset.from_dict({"features": features, "label": list(range(96)), "text": texts})
table.save_to_disk("table")
table = datasets.load_from_disk("table")  # mapped, as what comes from the hub is

def doubled(rows):
    return {"x": [torch.tensor(row) * 2 for row in rows["features"]], "y": rows["label"]}

def pictures(rows):
    return {"picture": [np.array(picture) for picture in rows["picture"]]}

if how == "torch":
    table = table.with_format("torch")
elif how == "transform":
    table = table.with_transform(doubled)
elif how == "part":
    table = table.shuffle(seed=1).select(range(40)).with_format("numpy")
else:
    made = {"picture": [rng.integers(0, 255, (6, 5, 3), dtype=np.uint8) for _ in range(20)]}
    table = datasets.Dataset.from_dict(made, datasets.Features({"picture": datasets.Image()})).with_transform(pictures)

def plain(batch):
    return {key: value.tolist() if hasattr(value, "tolist") else list(value) for key, value in batch.items()}

expected = [plain(batch) for batch in DataLoader(table, 8)]
with SwiftLoader.from_dataset(table, 8, 1, 2, False, start_method=method) as loader:
    loader.start(0)
    for _ in range(2):
        assert [plain(batch) for batch in loader] == expected
with SwiftLoader.from_dataset(table, 8, 1, 0, False) as loader:
    loader.start(0)
    assert [plain(batch) for batch in loader] == expected
"""


@pytest.mark.parametrize("method", ["auto", slow("spawn")])
@pytest.mark.parametrize("how", ["torch", slow("pictures"), slow("transform"), slow("part")])
def test_they_come_as_torch_gives_them(how, method, tmp_path):
    run_warm(tmp_path, SCRIPT, how, method, HF_HOME=str(tmp_path / "home"), HF_HUB_OFFLINE="1")
