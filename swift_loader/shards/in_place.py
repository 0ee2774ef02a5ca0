"""What of a sample is wanted, in sets of other libraries: their encodings, and LitData's trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from swift_loader.errors import ConfigError
from swift_loader.shards.encodings import decoder_of
from swift_loader.shards.fields import Field
from swift_loader.shards.litdata import Tree
from swift_loader.shards.wishes import Wishes

if TYPE_CHECKING:
    from swift_loader.shards.decode import Decode, Decoding
    from swift_loader.shards.layouts import Layout


def wishes_in_place(layout: Layout, fields: str | Sequence[str] | None, decoding: Decoding) -> Wishes:
    """What was asked for of such a set; all of a sample is what its library gives.

    Raises:
        ConfigError: if a field is encoded as this version does not know, or is pickled.
    """
    decoders = partial(_decoder, encodings=layout.encodings, decoding=decoding)
    names = [column.name for column in layout.columns]
    for name in layout.encodings if fields is None else _named(fields, names):
        decoders(Field(name))  # now, and not in a worker
    if fields is not None:
        return Wishes(fields, decoders)
    tree = Tree.of(layout.tree) if layout.tree else None
    if tree is None or tree.kind == "dict":
        return Wishes(None, decoders, every=names)
    if tree.kind == "leaf":
        return Wishes(names[0], decoders)
    return Wishes(names, decoders, tree.build if tree.kind == "nested" else None)


def _named(fields: str | Sequence[str], names: Sequence[str]) -> list[str]:
    """Those columns that are asked for, or may be."""
    asked = {part for one in ([fields] if isinstance(fields, str) else fields) for part in str(one).split(";")}
    return [name for name in names if name in asked or name in {one.lower() for one in asked}]


def _decoder(field: Field, encodings: Mapping[str, str], decoding: Decoding) -> Decode:
    try:
        return decoder_of(encodings[field.name], decoding)
    except ConfigError as error:
        raise ConfigError(f"field {field.name!r}: {error}") from None
