"""`swift-loader`: reads the command line and calls the command. Knows the commands by name only."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

import swift_loader


class Command(NamedTuple):
    """A command is a module with two functions: `add_arguments(parser)` and `run(arguments) -> exit code`."""

    module: str
    summary: str


COMMANDS = {
    "bench": Command("swift_loader.cli.bench", "measure a dataset beside torch's DataLoader, on this machine"),
    "check": Command("swift_loader.cli.check", "find out what will go wrong with a dataset in workers"),
    "demo": Command("swift_loader.cli.demo", "train on two consumers and show who waited for whom"),
    "doctor": Command("swift_loader.cli.doctor", "check this machine and say what to change"),
    "keygen": Command("swift_loader.cli.keygen", "make a key for a server and its clients"),
    "replay": Command("swift_loader.cli.replay", "make one batch of a run again, under a debugger if need be"),
    "serve": Command("swift_loader.cli.serve", "make batches for loaders on this machine or others"),
    "shard": Command("swift_loader.cli.shard", "make and look at sets of shards: tar files with an index"),
    "top": Command("swift_loader.cli.top", "show the loaders that run on this machine"),
    "tune": Command("swift_loader.cli.tune", "find how many workers, threads and queued batches this machine wants"),
}

#: What the extra `cli` brings, by the name it is imported under.
_EXTRA = {"sklearn": "scikit-learn", "tqdm": "tqdm", "matplotlib": "matplotlib"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code: 0 well, 1 failed, 2 called wrongly, 130 stopped by Ctrl-C."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    called = next((word for word in words if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="swift-loader", description="A data loader for multi-GPU training.")
    parser.add_argument("--version", action="version", version=swift_loader.__version__)
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, command in COMMANDS.items():
        own = commands.add_parser(name, help=command.summary, description=command.summary)
        if name == called:
            importlib.import_module(command.module).add_arguments(own)
    read = parser.parse_args(words)
    try:
        return int(importlib.import_module(COMMANDS[read.command].module).run(read))
    except ModuleNotFoundError as missing:
        if missing.name not in _EXTRA:
            raise
        print(f"{_EXTRA[missing.name]} is missing: pip install 'swift-loader[cli]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
