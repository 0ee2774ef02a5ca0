"""Rows of .npy files, and windows of tokens, as samples that are to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swift_loader.errors import ConfigError
from swift_loader.shards.arrays import ArrayDataset
from swift_loader.shards.tokens import TokenDataset

if TYPE_CHECKING:
    from numpy.typing import NDArray


def array_rows(word: str, kwargs: dict[str, Any]) -> ArrayRows | TokenRows:
    """The samples that such files hold.

    Raises:
        ConfigError: if that is not told.
    """
    if kwargs or word.endswith(".bin"):
        if "length" not in kwargs:
            raise ConfigError(
                f"of how many tokens are the samples of {word}? "
                '--kwargs \'{"length": 1024, "dtype": "uint16"}\' says it (TokenDataset reads such files as they are)'
            )
        return TokenRows(word, kwargs)
    return ArrayRows(word)


class ArrayRows:
    """Rows of a .npy file: `x.npy` of each sample."""

    def __init__(self, files: str) -> None:
        self._rows = ArrayDataset(files)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, NDArray[Any]]:
        return {"x.npy": self._rows[index]}


class TokenRows:
    """Windows of tokens: `tokens.npy` of each sample has one more than `length`, so that it has all targets."""

    def __init__(self, files: str, kwargs: dict[str, Any]) -> None:
        try:
            self._windows = TokenDataset(files, **kwargs)
        except TypeError as error:
            raise ConfigError(f"--kwargs of tokens are those of TokenDataset: {error}") from None

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, index: int) -> dict[str, NDArray[Any]]:
        return {"tokens.npy": self._windows.tokens(index)}
