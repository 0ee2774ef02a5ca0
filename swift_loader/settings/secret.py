"""What a user says and nobody else is to read: the key of an object store, a token, a password."""

from __future__ import annotations

import hmac
import os
from typing import Any, Self, final

from swift_loader.errors import ConfigError
from swift_loader.settings.checks import wrong


@final
class Secret:
    """A text that reaches the workers, and is neither shown nor written to a file.

    To be given in ``dataset_kwargs``, or anywhere in what a dataset holds; the dataset calls `reveal` where it needs
    the text. Pickled, as in a replay file or a checkpoint, it is the name of the environment variable that it was read
    from, and is read from there again; a text without a variable cannot be pickled.

    Args:
        text: What is to be kept secret.

    Raises:
        ConfigError: if it is no text, or an empty one.

    Example:
        >>> from swift_loader import Secret
        >>> Secret("hunter2")
        <Secret>
        >>> Secret("hunter2").reveal()
        'hunter2'
    """

    __slots__ = ("_text", "_variable")

    def __init__(self, text: Any, *, _variable: str | None = None) -> None:
        if not isinstance(text, str) or not text:
            raise ConfigError(f"a Secret is a text that is not empty, not a {type(text).__name__}")
        self._text: str = text
        self._variable = _variable

    @classmethod
    def from_environment(cls, variable: str) -> Self:
        """The text of an environment variable.

        Raises:
            ConfigError: if there is no such variable.
        """
        if not isinstance(variable, str):
            raise wrong("variable", "the name of an environment variable", variable)
        text = os.environ.get(variable)
        if not text:
            raise ConfigError(f"a Secret is read from the environment variable {variable}, which is not set here")
        return cls(text, _variable=variable)

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "<Secret>" if self._variable is None else f"<Secret ${self._variable}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Whoever pickles does not say where to: it may be a file, which others read."""
        if self._variable is None:
            raise TypeError(
                "a Secret is never written to a file. Secret.from_environment('NAME') is: as the name of the variable"
            )
        return Secret.from_environment, (self._variable,)


def for_a_worker(secret: Secret) -> tuple[Any, ...]:
    """The same as `Secret.__reduce__`, on a way that no file lies on."""
    return _arrived, (secret._text, secret._variable)


def _arrived(text: str, variable: str | None) -> Secret:
    return Secret(text, _variable=variable)
