"""`swift-loader shard info URL`: what a set is; one of its shards, one of its samples; what training on it costs."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_loader.cli import shard_set
from swift_loader.cli.panel import plain
from swift_loader.errors import ConfigError
from swift_loader.telemetry.words import counted, duration, nbytes, number, percent

if TYPE_CHECKING:
    from swift_loader.shards.bill import Bill, Training
    from swift_loader.shards.catalog import Catalog
    from swift_loader.shards.table import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    shard_set.add_arguments(parser)
    parser.add_argument("--shard", type=int, metavar="K", help="one shard")
    parser.add_argument("--sample", type=int, metavar="I", help="one sample")
    parser.add_argument("--save", type=Path, metavar="DIR", help="with --sample: its fields as files in this folder")
    parser.add_argument("--plan", metavar="batch=256,consumers=8,nodes=2,cache=500GB",
                        help="what an epoch takes if the set lies in a bucket: bytes, dollars, memory")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")


def run(arguments: argparse.Namespace) -> int:
    """Prints it."""
    if arguments.save and arguments.sample is None:
        raise ConfigError("--save writes the fields of a sample: say which, --sample I")
    training = None if arguments.plan is None else _training(arguments.plan)
    there = shard_set.ReadSet.of(arguments)
    if arguments.sample is not None:
        told = _sample(there, arguments.sample, arguments.save)
    elif arguments.shard is not None:
        told = _shard(there, arguments.shard)
    else:
        told = _set(there, arguments.url)
    if training is not None:
        told["plan"] = asdict(training) | asdict(_bill(there.opened.catalog, training))
    print(json.dumps(told, indent=1) if arguments.json else "\n".join(map(plain, _lines(told))))
    return 0


def _set(there: shard_set.ReadSet, url: str) -> dict[str, Any]:
    from swift_loader.shards.catalog import Kind

    catalog = there.opened.catalog
    kinds = sorted({Kind(int(kind)).name.lower() for kind in set(catalog.rows["kind"].tolist())})
    return {
        "set": url,
        "generation": catalog.generation,
        "samples": catalog.samples,
        "shards": len(catalog.rows),
        "nbytes": catalog.nbytes,
        "kinds": kinds,
        "complete": catalog.is_complete,
        "recipe": catalog.recipe.hex(),
        "uuid": catalog.uuid.hex(),
        "rows": bool(len(catalog.rows)) and there.shards[0].table.rows is not None,
        "fields": _fields(there.shards[0].table) if len(catalog.rows) else [],
    }


def _shard(there: shard_set.ReadSet, index: int) -> dict[str, Any]:
    catalog = there.opened.catalog
    if not 0 <= index < len(catalog.rows):
        raise ConfigError(f"there are {counted(len(catalog.rows), 'shard')}, and no shard {index}")
    shard, line = there.shards[index], catalog.shard(index)
    return {
        "shard": line.name,
        "first": int(catalog.bounds[index]),
        "samples": line.samples,
        "nbytes": line.object_nbytes,
        "table_nbytes": line.table_nbytes,
        "xxh3_128": line.payload_digest.hex(),
        "keys": [shard.table.key(0), shard.table.key(line.samples - 1)],
        "fields": _fields(shard.table),
    }


def _sample(there: shard_set.ReadSet, index: int, folder: Path | None) -> dict[str, Any]:
    shard, inside = there.sample(index)
    has = shard_set.sizes(shard, inside)
    told = {"sample": index, "key": shard.table.key(inside), "shard": shard.name, "number": inside, "sizes": has}
    columns = {name: column[inside].item() for name, column in shard.table.columns.items()}
    if columns:
        told["numbers"] = columns
    if folder is not None:
        told["saved"] = saved = []
        folder.mkdir(parents=True, exist_ok=True)
        for name in has:
            # A field's name has no slash; keys may be anything, and are no names of ours.
            path = folder / f"{index:09d}.{name}"
            path.write_bytes(shard.read_file(inside, shard.table.field_numbers[name]))
            saved.append(str(path))
    return told


def _fields(table: Table) -> list[dict[str, Any]]:
    import numpy as np

    from swift_loader.shards.table import ABSENT

    told = []
    for number_, field in enumerate(table.fields):
        if table.rows is None:
            sizes = table.entries[:, number_, 1]
            sizes = sizes[sizes != ABSENT]
        else:
            sizes = np.full(0 if field.has_column else table.samples, field.array_nbytes or 0)
        told.append({
            "name": field.name, "dtype": field.dtype, "shape": list(field.shape), "column": field.has_column,
            "samples": len(sizes), "mean_nbytes": float(sizes.mean()) if len(sizes) else 0.0,
        })  # fmt: skip
    return told


def _training(text: str) -> Training:
    """What stands in ``batch=256,consumers=8,nodes=2,cache=500GB``."""
    from swift_loader.shards.bill import Training
    from swift_loader.shards.making import bytes_of

    given: dict[str, Any] = {}
    known = [field.name for field in fields(Training)]
    for part in filter(None, text.split(",")):
        name, _, word = part.strip().partition("=")
        value = bytes_of(word)
        if name not in known or value is None or (name != "cache" and value != int(value)):
            raise ConfigError(f"--plan is such as batch=256,consumers=8,nodes=2,cache=500GB, and has no {part!r}")
        given[name] = value if name == "cache" else int(value)
    return Training(**given)


def _bill(catalog: Catalog, training: Training) -> Bill:
    from swift_loader.shards.bill import bill_of

    return bill_of(catalog.rows["count"], catalog.rows["object_nbytes"], training)


def _lines(told: dict[str, Any]) -> list[str]:
    lines = _head(told)
    for field in told.get("fields", ()):
        if field["column"]:
            where = "also in the table" if field["samples"] else "in the table"
            what = f"a number for each sample ({field['dtype']}), {where}"
        elif field["dtype"]:
            what = f"arrays, {field['dtype']} {tuple(field['shape'])}"
        else:
            what = f"{nbytes(field['mean_nbytes'])} on average"
        lines.append(f"  {field['name']:<12} {what}")
    lines += [f"  {name:<12} {count:,} bytes" for name, count in told.get("sizes", {}).items()]
    lines += [f"  {name:<12} = {value}" for name, value in told.get("numbers", {}).items()]
    lines += [f"written: {path}" for path in told.get("saved", ())]
    return lines + (_plan(told["plan"]) if "plan" in told else [])


def _head(told: dict[str, Any]) -> list[str]:
    if "sample" in told:
        return [f"sample {told['sample']}: {told['key']}, number {told['number']} of {told['shard']}"]
    sizes = f"{counted(told['samples'], 'sample')}, {nbytes(told['nbytes'])}"
    each = nbytes(told["nbytes"] / told["samples"]) if told["samples"] else "0 B"
    if "shard" in told:
        first, last = told["keys"]
        return [f"{told['shard']}: {sizes}, {each} each", f"samples {told['first']:,} and on, {first} to {last}"]
    state = "" if told["complete"] else ", not complete"
    form = ", in rows" if told["rows"] and told["kinds"] == ["tar"] else ""
    return [
        f"{told['set']}: {sizes} in {counted(told['shards'], 'shard')}, {each} each",
        f"generation {told['generation']}, {', '.join(told['kinds'])}{form}{state}",
    ]


def _plan(plan: dict[str, Any]) -> list[str]:
    later = f", {nbytes(plan['nbytes'] * (1 - plan['kept']))} in later ones" if plan["kept"] else ""
    kept = f"{percent(plan['kept'])} of later epochs, once the {nbytes(plan['cache'])} of a node are full"
    return [
        "",
        f"{plan['consumers']} GPUs on {counted(plan['nodes'], 'node')}, batches of {plan['batch']}, from a bucket:",
        f"  an epoch     {counted(plan['steps'], 'step')}; each node reads {nbytes(plan['nbytes'])}{later}",
        f"  requests     {number(plan['requests'])} for each node, ${plan['usd']:,.4f} in the bucket's region",
        f"  elsewhere    ${plan['usd_elsewhere']:,.2f} for each node and epoch, bytes at $0.09 per GB",
        f"  kept         {kept if plan['cache'] else 'nothing: cache=500GB would keep as much on each node'}",
        f"  memory       {nbytes(plan['memory_nbytes'])} on each node, for what is open and read ahead",
        f"  first batch  about {duration(plan['first_batch_s'])} after the start",
        f"  uploading    ${plan['upload_usd']:,.4f}, once",
    ]
