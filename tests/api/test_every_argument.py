"""No argument without a test of its effect: a test's name begins with the name of what it is about."""

from __future__ import annotations

import inspect

import pytest

from tests.api import test_effects_of_making, test_effects_of_order, test_effects_of_rotation, test_effects_of_watching
from tests.api.argument_table import DESIGNED, REQUIRED

_MODULES = (test_effects_of_making, test_effects_of_order, test_effects_of_rotation, test_effects_of_watching)
#: Told by a test under another name.
_ELSEWHERE = {
    "seed": "seed_decides_the_order_under_each_of_its_names",
    "seed_numer": "seed_decides_the_order_under_each_of_its_names",
    "seed_number": "seed_decides_the_order_under_each_of_its_names",
    "nb_consumer": "elastic_makes_the_same_global_steps_for_any_number_of_consumers",
    "batch_encoder": "batch_encoder_and_batch_decoder_carry_the_batch",
    "batch_decoder": "batch_encoder_and_batch_decoder_carry_the_batch",
    "dataset_class": "dataset_class_may_be_a_function_that_makes_the_dataset",
}
_TESTS = [
    name.removeprefix("test_") for module in _MODULES for name, _ in inspect.getmembers(module, inspect.isfunction)
]


@pytest.mark.parametrize("argument", [*REQUIRED, "shuffle", *DESIGNED])
def test_the_effect_of_every_argument_is_tested(argument: str):
    if argument in _ELSEWHERE:
        assert _ELSEWHERE[argument] in _TESTS
    else:
        assert any(name.startswith(argument + "_") for name in _TESTS)
