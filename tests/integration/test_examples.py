"""The demo and the examples run as a user would run them, and leave no process behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from swift_loader import SwiftLoader
from tests.served_streams import free_port
from tests.watching import begin_python


def run(*words: str, root: Path) -> subprocess.CompletedProcess[str]:
    with begin_python(*words, folder=root) as script:
        out, err = script.communicate(timeout=100)
    assert script.returncode is not None
    return subprocess.CompletedProcess(words, script.returncode, out, err)


@pytest.mark.slow  # .ci/run calls the demo itself, too
def test_the_demo_learns_and_tells_who_waited_for_whom(project_root: Path):
    result = run("-m", "swift_loader.cli.main", "demo", "--epochs", "3", root=project_root)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no bar where nobody looks, no warnings
    accuracy = re.search(r"test accuracy ([\d.]+)%", result.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) > 93
    assert len(re.findall(r"^ +[01] +2 +23 ", result.stdout, re.MULTILINE)) == 2
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.slow
def test_the_demo_fails_when_a_rank_fails(project_root: Path, tmp_path: Path):
    script = tmp_path / "broken_demo.py"
    script.write_text(
        "import sys\n"
        "from swift_loader.cli import digits, main\n"
        "def broken():\n"
        "    raise RuntimeError('the digits are gone')\n"
        "digits.load = broken  # in the ranks too: they import this file\n"
        "if __name__ == '__main__':\n"
        "    sys.exit(main.main(['demo']))\n"
    )
    result = run(str(script), root=project_root)
    assert result.returncode == 1
    assert "RuntimeError: the digits are gone" in result.stderr


def test_the_quickstart_prints_shapes_and_speed(project_root: Path):
    result = run("examples/quickstart.py", root=project_root)
    assert result.returncode == 0, result.stderr
    assert "image (64, 3, 64, 64) torch.uint8" in result.stdout
    assert "samples/s" in result.stdout


@pytest.mark.slow
def test_a_small_gpt_learns_from_tokens(project_root: Path):
    result = run("examples/gpt_example.py", "--epochs", "1", "--tokens", "60000", root=project_root)
    assert result.returncode == 0, result.stderr
    loss = re.search(r"on other text ([\d.]+)", result.stdout)
    assert loss is not None
    assert float(loss[1]) < 4.5  # 5.5 is chance


@pytest.mark.slow
def test_a_classifier_learns_from_a_folder_of_images(project_root: Path):
    result = run("examples/images_example.py", "--epochs", "3", root=project_root)
    assert result.returncode == 0, result.stderr
    shares = re.findall(r"(\d+)% of the test pictures", result.stdout)
    assert len(shares) == 3
    assert max(map(int, shares)) > 60  # a third is chance


@pytest.mark.slow
def test_an_example_tries_itself_with_two_ranks(project_root: Path):
    result = run("examples/ddp_example.py", "--dry-run", root=project_root)  # whole runs: `test_training_resumes`
    assert result.returncode == 0, result.stderr
    assert re.search(r"epoch 1: train loss [\d.]+, test accuracy [\d.]+%", result.stdout)


@pytest.mark.slow
def test_the_evaluation_counts_exactly_on_three_ranks(project_root: Path):
    result = run("examples/evaluation_example.py", root=project_root)
    assert result.returncode == 0, result.stderr
    alone = re.search(r"one process: +(\d+) of 97, ([\d.]+%)", result.stdout)
    assert alone is not None
    assert f"even='pad':  {alone[1]} of 97, {alone[2]}, in 3 steps each" in result.stdout
    assert f"even='none': {alone[1]} of 97, {alone[2]}, in [3, 3, 2] steps" in result.stdout
    assert f"it would have been {alone[1]} of" not in result.stdout  # repeats were there to be left out


@pytest.mark.slow
def test_two_ranks_learn_from_two_servers(project_root: Path, tmp_path: Path):
    folder, key = project_root / "examples" / "served_ddp", str(tmp_path / "job.key")
    command = (sys.executable, "-m", "swift_loader.cli.main")
    environment = {**os.environ, "PYTHONPATH": str(project_root)}
    subprocess.run([*command, "keygen", key], check=True, env=environment, timeout=60)
    ports = [str(free_port()), str(free_port())]
    servers = [
        subprocess.Popen(
            [*command, "serve", "data:make_loader", "--port", port, "--key", key], cwd=folder, env=environment
        )
        for port in ports
    ]
    try:
        for port in ports:
            SwiftLoader.connect(f"tcp://127.0.0.1:{port}", key=key).close()
        words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", f"--master-port={free_port()}", "train.py"]
        addresses = ",".join(f"tcp://127.0.0.1:{port}" for port in ports)
        trained = subprocess.run(
            [sys.executable, *words, addresses, key], cwd=folder, env=environment, capture_output=True, text=True,
            check=False, timeout=100,
        )  # fmt: skip
    finally:
        for server in servers:
            server.terminate()
            server.wait(10)
    assert trained.returncode == 0, trained.stderr
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)", trained.stdout)]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    assert "2 servers" in trained.stdout
