"""`swift-loader shard ...`: sets of shards, made and looked at. Knows its commands by name only, as `main` does.

Whatever goes wrong is one sentence on standard error. A command that writes may be stopped, or killed, and called again
with the same words: it goes on behind what is there.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import re
import sys

from swift_loader.cli import bar, naming
from swift_loader.cli.panel import plain
from swift_loader.errors import ConfigError, DataError, SwiftLoaderError

#: Each is the module `shard_NAME`, with `add_arguments(parser)` and `run(arguments) -> exit code`.
COMMANDS = {
    "create": "make a set of a dataset, a folder of images, tar files, Parquet files",
    "index": "make tar files that are there a set: they are gone through once, and stay as they are",
    "verify": "look at every byte of a set",
    "info": "say what a set is, and what training on it from a bucket will cost",
    "ls": "list the samples of a set",
    "cat": "write a field of a sample to standard output",
    "upload": "put a set of this machine into a bucket, or go on with that",
    "download": "copy a set of a bucket to a folder, or go on with that",
    "convert": "write the samples of a set, whoever wrote it, as a set of tar files with tables",
}
_ADVICE = {errno.ENOSPC: "; make room, and call the same again", errno.EDQUOT: "; make room, and call the same again"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What all of them take."""
    commands = parser.add_subparsers(dest="shard_command", metavar="command", required=True)
    for name, summary in COMMANDS.items():
        own = commands.add_parser(name, help=summary, description=summary)
        importlib.import_module(f"swift_loader.cli.shard_{name}").add_arguments(own)


def run(arguments: argparse.Namespace) -> int:
    """Runs one; 1 if it failed, 2 if it was called wrongly, 130 if it was stopped by Ctrl-C."""
    name = arguments.shard_command
    if getattr(arguments, "endpoint", None):  # for all processes that the command starts
        os.environ["AWS_ENDPOINT_URL"] = arguments.endpoint
    try:
        return int(importlib.import_module(f"swift_loader.cli.shard_{name}").run(arguments))
    except BrokenPipeError:  # whoever read it, as `head` does, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        bar.wipe()
        return 130
    except ModuleNotFoundError:  # of an extra of the command line
        raise
    except (SwiftLoaderError, OSError, ImportError) as error:
        _tell(name, error)
        return 2 if isinstance(error, ConfigError) else 1


def _tell(name: str, error: BaseException) -> None:
    if isinstance(error, DataError):
        naming.show_error(f"shard {name}", error)
        return
    text = error.sentence() if isinstance(error, SwiftLoaderError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror}{_ADVICE.get(error.errno or 0, '')}"
    text = re.sub(r"\b(append|overwrite)=True\b", r"--\1", text)
    # Names that come out of files may be commands to a terminal: it is not shown those.
    print(f"swift-loader shard {name}: {plain(text)}", file=sys.stderr)
