"""Keys: made, read, refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from swift_loader import ConfigError
from swift_loader.cli import main as cli
from swift_loader.net.keygen import make_key
from swift_loader.net.keys import Keys, read_key


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path, capsys):
    path = tmp_path / "job.key"
    assert cli.main(["keygen", str(path)]) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path).name == "job"
    before = path.read_bytes()
    assert cli.main(["keygen", str(path)]) == 2
    assert "there already" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_what_is_no_key_is_refused(tmp_path: Path):
    path = tmp_path / "a.key"
    with pytest.raises(ConfigError, match="swift-loader keygen"):
        read_key(path)
    path.write_bytes(b"x")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="is no key"):
        read_key(path)
    path.unlink()
    make_key(path)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="may be read by others"):
        read_key(path)
    with pytest.raises(ConfigError, match="there is no key in"):
        Keys(str(tmp_path / "empty") if (tmp_path / "empty").mkdir() is None else "")


def test_a_folder_has_the_keys_that_are_in_it_now(tmp_path: Path):
    for name in ("a", "b"):
        make_key(tmp_path / f"{name}.key")
    keys = Keys(tmp_path)
    a, b = (read_key(tmp_path / f"{name}.key") for name in ("a", "b"))
    assert {key.name for key in keys.known().values()} == {"a", "b"}
    a.path.unlink()
    assert keys.holds(a.certificate) is None
    assert keys.holds(b.certificate) == "b"
