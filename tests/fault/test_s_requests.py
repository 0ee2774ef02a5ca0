"""Rows S: single requests to a store that answers in part, or is not there."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest

from swift_loader.errors import ShardError
from swift_loader.shards import ShardDataset, make_client
from swift_loader.shards.url import place_of
from swift_loader.stores.fetched import Fetched
from tests.fault_proxy import FaultProxy
from tests.s3_server import S3Server

pytest.importorskip("obstore")


@pytest.fixture(autouse=True)
def _fetchers_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFT_LOADER_FETCHER_LINGER_S", "0.3")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cut", "rst"])
def test_s1_what_was_cut_goes_on_where_it_ended(s3_server: S3Server, fault_proxy: FaultProxy, kind: str) -> None:
    data = os.urandom(8 << 20)
    s3_server.put("stores/large", data)
    client: Any = make_client(fault_proxy.endpoint, s3_server.access_key, s3_server.secret_key)
    fetched = Fetched(place_of(f"s3://{s3_server.bucket}/stores"), client)
    assert bytes(fetched.read("large", 0, len(data))) == data  # how fast the store is, is known from here on
    fault_proxy.calm()
    chance = random.Random(11)
    for _ in range(40):
        fault_proxy.fault(kind, after=chance.randrange(len(data)), times=1)
        assert bytes(fetched.read("large", 0, len(data))) == data
    counts = fault_proxy.counts()
    assert counts[kind] == 40
    # Of each answer what has come since the last whole piece: an eighth of a quarter of a second's, on average.
    assert counts["nbytes"] <= 1.25 * 40 * len(data)


@pytest.mark.slow
def test_s14_a_host_that_there_is_not_is_told_soon(s3_server: S3Server) -> None:
    client: Any = make_client("http://no.such.host.invalid:9", s3_server.access_key, s3_server.secret_key)
    begun_s = time.monotonic()
    with pytest.raises(ShardError, match="no host of that name"):
        ShardDataset("s3://bucket/set", client=client)
    assert time.monotonic() - begun_s < 20  # one second, and what the resolver takes
