"""What a server says of its loader, and what a client makes of that."""

from __future__ import annotations

import hashlib
from typing import Any

from swift_loader.errors import ConfigError, ProtocolError
from swift_loader.net import schema
from swift_loader.plan.plan import EpochPlan, Plan
from swift_loader.plan.runs import Runs


def facts_of(plan: Plan, random_per: str) -> schema.Facts:
    """All that the plan is made of.

    Raises:
        ConfigError: if it is one that is not made of plain numbers.
    """
    if type(plan) is not EpochPlan or plan.rotation != 1:
        raise ConfigError(
            "a loader with a plan of its own (plan=...) or rotation_setting cannot be served: its order cannot be said "
            "to clients"
        )
    runs = None if plan.runs is None else [int(length) for length in plan.runs.lengths]
    return schema.Facts(
        plan.sample_count, plan.batch_size, plan.consumer_count, plan.shuffle, plan.seed, plan.window, plan.mix,
        plan.even, plan.drop_last, plan.elastic, runs, random_per,
    )  # fmt: skip


def loader_id(facts: schema.Facts, name: str) -> str:
    """What two servers of one client must agree in."""
    return hashlib.blake2b(schema.write(facts) + name.encode(), digest_size=16).hexdigest()


def plan_of(facts: schema.Facts) -> EpochPlan:
    """The same plan at the client.

    Raises:
        ProtocolError: if there can be none.
    """
    even: Any = facts.even
    try:
        return EpochPlan(
            sample_count=facts.sample_count, batch_size=facts.batch_size, consumer_count=facts.consumer_count,
            shuffle=facts.shuffle, seed=facts.seed, window=facts.window, mix=facts.mix, even=even,
            drop_last=facts.drop_last, elastic=facts.elastic, runs=None if facts.runs is None else Runs(facts.runs),
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"what the server says of its loader cannot be: {error}") from error
