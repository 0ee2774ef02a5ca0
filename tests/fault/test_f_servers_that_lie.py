"""Servers that send what nobody ordered, or what is no batch: none of it is taken, they are named and left out."""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from swift_loader import ProtocolError, SwiftLoader
from swift_loader.net import schema
from swift_loader.net.frames import HEAD, HELLO, LENT, MAGIC, PARCEL, WHOLE
from tests.fault.hostile import Beside, a_parcel, faked, framed, honestly

slow = pytest.mark.slow


def lies(name: str) -> Any:
    """What a hostile server answers orders with."""

    def answer(seq: int, epoch: int, step: int) -> bytes:
        meta, bulk = a_parcel(epoch, step)
        changed: dict[str, Any] = {
            "objects": {"spec": {"columns": [schema.Column("array", "object", [2], "")]}},
            "no type": {"spec": {"columns": [schema.Column("array", "notatype", [2], "")]}},
            "overflow": {"spec": {"columns": [schema.Column("array", "float32", [1 << 62, 1 << 62], "")]}},
            "outside": {"spec": {"offsets": [1 << 20]}},
            "too many rows": {"rows": 9}, "too few bytes": {"spec": {"nbytes": 128}},
            "more columns": {"spec": {"columns": [schema.Column("array", "float32", [2], "")] * 2, "offsets": [0, 0]}},
            "objects that are none": {"objects_nbytes": 64, "spec": {"nbytes": 0}},
        }.get(name, {})  # fmt: skip
        if changed:
            meta, bulk = a_parcel(epoch, step, **changed)
        elif name == "another epoch's":
            meta, _ = a_parcel(epoch + 1, step)
        elif name == "nobody ordered":
            seq += 1_000_000
        elif name == "pickle for a parcel":
            meta = pickle.dumps(Path("/nowhere"))
        elif name == "huge":
            return HEAD.pack(MAGIC, PARCEL, 0, len(meta), seq, 1 << 62) + meta
        elif name == "another kind":
            return framed(HELLO, meta, seq)
        return framed(PARCEL, meta, seq, bulk)

    return answer


LIES = [
    "objects", "no type", "overflow", "outside", "too many rows", "too few bytes", "more columns",
    "objects that are none", "another epoch's", "nobody ordered", "pickle for a parcel", "huge", "another kind",
]  # fmt: skip


@pytest.mark.parametrize("lie", [LIES[0], *(pytest.param(lie, marks=slow) for lie in LIES[1:])])
def test_f14_f9_what_a_hostile_server_sends_is_an_error_that_names_it(lie: str):
    with faked(lies(lie)) as server, SwiftLoader.connect(server.address) as loader:
        with pytest.raises(ProtocolError, match=server.address) as raised:
            loader.start(0)
        assert raised.value.peer == server.address


@slow
@pytest.mark.parametrize("lie", ["objects", "another epoch's", "huge"])
def test_f14_a_server_that_lies_is_left_out_and_told_while_another_goes_on(lie: str):
    lied: list[int] = []

    def answer(seq: int, epoch: int, step: int) -> bytes:
        lied.append(seq)
        return (lies(lie) if len(lied) > 2 else honestly)(seq, epoch, step)

    with (
        faked(answer) as liar,
        faked(honestly) as honest,
        SwiftLoader.connect(f"{liar.address},{honest.address}") as loader,
    ):
        loader.start(0)
        with pytest.warns(RuntimeWarning, match=f"{liar.address} is not what a server says: .*It is left out"):
            assert [batch.tolist() for _ in range(3) for batch in loader] == [[[0.0, 0.0]] * 8] * 36
        count = len(lied)
        assert len(list(loader)) == 12
        assert len(lied) == count  # nobody asks it again


@slow
@pytest.mark.filterwarnings("ignore:.*It is left out:RuntimeWarning")
def test_f14_where_all_servers_lie_it_is_an_error():
    def taken(loader: SwiftLoader) -> None:
        loader.start(0)
        list(loader)

    with (
        faked(lies("objects")) as one,
        faked(lies("objects")) as other,
        SwiftLoader.connect(f"{one.address},{other.address}") as loader,
        pytest.raises(ProtocolError, match="is not what a server says"),
    ):
        taken(loader)


@slow
def test_f14_an_honest_batch_of_the_same_server_is_taken():
    with faked(honestly) as server, SwiftLoader.connect(server.address) as loader:
        loader.start(0)
        assert [batch.shape for batch in loader] == [(8, 2)] * 12


@slow
@pytest.mark.parametrize("lie", ["no file", "a short file", "no file of memory", "whole before it was lent", "twice"])
def test_f14_memory_that_a_hostile_server_lends_is_looked_at(lie: str, tmp_path: Path):
    with contextlib.ExitStack() as files:
        short = files.enter_context(open(tmp_path / "short", "w+b")).fileno()
        os.ftruncate(short, 0 if lie == "no file" else 63)
        pipe, other = os.pipe()
        files.callback(os.close, pipe)
        files.callback(os.close, other)

        def answer(seq: int, epoch: int, step: int) -> bytes | Beside:
            meta, _ = a_parcel(epoch, step)
            lent = framed(LENT, meta, seq)
            return {
                "no file": lent, "a short file": Beside(lent, short), "no file of memory": Beside(lent, pipe),
                "whole before it was lent": framed(WHOLE, b"", seq), "twice": Beside(lent + lent, short),
            }[lie]  # fmt: skip

        server = files.enter_context(faked(answer, path=tmp_path / "socket"))
        loader = files.enter_context(SwiftLoader.connect(server.address))
        with pytest.raises(ProtocolError, match="socket"):
            loader.start(0)


@slow
@pytest.mark.filterwarnings("ignore:.*made again:RuntimeWarning")
def test_f14_memory_counts_only_once_the_server_has_said_that_it_held_it(tmp_path: Path):
    lent: list[int] = []
    with open(tmp_path / "memory", "w+b") as memory:
        memory.write(b"\1" * 64)
        memory.flush()

        def answer(seq: int, epoch: int, step: int) -> bytes | Beside | None:
            meta, bulk = a_parcel(epoch, step)
            lent.append(seq)
            if len(lent) == 1:
                return Beside(framed(LENT, meta, seq), memory.fileno())
            return None if len(lent) == 2 else framed(PARCEL, meta, seq, bulk)

        with faked(answer, path=tmp_path / "socket") as server, SwiftLoader.connect(server.address) as loader:
            loader.start(0)
            assert [batch.tolist() for batch in loader] == [[[0.0, 0.0]] * 8] * 12
            assert loader.statistics()["servers_lost"] == 1
