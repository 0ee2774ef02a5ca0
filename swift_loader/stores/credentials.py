"""Who is let into a store: keys as arguments, of the environment, of a profile, or of what a cloud gives its machines.

They are kept in a sealed file in memory of the process that was given them. Pickled, they are that process's number and
the descriptor, which another process of this user opens by ``/proc``: so they reach workers and the fetcher however
those are started, and no checkpoint, replay file or log can hold them. They go with the object that was pickled: who
has a dataset in its own hands while others read from it, as loaders have, keeps them.
"""

from __future__ import annotations

import configparser
import json
import os
import weakref
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self, final

from swift_loader.errors import ConfigError
from swift_loader.host.memfile import sealed_file
from swift_loader.settings.secret import Secret

#: What of the environment says who is let in and how stores are reached: for those that are started without it.
_PREFIXES = ("AWS_", "GOOGLE_", "AZURE_", "SSL_CERT_")
_NAMES = ("HOME", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_FILE = "swift-credentials"
_MOST_NBYTES = 1 << 20
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


class Keys(NamedTuple):
    """What a request is signed with."""

    access: Secret
    secret: Secret
    token: Secret | None = None


@final
class Credentials:
    """Keys that were given, or the way to them. Immutable; made by `given`, `found` or `none`."""

    __slots__ = ("__weakref__", "_fd", "source")

    def __init__(self, fd: int, source: str) -> None:
        self._fd = fd
        self.source = source
        """``given``: as arguments; ``environment``: all that the environment leads to; ``none``: nobody is asked."""
        weakref.finalize(self, _close, fd).atexit = False

    @classmethod
    def given(cls, access_key: str | Secret, secret_key: str | Secret, token: str | Secret | None = None) -> Self:
        """These keys, and no others: they do not expire."""
        said = [_text(key) for key in (access_key, secret_key)]
        return cls(_sealed({"keys": said + ([] if token is None else [_text(token)])}), "given")

    @classmethod
    def found(cls) -> Self:
        """What the environment leads to: its variables, a profile's file, else what the cloud gives its machines."""
        return cls(_sealed({"environment": _surroundings()}), "environment")

    @classmethod
    def none(cls) -> Self:
        """For stores that are open to all: requests are not signed."""
        return cls(_sealed({}), "none")

    @classmethod
    def of(cls, fd: int, source: str) -> Self:
        """Those of a descriptor that came from another process; takes it over."""
        return cls(fd, source)

    @property
    def fd(self) -> int:
        """The file's descriptor, to be handed to a process that needs it."""
        return self._fd

    def keys(self) -> Keys | None:
        """What requests are signed with now: a profile's file is read each time, since others renew what is in it.

        None: nothing is known here, and the cloud is asked.
        """
        said = self._said()
        if "keys" in said:
            access, secret, *token = map(Secret, said["keys"])
            return Keys(access, secret, token[0] if token else None)
        around = said.get("environment", {})
        if around.get("AWS_ACCESS_KEY_ID") and around.get("AWS_SECRET_ACCESS_KEY"):
            token = around.get("AWS_SESSION_TOKEN")
            access, secret = (Secret(around[name]) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
            return Keys(access, secret, Secret(token) if token else None)
        return _of_a_profile(around)

    def environment(self) -> dict[str, str]:
        """The variables that a process of our own needs to ask the same stores as this one. They may be secrets."""
        around: dict[str, str] = self._said().get("environment", {})
        return around

    @property
    def name(self) -> str:
        """What differs where somebody else is let in; tells nothing of secrets."""
        keys = self.keys()
        return self.source if keys is None else blake2b(keys.access.reveal().encode(), digest_size=8).hexdigest()

    def _said(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(os.pread(self._fd, _MOST_NBYTES, 0))
        return said

    def __repr__(self) -> str:
        return f"<Credentials: {self.source}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (os.getpid(), self._fd, self.source)


def _opened(pid: int, fd: int, source: str) -> Credentials:
    """Those of another process of this user, or of this one."""
    path = f"/proc/{pid}/fd/{fd}"
    try:
        if _FILE in os.readlink(path):  # noqa: PTH115 - it is no path: the name of a file in memory
            return Credentials(os.open(path, os.O_RDONLY | os.O_CLOEXEC), source)
    except OSError:
        pass
    if source == "environment":
        return Credentials.found()
    if source == "none":
        return Credentials.none()
    raise ConfigError(
        f"the keys of this dataset are kept in the memory of the process that was given them ({pid}), and it is gone, "
        "or it is another user's. Make the dataset again with its keys, or leave them to the environment"
    )


def _text(key: str | Secret) -> str:
    text: Any = key.reveal() if isinstance(key, Secret) else key
    if not isinstance(text, str) or not text:
        raise ConfigError(f"a key of a store is a text that is not empty, or a Secret, not a {type(text).__name__}")
    return text


def _surroundings() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name.startswith(_PREFIXES) or name.upper() in _NAMES}


def _of_a_profile(around: Mapping[str, str]) -> Keys | None:
    path = around.get("AWS_SHARED_CREDENTIALS_FILE") or str(Path(around.get("HOME", "/")) / ".aws" / "credentials")
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        # Its text is not told: it is full of keys.
        raise ConfigError(f"{path} cannot be read as a file of profiles") from None
    profile = around.get("AWS_PROFILE") or around.get("AWS_DEFAULT_PROFILE") or "default"
    if not parser.has_section(profile):
        return None
    access, secret, token = (parser.get(profile, key, fallback="").strip() for key in _KEYS)
    return Keys(Secret(access), Secret(secret), Secret(token) if token else None) if access and secret else None


def _sealed(said: dict[str, Any]) -> int:
    data = json.dumps(said).encode()
    if len(data) > _MOST_NBYTES:
        raise ConfigError(f"keys and variables of stores take {len(data):,} bytes: at most {_MOST_NBYTES:,}")
    return sealed_file(_FILE, data)


def _close(fd: int) -> None:
    os.close(fd)
