"""Two real ranks train, are killed at a random step with all that they started, and resume: the weights are the same,
bit for bit, as those of a run that nobody disturbed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.resuming import check_that_it_resumes

WORDS = ("--epochs", "5", "--print-steps", "--digest")  # 23 steps each; a checkpoint every 10


@pytest.mark.slow
@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    ("script", "seed"), [("ddp_example.py", 1), pytest.param("accelerate_example.py", 2, marks=pytest.mark.soak)]
)
def test_training_that_was_killed_comes_to_the_same_weights(script: str, seed: int, project_root: Path, tmp_path: Path):
    lines = check_that_it_resumes(
        project_root / "examples" / script, *WORDS, checkpoint=tmp_path / "here", steps=range(12, 70), seed=seed
    )
    losses = [float(loss) for loss in re.findall(r"train loss ([\d.]+)", "\n".join(lines))]
    assert len(losses) == 5
    assert losses[-1] < losses[0] / 2
