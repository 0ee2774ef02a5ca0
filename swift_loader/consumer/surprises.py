"""What follows from the settings and the number of samples that nobody may have meant, in words: told at `start`."""

from __future__ import annotations

from collections.abc import Iterator

from swift_loader.plan.plan import EpochPlan, Plan
from swift_loader.settings.loader import LoaderConfig

#: Of more ranks than this it is not looked at each whether they take as many steps.
_MANY_RANKS = 4096


def surprises(plan: Plan, config: LoaderConfig, consumer: int, dataset: str) -> Iterator[str]:
    """What to warn the user of."""
    counts = range(min(config.consumer_count, _MANY_RANKS))
    steps = {plan.step_count(0, consumer) for consumer in counts}
    if steps == {0} and isinstance(plan, EpochPlan):
        yield _nothing_of(plan, dataset)
        return
    if len(steps) > 1:
        yield (
            f"consumers take from {min(steps)} to {max(steps)} batches per epoch: a rank with fewer leaves the "
            "others waiting in a collective. Set even='pad' and look at loader.last_batch_mask, or wrap the loop "
            "in torch's Join"
        )
    last = plan.step_count(0, consumer) - 1
    if (
        config.even == "balance"
        and last >= 0
        and isinstance(plan, EpochPlan)
        and plan.mask(0, consumer, last) is not None
    ):
        yield (
            f"{plan.sample_count} samples do not give each of {config.consumer_count} consumers something to do at "
            "every step: a batch repeats a sample of another; loader.last_batch_mask tells which"
        )


def _nothing_of(plan: EpochPlan, dataset: str) -> str:
    if plan.sample_count == 0:
        return f"{dataset} is empty, its len() is 0: each epoch is over at once, without a batch"
    return (
        f"no batch is left of {plan.sample_count} samples with batch_size={plan.batch_size}, "
        f"nb_consumer={plan.consumer_count}, even={plan.even!r}, drop_last={plan.drop_last}, elastic={plan.elastic}: "
        "each epoch is over at once. Take smaller batches, drop_last=False or even='balance'"
    )
