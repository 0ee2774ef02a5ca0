"""rotation_setting: wrong ones are refused, and a right one has its effect, seen in batches, calls and files."""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path

import pytest

from swift_loader import ConfigError, RotationSetting, SwiftLoader
from swift_loader.settings.loader import LoaderConfig
from tests.api.given import Backwards
from tests.datasets import Noted, Numbers, calls
from tests.loaders import made, started
from tests.watching import flat

MEMORY = {"medium": "memory", "rotation": 3}


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("shuffle", [True, False])
def test_rotation_setting_uses_each_sample_so_often_and_makes_it_once(count: int, shuffle: bool, tmp_path):
    given = {"folder": str(tmp_path), "count": 41}
    options = {"worker_per_consumer": count, "shuffle": shuffle, "batch_size": 1, "data_queue_size": 1}
    options |= {"message_queue_size": 1, "max_buffer_size": 0}  # so that no worker is far ahead of another
    with started(Noted, given, rotation_setting={**MEMORY, "size": 20}, **options) as loader:
        assert len(loader) == 3 * 41
        for epoch in range(2):
            assert Counter(flat(loader)) == dict.fromkeys(range(41), 3)
            asked = Counter(call.index for call in calls(tmp_path, "get"))
            assert set(asked) == set(range(41))
            assert asked.total() <= (epoch + 1) * 41 + 25  # of the next epoch some are made already
        found = loader.statistics()
    assert found["rotation_reused"] >= 2 * 2 * 41 - 15
    assert found["rotation_hit_rate"] == found["rotation_reused"] / (found["rotation_made"] + found["rotation_reused"])


def test_rotation_setting_in_order_goes_through_each_block_so_often():
    options = {"rotation_setting": {**MEMORY, "rotation": 2, "size": 3}, "shuffle": False, "worker_per_consumer": 0}
    with started(Numbers, {"count": 5}, **options) as loader:
        assert flat(loader) == [0, 1, 2] * 2 + [3, 4] * 2


def test_rotation_setting_may_be_typed():
    setting = RotationSetting("memory", rotation=3, size=9)
    with started(Numbers, {"count": 20}, rotation_setting=setting, worker_per_consumer=0) as loader:
        typed = flat(loader)
    with started(Numbers, {"count": 20}, rotation_setting={**MEMORY, "size": 9}, worker_per_consumer=0) as loader:
        assert flat(loader) == typed


@pytest.mark.parametrize("count", [0, 1])
def test_rotation_setting_on_disk_opens_a_file_of_that_prefix_which_has_no_name(count: int, tmp_path):
    setting = {"medium": "disk", "rotation": 2, "prefix": tmp_path / "made" / "kept", "size": 10}
    with started(Numbers, rotation_setting=setting, worker_per_consumer=count) as loader:
        assert Counter(flat(loader)) == dict.fromkeys(range(64), 2)
        opened = [name for name in _open_files() if name.startswith(str(tmp_path / "made" / "kept-"))]
        assert len(opened) == 1
        assert opened[0].endswith(".rotation (deleted)")
        assert list((tmp_path / "made").iterdir()) == []
    assert not [name for name in _open_files() if str(tmp_path) in name]


def _open_files() -> list[str]:
    folder = Path("/proc/self/fd")
    return [os.readlink(folder / name) for name in os.listdir(folder) if (folder / name).is_symlink()]


def test_rotation_setting_shares_its_size_among_consumers():
    config = LoaderConfig.parse(8, 4, 1, True, {"rotation_setting": {**MEMORY, "size": 102}})
    assert config.rotation_setting.room(4) == 25
    assert config.rotation_setting.room(200) == 1


def test_rotation_setting_and_a_cache_go_together(tmp_path):
    given = {"folder": str(tmp_path), "count": 30}
    with started(Noted, given, rotation_setting=MEMORY, cache_setting={"prefix": tmp_path / "kept"}) as loader:
        for _ in range(2):
            assert Counter(flat(loader)) == dict.fromkeys(range(30), 3)
    assert sorted(call.index for call in calls(tmp_path, "get")) == list(range(30))


def test_rotation_setting_without_a_size_in_memory_has_a_default():
    assert RotationSetting("memory", 2).size == 4096


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "must be a dict or a RotationSetting, not a int"),
        ({}, "lacks medium and rotation"),
        ({"medium": "memory"}, "lacks rotation"),
        ({"rotation": 3}, "lacks medium"),
        ({**MEMORY, "sise": 3}, "has no key 'sise'; did you mean 'size'"),
        ({**MEMORY, "nonsense": 3}, "has no key 'nonsense': its keys are medium, rotation, prefix, size"),
        ({**MEMORY, "medium": "disc"}, "medium must be 'memory' or 'disk', not 'disc'"),
        ({**MEMORY, "rotation": 1}, "rotation must be a whole number from 2 on, not 1"),
        ({**MEMORY, "rotation": 2.5}, "rotation must be a whole number from 2 on, not 2.5"),
        ({**MEMORY, "rotation": True}, "rotation must be a whole number from 2 on, not True"),
        ({**MEMORY, "rotation": math.inf}, "rotation must be a whole number from 2 on, not inf"),
        ({**MEMORY, "rotation": 10**6}, "rotation must be at most 10,000, not 1000000"),
        ({**MEMORY, "size": 0}, "size must be a whole number from 1 on, not 0"),
        ({**MEMORY, "prefix": 3}, "prefix must be a path, not 3"),
        ({"medium": "disk", "rotation": 3, "size": 5}, "medium='disk' needs a prefix"),
        ({"medium": "disk", "rotation": 3, "prefix": "/x"}, "medium='disk' needs a size"),
    ],
)
def test_a_wrong_rotation_setting_is_refused_with_what_to_do(wrong, message: str):
    with pytest.raises(ConfigError, match="rotation_setting") as caught:
        made(Numbers, rotation_setting=wrong)
    assert message in str(caught.value)


def test_a_plan_of_the_users_own_is_not_repeated():
    with pytest.raises(ConfigError, match="rotation_setting is a way of the built-in plan"):
        made(Numbers, rotation_setting=MEMORY, plan=Backwards())


def test_len_is_known_before_start():
    assert len(SwiftLoader(Numbers, {"count": 10}, 4, 1, 0, rotation_setting=MEMORY)) == 8
