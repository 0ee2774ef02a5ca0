"""Bytes, times, shares, rates and counts as they are told, alike on every page. Pure."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB")


def nbytes(count: float, unit: int = 1000) -> str:
    """A number of bytes: "999 B", "1.2 kB", "123 MB". What limits and containers count in, units of 1024, is said."""
    names = iter(_UNITS)
    name = next(names)
    while count >= unit * 0.9995 and name != _UNITS[-1]:
        count, name = count / unit, next(names)
    digits = 1 if count < 9.95 and round(count, 1) % 1 else 0
    return f"{count:,.{digits}f} {name}"


def seconds(value: float) -> str:
    """What something took, in at most seven characters, which say how many digits are known."""
    if value < 5e-8:
        return "0"
    for factor, unit in ((1e6, "us"), (1e3, "ms"), (1, "s")):
        scaled = value * factor
        if scaled < (999.5 if factor > 1 else 9999.5):
            return f"{scaled:.1f} {unit}" if scaled < 99.95 else f"{scaled:.0f} {unit}"
    return f"{min(value / 3600, 99_999):.0f} h"


def duration(value: float) -> str:
    """For how long something has lasted by now: a figure that is looked at while it grows."""
    if value < 100:
        return f"{value:.1f} s" if value < 9.95 else f"{value:.0f} s"
    minutes, hours = value / 60, value / 3600
    return f"{minutes:.0f} min" if minutes < 100 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} d"


def percent(share: float) -> str:
    """A share: "31 %", and "0.4 %" where it is small."""
    return f"{100 * share:.1f} %" if share < 0.01 else f"{100 * share:.0f} %"


def number(value: float) -> str:
    """A rate, with the digits that matter: "1,524", "47.6", "9.5"."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def counted(count: int, name: str, names: str = "") -> str:
    """How many of what: "1 worker" or "2,000 batches"; ``names`` are several, where an ending does not say so."""
    several = names or name + ("es" if name.endswith("ch") else "s")
    return f"{count:,} {name if count == 1 else several}"
