"""A `RemoteDataset`'s samples as a pipeline of webdataset's. The only file that imports it."""

from __future__ import annotations

import importlib
from typing import Any

from swift_loader.errors import ConfigError


def pipeline(dataset: Any) -> Any:
    """The pipeline, with webdataset's own methods."""
    try:
        wds = importlib.import_module("webdataset")
        fluid = importlib.import_module("webdataset.compat").FluidInterface
    except ImportError as error:
        raise ConfigError(f"webdataset cannot be imported, whose pipeline is asked for: {error}") from None
    kind = type("Pipeline", (wds.DataPipeline, fluid), {"__doc__": "webdataset's pipeline over a set of shards."})
    return kind(dataset)
