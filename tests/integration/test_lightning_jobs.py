"""The examples for Lightning, as whole jobs: what they learn, and that killing them changes nothing of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.resuming import check_that_it_resumes

EPOCHS, STEPS = 3, 23


@pytest.mark.slow
@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    ("script", "seed"), [pytest.param("fabric_example.py", 3, marks=pytest.mark.soak), ("trainer_example.py", 4)]
)
def test_a_job_of_two_ranks_learns_and_survives_a_kill(script: str, seed: int, project_root: Path, tmp_path: Path):
    lines = check_that_it_resumes(
        project_root / "examples" / script,
        *("--epochs", str(EPOCHS), "--print-steps", "--digest"),
        checkpoint=tmp_path / "checkpoint",
        steps=range(12, EPOCHS * STEPS),
        seed=seed,
    )
    told = [re.fullmatch(r"epoch \d: train loss ([\d.]+), test accuracy ([\d.]+)%", line) for line in lines]
    losses, accuracies = zip(*[map(float, match.groups()) for match in told if match], strict=True)
    assert len(losses) == EPOCHS
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < losses[0] / 2
    assert accuracies[2] > 85
