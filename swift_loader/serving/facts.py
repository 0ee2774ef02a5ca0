"""What a server says of its loader, and what a client makes of that."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_loader.errors import ConfigError, ProtocolError
from swift_loader.net import schema
from swift_loader.plan.plan import EpochPlan, Plan
from swift_loader.plan.runs import Runs
from swift_loader.reuse.origin import origin_of

if TYPE_CHECKING:
    from swift_loader.wire.recipe import Recipe


class What(NamedTuple):
    """What samples are of, in words that are the same wherever that is so."""

    dataset: str = ""
    arguments: str = ""
    code: str = ""


_UNKNOWN = What()


def what_of(recipe: Recipe, version: str | None) -> What:
    """What a loader serves. ``version``: in the place of arguments and code, where those differ and the data do not."""
    name = recipe.dataset_name[:200]
    if version is not None:
        return What(name, version[:200])
    arguments = ""
    if recipe.dataset_class is not None and recipe.dataset is None:
        with contextlib.suppress(ConfigError):  # they cannot be told apart from others
            arguments = origin_of(recipe.dataset_class, recipe.dataset_kwargs, None, "").arguments
    made_by = recipe.dataset_class if recipe.dataset is None else type(recipe.dataset)
    sources = "".join(map(_source_of, (made_by, recipe.config.collate_fn)))
    return What(name, arguments, hashlib.blake2b(sources.encode(), digest_size=16).hexdigest())


def _source_of(what: Any) -> str:
    try:
        return inspect.getsource(what)
    except (OSError, TypeError):  # there is none, or it is no class and no function
        return ""


def facts_of(plan: Plan, random_per: str, what: What = _UNKNOWN) -> schema.Facts:
    """All that the plan is made of, and what the samples are of.

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
        plan.even, plan.drop_last, plan.elastic, runs, random_per, *what,
        groups=1 if plan.runs is None else plan.runs.groups,
    )  # fmt: skip


def loader_id(facts: schema.Facts) -> str:
    """What two servers of one client must agree in."""
    return hashlib.blake2b(schema.write(facts), digest_size=16).hexdigest()


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
            drop_last=facts.drop_last, elastic=facts.elastic,
            runs=None if facts.runs is None else Runs(facts.runs, facts.groups),
        )  # fmt: skip
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"what the server says of its loader cannot be: {error}") from error
