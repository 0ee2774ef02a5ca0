"""Stream server: what a training loop takes whose batches are made in its own process, or by a server beside it.

Measures: the pair of files in `examples/stream_server`: 1,000 lists of 128 numbers in batches of 100, 5 ms for each
batch on purpose, 10 ms of training for each, 5 epochs; seconds of the loop, the connection included. Sides: the
training alone (the same sleeps, no data), the stream in the same process, and the server. Rounds alternate; the median
and the worst of each, and both beside the training alone of the same round.

Leaves out: the start of the server, which is there before the script.

Command: `python -m benchmarks.stream_server`. The last table is `results/stream_server.txt`.

Caveat: server and client share this machine's cores with whatever else runs.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS, EPOCHS, BATCHES, STEP_S = 7, 5, 10, 0.01
ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "stream_server"


def alone() -> float:
    """Seconds of the training without data."""
    began = time.time()
    for _ in range(EPOCHS * BATCHES):
        time.sleep(STEP_S)
    return time.time() - began


def script(*words: str) -> float:
    """Seconds that the document's script prints."""
    done = subprocess.run(
        [sys.executable, "train.py", *words], cwd=FOLDER, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    return float(re.findall(r"took ([\d.]+)", done.stdout)[0])


def main() -> None:
    """Prints the table."""
    server = subprocess.Popen([sys.executable, "server.py"], cwd=FOLDER, env={"PYTHONPATH": str(ROOT)})
    try:
        time.sleep(2)
        rounds = [(alone(), script(), script("-p")) for _ in range(ROUNDS)]
    finally:
        server.terminate()
        server.wait(10)
    print(f"{'side':<24}{'median s':>10}{'worst s':>10}{'x training alone':>18}{'worst':>8}")
    for at, side in enumerate(("training alone", "one process", "server beside it")):
        seconds = [one[at] for one in rounds]
        ratios = [one[at] / one[0] for one in rounds]
        print(
            f"{side:<24}{statistics.median(seconds):>10.3f}{max(seconds):>10.3f}"
            f"{statistics.median(ratios):>18.3f}{max(ratios):>8.3f}"
        )


if __name__ == "__main__":
    main()
