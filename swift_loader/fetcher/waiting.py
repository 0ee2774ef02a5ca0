"""Waiting for something to happen, but not for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def happens(event: asyncio.Event, wait_s: float) -> None:
    """Returns when it does, or after so long; from then on it is awaited anew."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), wait_s)
    event.clear()
