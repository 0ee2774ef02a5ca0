"""The command line: bad calls are answered at once and well, and help costs nothing."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest

from swift_loader.cli import main as cli


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        cli.main(["--help"])
    assert left.value.code == 0
    told = capsys.readouterr().out
    assert all(name in told for name in cli.COMMANDS)


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.strip() == "0.1.0"


@pytest.mark.parametrize(
    "words", [[], ["nonsense"], ["demo", "--epochs", "0"], ["demo", "--ranks", "two"], ["demo", "x"]]
)
def test_a_wrong_call_is_refused_with_code_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    assert left.value.code == 2
    assert "swift-loader" in capsys.readouterr().err


@pytest.fixture
def a_command(monkeypatch: pytest.MonkeyPatch):
    module = SimpleNamespace(add_arguments=lambda parser: None, run=lambda arguments: 0)
    monkeypatch.setitem(cli.COMMANDS, "try", cli.Command("a_module", "tries"))
    monkeypatch.setattr(importlib, "import_module", lambda name: module)
    return module


def test_a_commands_exit_code_is_the_programs(a_command: SimpleNamespace):
    a_command.run = lambda arguments: 3
    assert cli.main(["try"]) == 3


def test_a_missing_extra_is_named_with_the_command_that_brings_it(
    a_command: SimpleNamespace, capsys: pytest.CaptureFixture[str]
):
    def run(arguments: object) -> int:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")

    a_command.run = run
    assert cli.main(["try"]) == 1
    assert capsys.readouterr().err == "scikit-learn is missing: pip install 'swift-loader[cli]'\n"


def test_another_missing_module_is_an_error_of_ours(a_command: SimpleNamespace):
    def run(arguments: object) -> int:
        raise ModuleNotFoundError("No module named 'ours'", name="ours")

    a_command.run = run
    with pytest.raises(ModuleNotFoundError):
        cli.main(["try"])


def test_ctrl_c_ends_without_a_traceback(a_command: SimpleNamespace, capsys: pytest.CaptureFixture[str]):
    def run(arguments: object) -> int:
        raise KeyboardInterrupt

    a_command.run = run
    assert cli.main(["try"]) == 130
    assert capsys.readouterr().err == ""
