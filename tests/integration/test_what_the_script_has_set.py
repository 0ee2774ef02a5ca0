"""What a script has set at its top holds in its workers, though they do not run it."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from tests.loaders import started, stream
from tests.scripted_datasets import Dtype, Told, digest_of_the_secret
from tests.slow import slow


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A script that has set all that it may; gives back the file of its log."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 123)
    monkeypatch.setattr(sys, "argv", ["train.py", "--fast"])
    limit, errors, level = sys.getrecursionlimit(), np.geterr(), logging.root.level
    handler = logging.FileHandler(tmp_path / "log")
    handler.setFormatter(logging.Formatter("{levelname}: {message}", style="{"))
    sys.setrecursionlimit(4321)
    np.seterr(divide="raise")
    logging.root.addHandler(handler)
    logging.root.setLevel(logging.INFO)
    logging.getLogger("quiet").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "of a kind", DeprecationWarning)
        yield tmp_path / "log"
    sys.setrecursionlimit(limit)
    np.seterr(**errors)
    logging.root.removeHandler(handler)
    handler.close()
    logging.root.setLevel(level)
    logging.getLogger("quiet").setLevel(logging.NOTSET)


EXPECTED = {
    "pillow": [True, 123, False],
    "recursion": [4321, 4321],
    "arguments": ["train.py", "--fast"],
    "numpy": "raise",
    "levels": [logging.INFO, logging.ERROR],
    "warned": 0,
}


@pytest.mark.usefixtures("own_server")
@pytest.mark.parametrize(
    "way",
    [
        slow({"start_method": "forkserver"}),
        {"start_method": "forkserver", "share_dataset": True},
        slow({"start_method": "spawn"}),
    ],
)
def test_it_holds_in_workers_however_they_are_started(way: dict, script: Path):
    (batch,) = stream(Told, batch_size=2, worker_per_consumer=1, shuffle=False, **way)
    has_torch = way["start_method"] != "spawn"  # which is loaded ahead, since another dataset of the module imports it
    expected = {**EXPECTED, "torch": has_torch, "secret": digest_of_the_secret()}
    assert [json.loads(text) for text in batch] == [expected, {**expected, "pillow": [True, 123, True]}]
    assert set(script.read_text().splitlines()) == {"INFO: sample 0", "INFO: sample 1"}


def test_torch_has_the_scripts_dtype_when_the_dataset_imports_it():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with started(Dtype, {"count": 2}, batch_size=2, worker_per_consumer=1) as loader:
            assert list(loader) == [["torch.float64"] * 2]
    finally:
        torch.set_default_dtype(before)
