"""Sets that LitData wrote: what their `index.json` tells, and how a sample is put together of its leaves."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards.catalog import Kind, Shard
from swift_loader.shards.encodings import NUMPY_DTYPES, TORCH_DTYPES
from swift_loader.shards.layouts import Column, Layout
from swift_loader.shards.store import Store

_NAMES = {
    "str": "str", "text": "str", "bool": "bool", "int": "int", "float": "float", "bytes": "bytes", "file": "bytes",
    "pil": "pil", "jpeg": "jpeg", "jpeg_array": "jpeg_array", "image": "image", "numpy": "lit_numpy",
    "tensor": "lit_tensor", "json": "lit_json", "pickle": "pkl",
    # What needs libraries of its own stays as it is.
    **dict.fromkeys(("video", "audio", "nifti", "mesh", "pdf", "graph", "tifffile", "tiff"), "bytes"),
}  # fmt: skip
_MOST_DEPTH = 32
_CONTAINERS: dict[str, Callable[[Sequence[Any]], Any]] = {"builtins.list": list, "builtins.tuple": tuple}
_DICTS = {"builtins.dict": dict, "collections.OrderedDict": OrderedDict}


def read_litdata(told: Mapping[str, Any], store: Store) -> tuple[Layout, list[Shard]]:
    """The layout and the chunks of a set.

    Raises:
        ConfigError: if it is compressed, encrypted, or of tokens.
        ShardError: if it is no such index.
    """
    config = told["config"]
    refuse_other_loaders(config, store.where)
    tree = str(config["data_spec"])
    encodings = [encoding_of(str(name)) for name in config["data_format"]]
    names = Tree.of(tree).names
    if len(names) != len(encodings):
        raise ShardError.at("samples have other leaves than the index tells", None, len(encodings), len(names))
    layout = Layout(tuple(map(Column, names, encodings)), tree)
    chunks = [(str(one["filename"]), int(one["chunk_size"])) for one in told["chunks"]]
    # What the index tells as size was without the head once; that of the file is right.
    return layout, [
        Shard(name, count, store.nbytes(name), 0, 0, 0, bytes(16), Kind.LITDATA) for name, count in chunks if count
    ]


def refuse_other_loaders(config: Mapping[str, Any], where: str, loader: str = "PyTreeLoader") -> None:
    """Raises `ConfigError` at a set whose samples cannot be picked out, or are made by another loader of LitData's."""
    if config.get("compression"):
        raise ConfigError(
            f"{where} is compressed ({config['compression']}): a sample could only be reached by unpacking what it is "
            "in. Write it without compression="
        )
    if config.get("encryption"):
        raise ConfigError(f"{where} is encrypted, which only LitData reads")
    found = config.get("item_loader") or "PyTreeLoader"
    if found == loader:
        return
    if found == "TokensLoader":
        raise ConfigError(f"{where} has tokens: TokenDataset({where!r}, length=...) reads them")
    raise ConfigError(f"{where} was written for LitData's {found}, which is not read here")


class Tree(NamedTuple):
    """How a sample is put together.

    `names` are those of its leaves: keys and places, with dots between them.
    """

    names: list[str]
    kind: str
    """`dict`, `tuple` or `leaf` where all leaves are side by side; else `nested`."""
    build: Callable[[Iterator[Any]], Any]
    """Makes a sample of its leaves."""

    @classmethod
    def of(cls, text: str) -> Tree:
        """What ``data_spec`` of an index tells.

        Raises:
            ShardError: if it is of other containers than dict, list and tuple, or damaged.
        """
        try:
            version, told = json.loads(text)
            if version != 1:
                raise ShardError.at("samples are told in another version", None, 1, version)
            names = list(_paths(told, "", 0))
            build = _builder(told)
            below = [one["type"] for one in told["children_spec"]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ShardError(f"the index does not tell how samples are put together: {error}") from error
        if len(set(names)) != len(names):
            names = [str(number) for number in range(len(names))]
        flat = {None: "leaf", "builtins.dict": "dict", "builtins.tuple": "tuple"}.get(told["type"], "nested")
        return cls(names, "nested" if any(below) else flat, build)


def _paths(told: Mapping[str, Any], path: str, depth: int) -> Iterator[str]:
    kind, children = told["type"], told["children_spec"]
    if depth > _MOST_DEPTH:
        raise ShardError.at("samples are too deep", None, _MOST_DEPTH)
    if kind is None:
        yield path or "0"
        return
    if kind not in _CONTAINERS and kind not in _DICTS:
        raise ShardError(f"a sample has a {str(kind)[:100]}, of which only LitData knows how it is made")
    keys = json.loads(told["context"]) if kind in _DICTS else range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _paths(child, f"{path}.{key}" if path else str(key), depth + 1)


def _builder(told: Mapping[str, Any]) -> Callable[[Iterator[Any]], Any]:
    kind = told["type"]
    if kind is None:
        return next
    below = [_builder(child) for child in told["children_spec"]]
    if kind in _DICTS:
        keys, made = json.loads(told["context"]), _DICTS[kind]
        return lambda leaves: made((key, build(leaves)) for key, build in zip(keys, below, strict=True))
    container = _CONTAINERS[kind]
    return lambda leaves: container([build(leaves) for build in below])


def encoding_of(name: str) -> str:
    """What a field is encoded as, in the words of `encodings.py`, by LitData's.

    Raises:
        ConfigError: if this version does not know it.
    """
    kind, _, rest = name.partition(":")
    if kind in ("no_header_numpy", "no_header_tensor"):
        dtypes = NUMPY_DTYPES if kind == "no_header_numpy" else TORCH_DTYPES
        if not rest.isdecimal() or int(rest) >= len(dtypes):
            raise ShardError(f"no array is of LitData's dtype {rest[:20]!r}")
        return f"{'array' if kind == 'no_header_numpy' else 'tensor'}:{dtypes[int(rest)]}"
    if kind not in _NAMES:
        raise ConfigError(f"a field is written by LitData as {name[:100]!r}, which this version does not know")
    return f"image:{rest}" if kind == "image" and rest else _NAMES[kind]
