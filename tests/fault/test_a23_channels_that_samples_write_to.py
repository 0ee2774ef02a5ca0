"""Row A23: a sample closes, or writes to, a descriptor that is ours, as a library does that closes a number twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swift_loader.wire import messages
from tests.fault.harming import Harms
from tests.fault.oracle import HANG_S, World, differences, faultless, in_thread, record
from tests.loaders import started
from tests.slow import slow

HARM = {
    "text": b"GET / HTTP/1.1",
    "json": b'{"a": 1}',
    "nothing": b"",
    "half a pickle": bytes((messages.FAILURE,)) + b"\x80\x05\x95",
    "a short parcel": bytes((messages.PARCEL,)) + b"123",
    "what only we say": bytes((messages.ORDERS,)) + bytes(40),
}


@pytest.mark.parametrize(
    ("harm", "method"),
    [
        ("half a pickle", "forkserver"),
        ("shut down", "forkserver"),
        ("nothing", "fork"),
        *(slow(harm, "forkserver") for harm in ("text", "nothing")),
        slow("json", "spawn"),
    ],
)
def test_a23_the_worker_is_replaced_and_no_batch_is_harmed(harm: str, method: str, tmp_path: Path):
    world = World(method, 2, in_thread=False)
    kwargs = {"path": str(tmp_path / "done"), "harm": HARM.get(harm)}

    def run() -> list[Any]:
        with started(Harms, kwargs, timeout_s=2 * HANG_S, **world.settings) as loader:
            return record(loader)

    found = run() if method == "fork" else in_thread(run)
    assert (tmp_path / "done").exists()
    assert not differences(found, faultless())


@pytest.mark.parametrize("harm", [harm for harm in HARM if harm != "nothing"])
def test_a23_what_is_no_message_is_known_as_none(harm: str):
    with pytest.raises(messages.Garbled, match=rf"^{len(HARM[harm])} bytes that begin with b"):
        messages.read(HARM[harm])
