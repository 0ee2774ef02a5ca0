"""Making a key: by OpenSSL's own program, since Python can use keys and not make them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from swift_loader.errors import ConfigError

_DAYS = 36_500
_TIMEOUT_S = 30.0
_SETTINGS = "[req]\nprompt = no\ndistinguished_name = name\n[name]\nCN = swift-loader\n"


def make_key(path: Path) -> None:
    """Writes a new key: a private key of the curve P-256 and a certificate that it has signed itself.

    Raises:
        ConfigError: if there is a file already, or there is no OpenSSL.
    """
    pem = new_key().encode("ascii")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"{str(path)!r} is there already, and a key is never written over") from error
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be written: {error.strerror}") from error
    with os.fdopen(fd, "wb") as file:
        file.write(pem)


def new_key() -> str:
    """The text of a key that nobody has yet. Raises as `make_key` does."""
    with tempfile.TemporaryDirectory(prefix="swift-keygen-") as folder:
        settings, secret = Path(folder, "settings"), Path(folder, "secret")
        settings.write_text(_SETTINGS, encoding="ascii")
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        words = ["openssl", "req", "-x509", "-nodes", *curve, "-sha256", "-days", str(_DAYS), "-config", str(settings)]
        try:
            done = subprocess.run(  # noqa: S603 - words of our own
                [*words, "-keyout", str(secret)], capture_output=True, check=False, timeout=_TIMEOUT_S
            )
        except FileNotFoundError as error:
            raise ConfigError(
                "keys are made by the program openssl, which is not on the path here: install it, or make the key on "
                "another machine and copy it"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise ConfigError(f"openssl has made no key in {_TIMEOUT_S:g} s") from error
        if done.returncode != 0:
            told = done.stderr.decode(errors="replace").strip()[-400:]
            raise ConfigError(f"openssl has made no key: {told}")
        return (secret.read_bytes() + done.stdout).decode("ascii")
