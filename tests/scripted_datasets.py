"""A dataset that tells what its process has been set to. It imports nothing before it is asked."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import sys
import warnings

import numpy as np

from tests.datasets import Numbers


class Told(Numbers):
    """A sample tells what holds where it is made, as a text."""

    def __init__(self, count: int = 2) -> None:
        super().__init__(count)
        self.limit = sys.getrecursionlimit()

    def __getitem__(self, index: int) -> str:
        had_pillow = "PIL" in sys.modules
        from PIL import Image, ImageFile

        logging.getLogger("told").info("sample %d", index)
        logging.getLogger("told").debug("not told")
        with warnings.catch_warnings(record=True) as warned:
            warnings.warn("of a kind", DeprecationWarning, stacklevel=1)
        told = {
            "pillow": [ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, had_pillow],
            "recursion": [self.limit, sys.getrecursionlimit()],
            "arguments": sys.argv,
            "numpy": np.geterr()["divide"],
            "levels": [logging.root.level, logging.getLogger("quiet").level],
            "warned": len(warned),
            "torch": "torch" in sys.modules,
            "secret": digest_of_the_secret(),
        }
        return json.dumps(told)


def digest_of_the_secret() -> str:
    """Of that by which processes of multiprocessing know each other."""
    return hashlib.sha256(multiprocessing.current_process().authkey).hexdigest()


class Dtype(Numbers):
    """Imports torch when it needs it."""

    def __getitem__(self, index: int) -> str:
        import torch

        return str(torch.ones(()).dtype)
