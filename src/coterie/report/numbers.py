"""Numbers for people."""

from __future__ import annotations

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def count(n: int, noun: str = "") -> str:
    """12,345 rows, and 1 row."""
    if not noun:
        return f"{n:,}"
    return f"{n:,} {noun if n == 1 else noun + 's'}"


def size(n_bytes: float) -> str:
    """Bytes with the unit that suits them: 1.2 MB."""
    unit = 0
    while n_bytes >= 999.5 and unit < len(UNITS) - 1:
        n_bytes, unit = n_bytes / 1000, unit + 1
    digits = 0 if unit == 0 or n_bytes >= 99.5 else 1
    return f"{n_bytes:.{digits}f} {UNITS[unit]}"


def duration(seconds: float) -> str:
    """Time with the units that suit it: 3.4 s."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def percent(share: float) -> str:
    """A share of a whole: 79.6%."""
    return "100%" if share == 1 else f"{share * 100:.1f}%"


def number(value: float) -> str:
    """A number with as many digits as people read."""
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.3g}"
