"""A small GPT, trained on a text that ships with Python: its reference manual, 700 kB of English.

Run it with `python examples/gpt_example.py`. The text becomes a file of tokens as nanoGPT's `prepare.py` writes them;
`TokenDataset` cuts it into windows, and workers write these straight into the batch, as int64.
"""

import argparse
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from swift_loader import SwiftLoader
from swift_loader.shards import TokenDataset

TOKENS = 256  # a token is a byte


class Block(nn.Module):
    """Attention to what came before, then a layer of its own for each position."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attend(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.think(self.norms[1](x))


class GPT(nn.Module):
    """Says for each position how likely each token comes next."""

    def __init__(self, length: int, width: int = 96, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)), nn.LayerNorm(width))
        self.head = nn.Linear(width, TOKENS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))))


def write_tokens(folder: Path, most: int) -> None:
    """The text as tokens: nine tenths to train with, the rest to test."""
    tokens = np.frombuffer("\n".join(topics.values()).encode(), np.uint8)[:most].astype(np.uint16)
    cut = len(tokens) * 9 // 10
    tokens[:cut].tofile(folder / "train.bin")
    tokens[cut:].tofile(folder / "test.bin")


def loss_of(model: GPT, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def train(folder: Path, epochs: int, length: int, device: torch.device) -> float:
    """Gives back the loss on text that the model has not seen, in nats per token."""
    model = GPT(length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    train_set = TokenDataset(folder / "train.bin", length, dtype="uint16")
    test_set = TokenDataset(folder / "test.bin", length, dtype="uint16")
    with (
        SwiftLoader.from_dataset(train_set, 32, 1, 2, seed=0) as loader,
        SwiftLoader.from_dataset(test_set, 32, 1, 1, shuffle=False) as held_out,
    ):
        loader.start(0, device)
        held_out.start(0, device)
        for epoch in range(epochs):
            for x, y in loader:
                optimizer.zero_grad(set_to_none=True)
                loss = loss_of(model, x, y)
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                losses = torch.stack([loss_of(model, x, y) for x, y in held_out])
            print(f"epoch {epoch}: {len(loader)} steps, loss {loss.item():.2f}, on other text {losses.mean():.2f}")
        print(loader.report())
    return losses.mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--length", type=int, default=64, help="tokens that the model sees")
    parser.add_argument("--tokens", type=int, default=10**6, help="of the text, at most")
    given = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_tokens(Path(folder), given.tokens)
        train(Path(folder), given.epochs, given.length, torch.device("cuda" if torch.cuda.is_available() else "cpu"))


if __name__ == "__main__":
    main()
