"""Tokens for language models, as files hold them: one long row of integers, of which samples are windows.

    nanoGPT     NAME.bin           nothing but tokens: the dtype must be given (uint16)
    llm.c       NAME.bin           256 int32 before them: magic, version, count
    numpy       NAME.npy           one dimension
    Megatron    NAME.bin NAME.idx  the index tells the dtype; documents lie one behind the other
    LitData     a folder           chunks that its TokensLoader reads, with their index.json

A sample is ``(x, y)``: ``length`` tokens, and the same one token further on. Windows do not reach from one file into
the next. They are cast straight into the batch.
"""

from __future__ import annotations

import glob
import os
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from swift_loader.errors import ConfigError, ShardError
from swift_loader.settings.checks import whole
from swift_loader.shards.numbering import place, places

#: The first of llm.c's 256 numbers, and what its tokens are.
_LLMC = {20240520: "uint16", 20240801: "uint32"}
_LLMC_HEAD = struct.Struct("<iii")
_LLMC_NBYTES = 1024
_MEGATRON = struct.Struct("<9sQBQQ")
_MEGATRON_MAGIC = b"MMIDIDX\0\0"
_MEGATRON_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
#: Windows of about so many bytes that lie side by side are cheap to read together.
_RUN_NBYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class TokenFile:
    """Where the tokens of one file lie."""

    path: str
    dtype: str
    offset: int
    count: int


class TokenDataset:
    """Windows of tokens, for language models.

    Args:
        files: a path, a pattern (``"fineweb_train_*.bin"``), a folder that LitData wrote, or several of them.
        length: tokens of a sample.
        dtype: what the files hold, where they do not tell it themselves (nanoGPT's ``.bin``: ``"uint16"``).
        stride: tokens from one sample to the next; ``length`` if not given, so that each token is used once.
        out_dtype: what a batch holds; int64 is what ``torch.nn.Embedding`` and ``cross_entropy`` take.

    Example:
        >>> SwiftLoader.from_dataset(TokenDataset("train.bin", length=1024, dtype="uint16"), 16, 1, 2)
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        length: int,
        *,
        dtype: str | None = None,
        stride: int | None = None,
        out_dtype: str = "int64",
    ) -> None:
        self.length = whole("length", length, least=1)
        self.stride = length if stride is None else whole("stride", stride, least=1)
        self.out_dtype = str(np.dtype(out_dtype))
        self.files = tuple(file for path in _paths(files) for file in _files_of(path, dtype))
        for file in self.files:
            if not np.can_cast(file.dtype, self.out_dtype):
                raise ConfigError(f"out_dtype={self.out_dtype!r} cannot hold what {file.path} has: {file.dtype}")
        self._ends = list(accumulate(map(self._windows_in, self.files)))
        if not len(self):
            largest = max(file.count for file in self.files)
            raise ConfigError(f"no file has length={length} tokens and the one behind them: {largest:,} are the most")
        self._mapped: dict[int, Any] = {}

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        tokens = self.tokens(index)
        return tokens[:-1].astype(self.out_dtype), tokens[1:].astype(self.out_dtype)

    def tokens(self, index: int) -> Any:
        """A sample's tokens and the one behind them, as the file has them."""
        tokens, start = self._window(place(index, len(self)))
        return tokens[start : start + self.length + 1]

    def read_into(self, indices: Sequence[int], rows: tuple[Any, Any]) -> None:
        """Writes these samples to their rows in a batch."""
        x, y = rows
        numbers = places(indices, len(self))
        which = np.searchsorted(self._ends, numbers, "right")
        for at in np.unique(which).tolist():
            here = np.flatnonzero(which == at) if len(self.files) > 1 else slice(None)
            tokens = self._tokens(at)
            starts = (numbers[here] - (self._ends[at - 1] if at else 0)) * self.stride
            windows = _windows(tokens, starts, self.length + 1)
            x[here], y[here] = windows[:, :-1], windows[:, 1:]

    def runs(self) -> list[int]:
        """How many samples lie side by side in each stretch of a few megabytes."""
        runs: list[int] = []
        for file in self.files:
            count = self._windows_in(file)
            nbytes = count * self.stride * np.dtype(file.dtype).itemsize
            pieces = min(count, max(1, round(nbytes / _RUN_NBYTES)))
            runs += [count * (at + 1) // pieces - count * at // pieces for at in range(pieces)]
        return runs

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": {}}  # each process maps the files itself

    def __repr__(self) -> str:
        return f"<TokenDataset {len(self.files)} files, {len(self):,} x {self.length} tokens>"

    def _windows_in(self, file: TokenFile) -> int:
        return max(0, (file.count - self.length - 1) // self.stride + 1)

    def _window(self, number: int) -> tuple[Any, int]:
        """The tokens of the file that the sample is in, and where it begins."""
        at = bisect_right(self._ends, number)
        first = self._ends[at - 1] if at else 0
        return self._tokens(at), (number - first) * self.stride

    def _tokens(self, at: int) -> Any:
        tokens = self._mapped.get(at)
        if tokens is None:
            tokens = self._mapped[at] = _mapped(self.files[at])
        return tokens


def _files_of(path: str, dtype: str | None) -> list[TokenFile]:
    return _chunks(path) if Path(path).is_dir() else [file_of(path, dtype)]


def file_of(path: str, dtype: str | None = None) -> TokenFile:
    """What a file of tokens holds, and where.

    Raises:
        ShardError: if it is damaged, or of no known kind.
    """
    index = Path(path).with_suffix(".idx")
    if path.endswith(".npy"):
        return _numpy_file(path)
    if path.endswith(".bin") and index.exists():
        return _megatron_file(path, index)
    nbytes = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        magic, _, count = _LLMC_HEAD.unpack(file.read(_LLMC_HEAD.size).ljust(_LLMC_HEAD.size, b"\0"))
    if magic in _LLMC:
        return _file(path, _LLMC[magic], _LLMC_NBYTES, count, nbytes)
    if dtype is None:
        raise ConfigError(f'{path} does not tell what its tokens are: give dtype="uint16", or what it was written with')
    return _file(path, dtype, 0, nbytes // np.dtype(dtype).itemsize, nbytes)


def _numpy_file(path: str) -> TokenFile:
    try:
        tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ShardError(f"{path} is not an array of numpy's: {error}") from error
    if tokens.ndim != 1:
        raise ShardError(f"{path} has the shape {tokens.shape}: tokens are one long row")
    return _file(path, str(tokens.dtype), tokens.offset, len(tokens), Path(path).stat().st_size)


def _megatron_file(path: str, index: Path) -> TokenFile:
    with index.open("rb") as file:
        head = file.read(_MEGATRON.size)
    nbytes = Path(path).stat().st_size
    magic, version, code, _, _ = _MEGATRON.unpack(head.ljust(_MEGATRON.size, b"\0"))
    if magic != _MEGATRON_MAGIC or version != 1 or code not in _MEGATRON_DTYPES:
        raise ShardError(f"{index} is no index of Megatron's that is known: {magic!r}, version {version}, dtype {code}")
    dtype = _MEGATRON_DTYPES[code]
    return _file(path, dtype, 0, nbytes // np.dtype(dtype).itemsize, nbytes)


def _chunks(folder: str) -> list[TokenFile]:
    """Those of a folder that LitData wrote for its TokensLoader: tokens lie behind the offsets of what was written."""
    # Only here, since they need xxhash, and tokens do not.
    from swift_loader.shards.folder import Folder  # noqa: PLC0415
    from swift_loader.shards.litdata import encoding_of, refuse_other_loaders  # noqa: PLC0415
    from swift_loader.shards.recognised import index_of  # noqa: PLC0415

    store = Folder(folder)
    told = index_of(store) or {}
    if "chunks" not in told:
        raise ConfigError(f"{folder} has no index.json of LitData's: name the files in it that have tokens")
    try:
        config = told["config"]
        refuse_other_loaders(config, folder, "TokensLoader")
        kind, _, dtype = encoding_of(str(config["data_format"][0])).partition(":")
        chunks = [(str(one["filename"]), int(one["chunk_size"]), int(one["dim"])) for one in told["chunks"]]
        if kind not in ("array", "tensor") or np.dtype(dtype).kind not in "iu":
            raise ConfigError(f"tokens are whole numbers, and {folder} has {config['data_format']}")
        sizes = [store.nbytes(name) for name, _, _ in chunks]
    except (KeyError, TypeError, IndexError, AttributeError, OSError) as error:
        raise ShardError(f"it does not tell where tokens are: {error!r}").within("index.json", folder) from error
    each = zip(chunks, sizes, strict=True)
    return [_file(f"{folder}/{name}", dtype, 4 * (items + 2), count, nbytes) for (name, items, count), nbytes in each]


def _file(path: str, dtype: str, offset: int, count: int, nbytes: int) -> TokenFile:
    if np.dtype(dtype).kind not in "iu":
        raise ConfigError(f"tokens are whole numbers, and {path} has {dtype}")
    expected = offset + count * np.dtype(dtype).itemsize
    if count < 0 or expected != nbytes:
        raise ShardError(f"{path} has {nbytes:,} bytes, and {count:,} tokens of {dtype} would be {expected:,}")
    return TokenFile(str(Path(path).absolute()), dtype, offset, count)


def _windows(tokens: Any, starts: Any, length: int) -> Any:
    """So many tokens from each start on, all copied by one call."""
    # A window is an item that numpy knows nothing of, and begins at each token: they lie over each other.
    items = np.ndarray((len(tokens) - length + 1,), f"V{length * tokens.itemsize}", tokens, strides=(tokens.itemsize,))
    return items[starts].view(tokens.dtype).reshape(-1, length)


def _mapped(file: TokenFile) -> Any:
    if Path(file.path).stat().st_size < file.offset + file.count * np.dtype(file.dtype).itemsize:
        raise ShardError(f"{file.path} has become shorter since the dataset was made")
    return np.memmap(file.path, file.dtype, "r", file.offset, (file.count,)).view(np.ndarray)


def _paths(files: Any) -> list[str]:
    found: list[str] = []
    for pattern in [files] if isinstance(files, str | os.PathLike) else files:
        path = os.fspath(pattern)
        matches = [path] if Path(path).exists() else sorted(glob.glob(path))  # noqa: PTH207 - absolute patterns too
        if not matches:
            raise ConfigError(f"there is no file {path!r}")
        found += matches
    return found
