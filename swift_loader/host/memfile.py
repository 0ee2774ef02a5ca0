"""Anonymous files in memory: what the processes of one loader share. They have no name, so that nothing can be left
behind and nobody else can find them, and they are for this user alone.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from swift_loader.errors import ConfigError
from swift_loader.host.writing import write_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

#: Below are the standard streams' numbers. A worker whose dataset has closed them gets these for its files, and the
#: dataset that closes them again with its next sample would close those.
_LEAST_FD = 3
#: Nothing in it can be run: some machines refuse a memory file without it, older kernels one that has it.
_MFD_NOEXEC_SEAL = 0x8


def memory_file(name: str) -> int:
    """A new one, empty; gives back its descriptor. ``name`` is only what ``/proc`` shows.

    Raises:
        ConfigError: if this machine has none.
    """
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        try:
            fd = os.memfd_create(name, flags | _MFD_NOEXEC_SEAL)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            fd = os.memfd_create(name, flags)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        raise ConfigError(
            f"this system refuses files in memory (memfd_create: {error.strerror}), which workers hand batches over "
            "with: have the container's seccomp profile allow memfd_create, or set worker_per_consumer=0"
        ) from error
    if fd < _LEAST_FD:
        import fcntl  # noqa: PLC0415 - other systems have none, nor these files

        standard = fd
        try:
            fd = fcntl.fcntl(standard, fcntl.F_DUPFD_CLOEXEC, _LEAST_FD)
        finally:
            os.close(standard)
    os.fchmod(fd, 0o600)
    return fd


def sealed_file(name: str, data: Buffer) -> int:
    """A new one with these bytes, which nobody can change; gives back its descriptor."""
    import fcntl  # noqa: PLC0415 - as above

    fd = memory_file(name)
    try:
        write_all(fd, data)
        fcntl.fcntl(
            fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        )
    except BaseException:
        os.close(fd)
        raise
    return fd
