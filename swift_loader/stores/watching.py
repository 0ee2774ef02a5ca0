"""What this host's fetchers have counted, asked by who only looks on: none is started, and none waited for long."""

from __future__ import annotations

from typing import Any

from swift_loader.host.rendezvous import met
from swift_loader.stores.messages import receive, send

_WAIT_S = 2.0


def counted(name: str) -> dict[str, Any]:
    """What the fetcher of that name has counted since it began; nothing where there is none, or it has no time."""
    try:
        link = met(name, _WAIT_S)
        if link is None:
            return {}
        with link:
            send(link, {"statistics": 1})
            answer = receive(link)
            answer.close()
    except (OSError, ValueError):
        return {}
    told: dict[str, Any] = answer.words.get("statistics", {})
    return told
