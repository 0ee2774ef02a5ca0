"""`upload_cv_dataset`: what `swift-loader shard create` does, for scripts: pictures and their labels into a bucket.

It stands with the commands since it reads by a loader and shows a bar, as they do; scripts know it as
`swift_loader.shards.upload_cv_dataset`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_loader.cli.shard_bar import Far, ShardBar
from swift_loader.cli.shard_reading import ByWorkers
from swift_loader.host.warn import warn_user
from swift_loader.settings.checks import whole
from swift_loader.shards import clients
from swift_loader.shards.creating import Created, Progress, create, name_of
from swift_loader.shards.making import Making

if TYPE_CHECKING:
    from swift_loader.shards.clients import AnyClient

_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
#: So many samples are compared with the files that they are said to be of.
_LOOKED_AT = 3


def upload_cv_dataset(
    ds: Any,
    client: AnyClient,
    bucket: str,
    base_folder: str,
    maxsize: float | str = 1e8,
    maxcount: float = 100_000,
    workers: float = 0,
    *,
    shuffle: bool = True,
    seed: int = 0,
    quality: int = 90,
    keep_format: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Created:
    """Writes a dataset of pictures and labels as shards into a bucket. Killed and called again, it goes on.

    A picture from a file that nobody has changed keeps that file's bytes; others become PNG. Labels that are whole
    numbers become `cls`, text `txt`, all else `json`.

    Args:
        ds: A map-style dataset of ``(picture, label)``, such as torchvision's ImageFolder.
        client: What `make_client` gives.
        bucket: The bucket.
        base_folder: Where in the bucket.
        maxsize: The most that a shard takes, in bytes or as ``"64MB"``.
        maxcount: The most samples that a shard has.
        workers: So many processes read and encode; 0: this one.
        shuffle: Whether samples are written in an order that `seed` decides.
        seed: See `shuffle`.
        quality: Of pictures that become JPEG.
        keep_format: Whether pictures from files that are neither JPEG nor PNG keep their bytes.
        overwrite: Removes the set that is there.
        progress: Shows a bar where somebody looks, else a line every ten seconds.

    Raises:
        ConfigError: if an argument is wrong.
        ShardError: if there is another set, or a sample cannot be written.
    """
    given: Any = workers
    count = whole("workers", int(given) if isinstance(given, float) and given.is_integer() else given, least=0)
    source = _Files(ds, keep_format=keep_format) if _is_of_files(ds) else ds
    options: dict[str, Any] = {
        "name": name_of(ds), "maxsize": maxsize, "maxcount": maxcount, "shuffle": shuffle, "seed": seed,
        "quality": quality, "keep_format": keep_format,
    }  # fmt: skip
    store = clients.store_of(client, bucket, base_folder, make=True)
    with contextlib.ExitStack() as stack:
        shown = stack.enter_context(ShardBar("upload")) if progress else None
        read = stack.enter_context(ByWorkers(source, Making.of(options), count))

        def watch(told: Progress) -> None:
            if shown is not None:
                shown(Far(told.samples, told.total, "sample", told.shards, told.nbytes + told.nbytes_begun))

        return create(source, store, overwrite=overwrite, read=read, progress=watch, **options)


class _Files:
    """The same samples by their files: what they hold is not decoded to be encoded again."""

    def __init__(self, ds: Any, *, keep_format: bool) -> None:
        self._ds, self._keep_format = ds, keep_format

    def __len__(self) -> int:
        return len(self._ds)

    def __getitem__(self, index: int) -> dict[str, Any]:
        path, label = _listed(self._ds)[index]
        data = Path(path).read_bytes()
        field = "jpg" if data.startswith(_JPEG) else "png" if data.startswith(_PNG) else ""
        if not field and self._keep_format:
            field = Path(path).suffix[1:].lower()
        if field:
            return {field: data, "": label}
        warn_user("pictures that are neither JPEG nor PNG become PNG; keep_format=True has them stay what they are")
        return {"png": self._ds[index][0], "": label}


def _listed(ds: Any) -> Any:
    """Files and labels, as torchvision's folders list them."""
    found = getattr(ds, "samples", None)
    return getattr(ds, "imgs", None) if found is None else found


def _is_of_files(ds: Any) -> bool:
    """Whether samples are what files hold: as many, with the same labels, and some with the same pixels."""
    listed = _listed(ds)
    if not isinstance(listed, list | tuple) or not listed or len(listed) != len(ds):
        return False
    if any(getattr(ds, name, None) is not None for name in ("transform", "target_transform", "transforms")):
        return False
    step = max(1, len(listed) // _LOOKED_AT)
    return all(_is_of_file(ds[index], listed[index]) for index in range(0, len(listed), step))


def _is_of_file(sample: Any, listed: Any) -> bool:
    import numpy as np
    from PIL import Image

    try:
        picture, label = sample
        path, there = listed
        with Image.open(path) as file:
            pixels = np.asarray(file.convert(picture.mode))
        return bool(label == there) and np.array_equal(pixels, np.asarray(picture))
    except (TypeError, ValueError, AttributeError, OSError):
        return False
