"""Ranks of Lightning's Fabric: on two nodes, and in processes that get a loader which was built before them."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.gloo_ranks import free_port
from tests.resuming import lines_of
from tests.slow import slow
from tests.watching import begin_script

NODE = """
import json, sys
from pathlib import Path
from lightning.fabric import Fabric
from swift_loader import ConfigError, SwiftLoader
from swift_loader.integrations.lightning import SwiftDataModule, setup_loaders
from tests.datasets import Numbers
from tests.trained import Noting, a_trainer

nodes = {"accelerator": "cpu", "devices": 1, "num_nodes": 2, "strategy": "ddp"}


def make(nb_consumer=2, count=30):
    return SwiftLoader(Numbers, {"count": count}, 4, nb_consumer, 1)


def refusal(call):
    try:
        call()
    except (ConfigError, TypeError) as error:
        return str(error)


fabric = Fabric(**nodes)
told = {}
with make() as train_loader, make(count=12) as test_loader, make(3) as of_three:
    told["too early"] = refusal(lambda: setup_loaders(fabric, train_loader))
    fabric.launch()
    told["of three"] = refusal(lambda: setup_loaders(fabric, train_loader, of_three))
    told["of fabric"] = refusal(lambda: fabric.setup_dataloaders(train_loader))
    both = setup_loaders(fabric, train_loader, test_loader)
    told["both"] = both == [train_loader, test_loader]
    told["ranks"] = [fabric.global_rank, fabric.local_rank]
    told["fabric"] = [[n for batch in loader for n in batch.tolist()] for loader in both]

model = Noting()
trainer = a_trainer(**nodes, max_epochs=1, limit_val_batches=0)
trainer.fit(model, datamodule=SwiftDataModule(train=make))
told["trainer"] = model.noted()["trained"]
Path(sys.argv[1]).write_text(json.dumps(told))
"""

LAUNCH = """
import json, sys
from pathlib import Path
from lightning.fabric import Fabric
from swift_loader import SwiftLoader
from swift_loader.integrations.lightning import setup_loaders
from tests.datasets import Numbers


def rank(fabric, loader, other, folder):
    with loader, other:
        setup_loaders(fabric, loader)
        epochs = [[n for batch in loader for n in batch.tolist()] for _ in range(2)]
        other = [n for batch in other for n in batch.tolist()]  # starts by itself
    (folder / f"{fabric.global_rank}.json").write_text(json.dumps([*epochs, other]))
    fabric.barrier()


if __name__ == "__main__":
    fabric = Fabric(accelerator="cpu", devices=2, strategy=sys.argv[1])
    loader, other = (SwiftLoader(Numbers, {"count": 30}, 4, 2, 1) for _ in range(2))
    fabric.launch(rank, loader, other, Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_ranks_of_two_nodes_are_two_consumers(tmp_path: Path):
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": "lo"}
    with ExitStack() as stack:
        nodes = []
        for node in range(2):
            process = begin_script(tmp_path, NODE, str(tmp_path / f"{node}.json"), NODE_RANK=str(node), **env)
            nodes.append(stack.enter_context(process))
            stack.callback(process.kill)
        ends = [process.communicate(timeout=150) for process in nodes]
    assert [process.returncode for process in nodes] == [0, 0], ends

    told = [json.loads((tmp_path / f"{node}.json").read_text()) for node in range(2)]
    assert [node["ranks"] for node in told] == [[0, 0], [1, 0]]
    for node in told:
        assert "call fabric.launch() before setup_loaders" in node["too early"]
        assert "nb_consumer=3, and fabric has 2 ranks: set nb_consumer=fabric.world_size" in node["of three"]
        assert "Only PyTorch DataLoader are currently supported" in node["of fabric"]
        assert node["both"] is True
    assert sorted(told[0]["fabric"][0] + told[1]["fabric"][0]) == list(range(30))
    assert sorted(told[0]["fabric"][1] + told[1]["fabric"][1]) == list(range(12))
    seen = [n for node in told for _, _, *batch in node["trainer"] for n in batch]
    assert sorted(seen) == list(range(30))


@pytest.mark.parametrize("strategy", [pytest.param("ddp_spawn", marks=pytest.mark.soak), slow("ddp_fork")])
def test_a_loader_built_before_the_ranks_takes_its_seed_along(strategy: str, tmp_path: Path):
    script = tmp_path / "launch.py"
    script.write_text(LAUNCH)
    lines_of(script, strategy, str(tmp_path), folder=tmp_path)
    one, two = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    for mine, others in zip(one, two, strict=True):
        assert sorted(mine + others) == list(range(30))
    assert one[0] != one[1] != one[2]
