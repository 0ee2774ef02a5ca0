"""`SwiftLoader.connect`: asks the servers what they serve, which must be the same, and makes a loader of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swift_loader.errors import ConfigError, PeerLost, ProtocolMismatch
from swift_loader.net import schema
from swift_loader.net.address import Address, parse_all
from swift_loader.net.dial import dial
from swift_loader.net.frames import BYE, Limits
from swift_loader.net.greeting import Refusal, greeted
from swift_loader.net.keys import Key, read_key
from swift_loader.net.link import LinkLost, LinkRefused
from swift_loader.serving.facts import plan_of
from swift_loader.wire.remote_samples import RemoteSamples

_WAIT_S = 300.0
_LIMITS = Limits(4 << 20, 0)
_PAUSE_S = 0.2
#: What the servers' loader decides.
_THEIRS = (
    "seed", "seed_numer", "seed_number", "nearby_shuffle", "nearby_mix", "even", "drop_last", "elastic", "plan",
    "collate_fn", "batch_encoder", "batch_decoder", "random_per", "worker_threads", "worker_init", "share_dataset",
    "on_error", "retries", "ragged", "check_finite", "rotation_setting", "cache_setting", "max_worker_nbytes",
)  # fmt: skip


def connected(servers: str, key: str | Path | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a loader of what the servers serve.

    Raises:
        ConfigError: if an address or the key is wrong, or a setting is the servers' to decide.
        PeerLost: if none answers.
        ProtocolMismatch: if they serve different loaders.
    """
    theirs = sorted(set(_THEIRS) & settings.keys())
    if theirs:
        raise ConfigError(f"{', '.join(theirs)}: what decides which batches there are is said to the servers' loader")
    addresses = parse_all(servers)
    proof = None if key is None else read_key(key)
    welcomes = _welcomes(addresses, proof)
    address, welcome = next(iter(welcomes.items()))
    for other, said in welcomes.items():
        if said.loader != welcome.loader:
            raise ProtocolMismatch(
                f"{address} and {other} serve different loaders: {_difference(welcome, said)}. Give both the same "
                "dataset and settings, and a seed"
            )
    facts = schema.read(schema.Facts, welcome.facts)
    path = None if key is None else str(Path(key).absolute())
    samples = RemoteSamples(
        facts.sample_count, tuple(map(str, addresses)), path, welcome.loader, max(1, welcome.width), _WAIT_S
    )
    arguments: dict[str, Any] = {
        "dataset": samples,
        "batch_size": facts.batch_size, "nb_consumer": facts.consumer_count, "worker_per_consumer": len(addresses),
        "shuffle": facts.shuffle, "seed": facts.seed, "random_per": facts.random_per, "plan": plan_of(facts),
    }  # fmt: skip
    return arguments


def _welcomes(addresses: list[Address], key: Key | None) -> dict[Address, schema.Welcome]:
    """What those say that answer; waits until one does."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        found, lost = {}, []
        for address in addresses:
            try:
                found[address] = _welcome(address, key)
            except LinkRefused as error:
                raise PeerLost(
                    f"{address} does not let this loader in: {error}. Both must have the same key"
                ) from error
            except LinkLost as error:
                lost.append(f"{address}: {error}")
        if found:
            return found
        if time.monotonic() > deadline:
            raise PeerLost(f"no server has answered for {_WAIT_S:g} s: {'; '.join(lost)}")
        time.sleep(_PAUSE_S)


def _welcome(address: Address, key: Key | None) -> schema.Welcome:
    link = dial(address, key)
    try:
        _, welcome = greeted(link, schema.hello("loader"), _LIMITS)
        link.say(BYE)
        return welcome
    except Refusal as refusal:
        raise (ProtocolMismatch if refusal.why == "version" else PeerLost)(f"{address}: {refusal}") from refusal
    finally:
        link.close()


def _difference(one: schema.Welcome, other: schema.Welcome) -> str:
    mine, theirs = (schema.read(schema.Facts, said.facts) for said in (one, other))
    names = mine.__struct_fields__
    odd = [
        f"{name} is {getattr(mine, name)!s:.40} and {getattr(theirs, name)!s:.40}"
        for name in names
        if getattr(mine, name) != getattr(theirs, name)
    ]
    return ", ".join(odd)
