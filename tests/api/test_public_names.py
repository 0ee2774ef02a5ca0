"""The public names, the signatures, and that the three places where settings are written down agree."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys

import pytest

import swift_loader
from swift_loader import ConfigError, SwiftLoader, SwiftLoaderError, WeightedPlan, WorkerError
from swift_loader.settings.arguments import Settings
from swift_loader.settings.loader import LoaderConfig
from tests.api.argument_table import DESIGNED, REQUIRED

PUBLIC = {
    "AsyncDataLoader", "BucketedPlan", "CacheSetting", "Cached", "ConfigError", "DataError", "DataLoader", "EpochPlan",
    "LayoutError", "LoaderClosed", "NoRoom", "PeerError", "PeerLost", "Plan", "PoisonedTicket", "ProtocolError",
    "ProtocolMismatch",
    "RankMismatch", "RayEngine", "RotationSetting", "Secret",
    "ShardError", "SwiftLoader", "SwiftLoaderError", "WeightedPlan", "WorkerDied", "WorkerError", "WorkerHung",
    "WorkerInfo", "WorkerStartFailed", "__version__", "worker_info",
}  # fmt: skip

SIGNATURES = {
    "__init__": (
        "self, dataset_class, dataset_kwargs, batch_size, nb_consumer, worker_per_consumer, shuffle=True, **settings"
    ),
    "from_dataset": "dataset, batch_size, nb_consumer, worker_per_consumer, shuffle=True, **settings",
    "connect": "servers, key=None, **settings",
    "serve": "self, address='tcp://127.0.0.1:5557', key=None, version=None",
    "start": "self, consumer_index, device=None, to_device=None",
    "set_epoch": "self, epoch",
    "state_dict": "self",
    "load_state_dict": "self, state",
    "statistics": "self",
    "replay": "self, epoch, step, consumer_index=None",
    "save_replay": "self, path",
    "tune": "self, consumer_ms=0.0, **wishes",
    "report": "self, all_ranks=False, timeout_s=10.0",
    "close": "self",
    "__len__": "self",
    "__iter__": "self",
    "__enter__": "self",
}

#: Where the house's name of a setting is another than the public one.
HOUSE_NAMES = {
    "nb_consumer": "consumer_count",
    "worker_per_consumer": "worker_count",
    "seed_numer": "seed",
    "seed_number": "seed",
    "logger": "log",
    "nearby_shuffle": "window",
    "nearby_mix": "mix",
    "max_nb_batch_on_device": "device_batches",
}


def test_the_public_names_are_these():
    assert set(swift_loader.__all__) == PUBLIC
    assert set(dir(swift_loader)) == PUBLIC
    assert all(getattr(swift_loader, name) is not None for name in PUBLIC)


def test_a_name_that_is_not_public_is_refused():
    with pytest.raises(AttributeError, match="has no attribute 'SwiftLoda'"):
        swift_loader.SwiftLoda  # noqa: B018


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_is_as_documented(name: str):
    parameters = inspect.signature(getattr(SwiftLoader, name)).parameters.values()
    written = ", ".join(str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters)
    assert written == SIGNATURES[name]


def test_every_public_method_is_in_the_table_of_signatures():
    public = {name for name, value in vars(SwiftLoader).items() if callable(value) or isinstance(value, classmethod)}
    assert {name for name in public if not name.startswith("_")} <= set(SIGNATURES)


def test_settings_and_design_agree_on_the_names():
    assert set(Settings.__optional_keys__) == set(DESIGNED)
    assert not Settings.__required_keys__


def test_settings_and_the_parsed_record_agree_on_the_names():
    fields = {field.name for field in dataclasses.fields(LoaderConfig)}
    assert {HOUSE_NAMES.get(name, name) for name in (*DESIGNED, *REQUIRED, "shuffle")} - {
        "dataset_class",
        "dataset_kwargs",
    } == fields - {"ahead_nbytes", "deepens_queues", "runs_mix"}  # whether others were given, and nearby_shuffle


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_defaults_are_those_of_the_design(shuffle: bool):
    config = LoaderConfig.parse(32, 4, 3, shuffle, {})
    for name, default in DESIGNED.items():
        expected = default(batch_size=32, worker_per_consumer=3, shuffle=shuffle) if callable(default) else default
        assert getattr(config, HOUSE_NAMES.get(name, name)) == expected, name


def test_none_stands_for_every_default():
    assert LoaderConfig.parse(4, 1, 1, True, dict.fromkeys(DESIGNED)) == LoaderConfig.parse(4, 1, 1, True, {})


def test_elastic_widens_the_default_window():
    assert LoaderConfig.parse(4, 3, 1, True, {"elastic": True}).window == 5 * 4 * 3


def test_all_errors_have_one_root():
    errors = [getattr(swift_loader, name) for name in PUBLIC]
    errors = [error for error in errors if isinstance(error, type) and issubclass(error, BaseException)]
    assert len(errors) == 17
    assert all(issubclass(error, SwiftLoaderError) for error in errors)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(swift_loader.NoRoom, MemoryError)
    for name in ("WorkerDied", "WorkerHung", "WorkerStartFailed", "PoisonedTicket"):
        assert issubclass(getattr(swift_loader, name), WorkerError)


def test_importing_the_package_does_not_import_torch():
    code = (
        "import sys, swift_loader; swift_loader.ConfigError; swift_loader.worker_info;sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_constructing_starts_no_worker_and_no_thread_and_loads_no_torch():
    """Only what workers will be forked from may begin."""
    code = (
        "import sys, threading, psutil; from swift_loader import SwiftLoader;"
        "SwiftLoader(range, {'stop': 5}, 2, 1, 0);"
        "none = psutil.Process().children();"
        "loaders = [SwiftLoader(range, {'stop': 5}, 2, 1, 2) for _ in range(2)];"
        "family = psutil.Process().children(recursive=True);"
        "sys.exit(threading.active_count() - 1 + len(none) + len(family[1:]) + ('torch' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("settings", "mixed"),
    [
        ({}, 64),
        ({"nearby_mix": 5}, 5),
        ({"elastic": True}, 192),  # a quarter of the global batch
        ({"elastic": True, "nearby_mix": 5}, 5),
        ({"nearby_shuffle": 100}, None),
        ({"nearby_shuffle": 0}, None),
        ({"plan": WeightedPlan([1.0], 2)}, None),
    ],
)
def test_so_many_runs_are_mixed(settings, mixed):
    assert LoaderConfig.parse(256, 3, 1, True, settings).runs_mix == mixed
    assert LoaderConfig.parse(256, 3, 1, False, settings).runs_mix is None
