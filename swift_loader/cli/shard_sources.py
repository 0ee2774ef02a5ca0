"""What SOURCE means on the command line of `shard create`: a dataset, a folder, files of several kinds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from swift_loader.cli import naming
from swift_loader.errors import ConfigError

HELP = (
    "package.module:Dataset, a folder of images, hf:name[:split], *.parquet, *.tar, *.npy, tokens in *.bin (with "
    '--kwargs \'{"length": 1024, "dtype": "uint16"}\'), or a set that is there'
)
_ARRAYS = (".bin", ".npy")
_NOT_INSTALLED = "{} is not installed, which reads {}: pip install {}"


class Source(NamedTuple):
    """Samples to be written."""

    samples: Any
    """A map-style dataset."""
    name: str
    """Samples of another name are another set."""
    is_random: bool = True
    """Whether any sample may be read as cheaply as the next one."""
    notes: dict[str, Any] | None = None
    """For people."""
    are_rows: bool = False
    """Whether they are written as rows, if nothing is said."""


def source_of(word: str, kwargs: dict[str, Any], fields: Mapping[str, str] | None) -> Source:
    """The source that a word of the command line names.

    Raises:
        ConfigError: if there is none, or it needs no shards.
    """
    path = Path(word)
    if word.startswith("hf:"):
        return _hub(word)
    if path.suffix in _ARRAYS:
        from swift_loader.cli.shard_arrays import array_rows

        return Source(array_rows(word, kwargs), f"{path.absolute()} {sorted(kwargs.items())}", are_rows=True)
    if path.suffix == ".parquet":
        return _parquet(word)
    if path.suffix == ".tar" or (
        path.is_dir() and any((path / name).exists() for name in ("index.swift", "index.json"))
    ):
        return _set(word, fields)
    if path.is_dir():
        return _folder(path)
    if ":" in word:
        return Source(_made(word, kwargs), f"{word} {sorted(kwargs.items())}")
    raise ConfigError(f"there is no {word!r}: SOURCE is {HELP}")


def _made(word: str, kwargs: dict[str, Any]) -> Any:
    samples = naming.named(word)(**kwargs)
    if not hasattr(samples, "__getitem__") or not hasattr(samples, "__len__"):
        raise ConfigError(
            f"{word} has no indices or no length: swift_loader.shards.create writes what can only be iterated"
        )
    return samples


def fields_of(text: str | None) -> dict[str, str] | None:
    """What ``--fields jpg=0,cls=label`` says; None if it is not there.

    Raises:
        ConfigError: if it is something else.
    """
    found: dict[str, str] = {}
    for part in () if text is None else text.split(","):
        name, _, place = part.strip().partition("=")
        if not name or not place or name in found:
            raise ConfigError(f"--fields is such as jpg=0,cls=1 or jpg=image,cls=label, not {text!r}")
        found[name] = place
    return found or None


def _folder(path: Path) -> Source:
    from swift_loader.shards.images import ImageFolder

    found = ImageFolder(path, decode=None)
    return Source(ImageFiles(found), str(path.resolve()), notes={"classes": found.classes})


def _set(url: str, fields: Mapping[str, str] | None) -> Source:
    from swift_loader.shards.copying import samples_of

    return Source(samples_of(url, fields=fields), str(Path(url).absolute()))


def _parquet(word: str) -> Source:
    from swift_loader.shards.sets import matched

    try:
        from swift_loader.cli.shard_parquet import ParquetRows

        folder, names = matched(word)
        return Source(ParquetRows([f"{folder}/{name}" for name in names]), str(Path(word).absolute()), is_random=False)
    except ModuleNotFoundError as error:
        raise ConfigError(_NOT_INSTALLED.format("pyarrow", word, "pyarrow")) from error


def _hub(word: str) -> Source:
    from swift_loader.cli.shard_hub import hub_rows

    try:
        rows, classes = hub_rows(*word.split(":")[1:])
    except ModuleNotFoundError as error:
        raise ConfigError(_NOT_INSTALLED.format("datasets", word, "datasets")) from error
    return Source(rows, word, notes={"classes": classes} if classes else None)


class ImageFiles:
    """The files of a folder of images, as they are, with their classes."""

    def __init__(self, folder: Any) -> None:
        self._folder = folder

    def __len__(self) -> int:
        return len(self._folder)

    def __getitem__(self, index: int) -> dict[str, Any]:
        path = Path(self._folder.path(index))
        ending = path.suffix[1:].lower()
        return {
            "jpg" if ending == "jpeg" else ending: path.read_bytes(),
            "cls": int(self._folder.targets[index]),
        }
