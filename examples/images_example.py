"""An image classifier, trained on a folder of JPEGs with a folder for each class.

Run it with `python examples/images_example.py`, or with `--folder` on your own. Without one it draws some: discs,
squares and triangles of any colour, size and place. Workers decode, crop and flip; what they draw at random is another
in each epoch, and the same in each run.
"""

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

from swift_loader import SwiftLoader
from swift_loader.shards import ImageFolder

SIDE = 64


def draw_shape(kind: str, chance: random.Random) -> Image.Image:
    """One of the three on a ground of another colour."""
    side = chance.randint(72, 120)
    image = Image.new("RGB", (side, side), tuple(chance.randrange(128) for _ in range(3)))
    pen, colour = ImageDraw.Draw(image), tuple(chance.randrange(128, 256) for _ in range(3))
    radius = chance.uniform(0.2, 0.35) * side
    x, y = (chance.uniform(radius, side - radius) for _ in range(2))
    corners = (x - radius, y - radius, x + radius, y + radius)
    if kind == "disc":
        pen.ellipse(corners, fill=colour)
    elif kind == "square":
        pen.rectangle(corners, fill=colour)
    else:
        pen.regular_polygon((x, y, radius), 3, chance.randrange(360), fill=colour)
    return image


def write_folder(folder: Path, count: int) -> None:
    """So many of each kind, to train with; and a quarter of that to test."""
    chance = random.Random(0)
    for part, how_many in (("train", count), ("test", count // 4)):
        for kind in ("disc", "square", "triangle"):
            (folder / part / kind).mkdir(parents=True)
            for number in range(how_many):
                draw_shape(kind, chance).save(folder / part / kind / f"{number:04}.jpg", quality=90)


def crop_and_flip(pixels: np.ndarray) -> torch.Tensor:
    """For training: another part of the picture each time, and every second time its mirror image."""
    top, left = (random.randint(0, side - SIDE) for side in pixels.shape[:2])
    part = pixels[top : top + SIDE, left : left + SIDE]
    if random.random() < 0.5:
        part = part[:, ::-1]
    return torch.from_numpy(np.ascontiguousarray(part)).permute(2, 0, 1)


def middle(pixels: np.ndarray) -> torch.Tensor:
    """For testing: the middle."""
    top, left = ((side - SIDE) // 2 for side in pixels.shape[:2])
    return torch.from_numpy(pixels[top : top + SIDE, left : left + SIDE]).permute(2, 0, 1)


def network(classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide_in, wide_out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(wide_in, wide_out, 3, padding=1), nn.BatchNorm2d(wide_out), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def right_share(model: nn.Module, loader: SwiftLoader) -> float:
    """Of the pictures, those that the model knows."""
    model.eval()
    right = count = 0
    with torch.no_grad():
        for images, targets in loader:
            right += int((model(images.float() / 255).argmax(1) == targets).sum())
            count += len(targets)
    model.train()
    return right / count


def train(folder: Path, epochs: int, device: torch.device) -> float:
    """Gives back the share of test pictures that the model knows in the end."""
    train_set = ImageFolder(folder / "train", crop_and_flip, decode="rgb8")
    test_set = ImageFolder(folder / "test", middle, decode="rgb8")
    model = network(len(train_set.classes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    with (
        SwiftLoader.from_dataset(train_set, 32, 1, 2, seed=0) as loader,
        SwiftLoader.from_dataset(test_set, 32, 1, 1, shuffle=False) as held_out,
    ):
        loader.start(0, device)
        held_out.start(0, device)
        for epoch in range(epochs):
            for images, targets in loader:
                optimizer.zero_grad(set_to_none=True)
                nn.functional.cross_entropy(model(images.float() / 255), targets).backward()
                optimizer.step()
            share = right_share(model, held_out)
            print(f"epoch {epoch}: {len(loader)} steps, {share:.0%} of the test pictures are right")
        print(loader.report())
    return share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, help="with train/CLASS/*.jpg and test/CLASS/*.jpg; pictures of 64 and more"
    )
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--count", type=int, default=400, help="pictures of each class, where they are drawn")
    given = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as drawn:
        if given.folder is None:
            write_folder(Path(drawn), given.count)
        train(given.folder or Path(drawn), given.epochs, torch.device("cuda" if torch.cuda.is_available() else "cpu"))


if __name__ == "__main__":
    main()
