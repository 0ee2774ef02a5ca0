"""`upload_cv_dataset`: pictures and labels into a bucket's folder, by processes, gone on with after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swift_loader.errors import ConfigError, ShardError
from swift_loader.shards import RemoteDataset, ShardDataset, make_client, upload_cv_dataset, verify
from tests.slow import slow
from tests.torch_pictures import PictureFolder, write_pictures

ROOT = Path(__file__).resolve().parents[2]
COUNT = 50


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(folder, COUNT)
    return folder


def test_files_keep_their_bytes(tmp_path: Path, pictures: Path) -> None:
    source = PictureFolder(pictures)
    made = upload_cv_dataset(
        source, client=make_client(tmp_path), bucket="b", base_folder="val", maxsize=2e4, maxcount=1e5, workers=2
    )
    assert (made.samples, made.shards > 2, made.where) == (COUNT, True, str(tmp_path / "b" / "val"))
    assert all(path.stat().st_size <= 20_000 for path in (tmp_path / "b" / "val").glob("*.tar"))
    assert verify(made.where) == []
    files = ShardDataset(made.where, ("__key__", "jpg;png", "cls"), decode=None)
    for key, data, label in (files[index] for index in range(COUNT)):
        path, expected = source.samples[int(key)]
        assert (data, label) == (Path(path).read_bytes(), expected)
    assert np.bincount(files.column("cls")).tolist() == [5] * 10
    remote = RemoteDataset(make_client(tmp_path), "b", "val").decode("pil").to_tuple("jpg;png", "cls")
    assert sorted(label for _, label in remote) == sorted(label for _, label in source.samples)
    again = upload_cv_dataset(source, make_client(tmp_path), "b", "val", 2e4, 1e5, 0, progress=False)
    assert (again.shards_found, again.generation) == (made.shards, 1)


class Pairs:
    """Pictures of a kind, with a label."""

    def __init__(self, kind: str, label: Any) -> None:
        self.kind, self.label = kind, label

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        import torch
        from PIL import Image

        pixels = np.full((4, 5, 3), 10 * index, np.uint8)
        made: dict[str, Callable[[], Any]] = {
            "RGB": lambda: Image.fromarray(pixels),
            "RGBA": lambda: Image.fromarray(pixels).convert("RGBA"),
            "P": lambda: Image.fromarray(pixels).convert("P", palette=Image.Palette.ADAPTIVE),
            "array": lambda: pixels,
            "tensor": lambda: torch.from_numpy(pixels).permute(2, 0, 1),
            "floats": lambda: pixels.astype(np.float32),
        }
        return made[self.kind](), self.label


@pytest.mark.parametrize(
    ("kind", "label", "fields"),
    [
        ("RGB", 7, ("cls", "png")),
        *(slow(kind, 7, ("cls", "png")) for kind in ("RGBA", "P", "array", "tensor")),
        ("floats", np.int64(7), ("cls", "npy")),
        ("RGB", "a dog", ("png", "txt")),
        ("RGB", {"boxes": [1, 2]}, ("json", "png")),
    ],
)
def test_other_pictures_lose_nothing(tmp_path: Path, kind: str, label: Any, fields: tuple[str, ...]) -> None:
    made = upload_cv_dataset(Pairs(kind, label), make_client(tmp_path), "b", "s", progress=False)
    dataset = ShardDataset(made.where, decode="rgb8")
    assert tuple(dataset.fields) == fields
    for index in range(3):
        sample = dataset[index]
        number = int(dataset.key(index))
        pixels = sample["png" if "png" in fields else "npy"]
        assert pixels.shape == (4, 5, 3)
        assert (pixels == 10 * number).all()
        assert next(value for name, value in sample.items() if name not in ("png", "npy")) == label


def test_a_dataset_with_a_transform_is_read_as_it_gives_samples(tmp_path: Path, pictures: Path) -> None:
    def shrunk(image: Any) -> Any:
        return image.resize((8, 8))

    made = upload_cv_dataset(PictureFolder(pictures, shrunk), make_client(tmp_path), "b", "s", progress=False)
    assert ShardDataset(made.where, "png", decode="rgb8")[0].shape == (8, 8, 3)


def test_what_is_wrong_is_said(tmp_path: Path, pictures: Path) -> None:
    source, client = PictureFolder(pictures), make_client(tmp_path)
    for wrong, said in (({"workers": 1.5}, "workers"), ({"maxsize": 10}, "maxsize"), ({"maxcount": 0}, "maxcount")):
        with pytest.raises(ConfigError, match=said):
            upload_cv_dataset(source, client, "b", "s", **wrong)  # type: ignore[arg-type]
    upload_cv_dataset(source, client, "b", "s", progress=False)
    with pytest.raises(ShardError, match="overwrite"):
        upload_cv_dataset(Pairs("RGB", 1), client, "b", "s", progress=False)
    assert upload_cv_dataset(Pairs("RGB", 1), client, "b", "s", overwrite=True, progress=False).samples == 3


class Bucket:
    """What another library has in place of boto3's client; gives its lists in pages of three."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def list_objects(self, Bucket: str, Prefix: str, Marker: str = "") -> dict[str, Any]:  # noqa: N803 - boto3's names
        names = sorted(n for n in self.objects if n.startswith(f"{Bucket}/{Prefix}") and n > f"{Bucket}/{Marker}")
        page = [{"Key": n.partition("/")[2], "Size": len(self.objects[n])} for n in names[:3]]
        return {"IsTruncated": len(names) > 3, **({"Contents": page} if page else {})}

    def download_fileobj(self, bucket: str, key: str, file: Any) -> None:
        file.write(self.objects[f"{bucket}/{key}"])

    def upload_file(self, path: str, bucket: str, key: str) -> None:
        self.objects[f"{bucket}/{key}"] = Path(path).read_bytes()


def test_any_client_with_three_calls_will_do(pictures: Path) -> None:
    bucket = Bucket()
    bucket.objects["b/set-old/shard-000000.tar"] = b"no set of ours"
    client = make_client(bucket)
    made = upload_cv_dataset(PictureFolder(pictures), client, "b", "set", maxsize=2e4, progress=False)
    assert (made.samples, made.where) == (COUNT, "b/set")
    assert upload_cv_dataset(PictureFolder(pictures), client, "b", "set", maxsize=2e4, progress=False).shards_found > 2
    remote = RemoteDataset(client, "b", "set")
    keys = {sample["__key__"] for sample in remote}
    assert len(keys) == COUNT
    folder = Path(remote._source.url)
    assert folder.exists()
    del remote
    assert not folder.exists()


@pytest.mark.slow
def test_an_upload_that_is_killed_goes_on(tmp_path: Path, pictures: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from swift_loader.shards import upload_cv_dataset, make_client\n"
        "from tests.torch_pictures import PictureFolder\n"
        "if __name__ == '__main__':\n"
        "    upload_cv_dataset(PictureFolder(Path(sys.argv[1])), make_client(sys.argv[2]), 'b', 's', 9e3, workers=2)\n"
    )
    path = tmp_path / "upload.py"
    path.write_text(script)
    words = [sys.executable, str(path), str(pictures)]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    subprocess.run([*words, str(tmp_path / "whole")], check=True, env=env, timeout=100)
    expected = {one.name: one.read_bytes() for one in (tmp_path / "whole/b/s").iterdir()}
    here = tmp_path / "killed"
    for _ in range(20):
        process = subprocess.Popen([*words, str(here)], env=env)
        before = len(list(here.glob("b/s/shard-*")))
        while process.poll() is None and len(list(here.glob("b/s/shard-*"))) <= before + 1:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (here / "b/s/index.swift").exists():
            break
    subprocess.run([*words, str(here)], check=True, env=env, timeout=100)
    found = {one.name: one.read_bytes() for one in (here / "b/s").iterdir()}
    assert {name: data for name, data in found.items() if "shard" in name} == {
        name: data for name, data in expected.items() if "shard" in name
    }
    assert verify(here / "b/s") == []
