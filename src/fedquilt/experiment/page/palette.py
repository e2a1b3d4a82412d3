"""Colours that colour-blind readers can tell apart, and dashes for more curves than there are colours.

Okabe & Ito 2008, "Color Universal Design", without the yellow, which is hardly seen as a line on white.
"""

from __future__ import annotations

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))

LISTED = 52
"""Classes that a legend lists one by one."""

_HUES = (*COLOURS, "#f0e442", "#d0d0d0", "#6b2d5c")
_SHADES = (0.0, 0.5, -0.4, 0.75, -0.65, 0.25)
"""How much lighter or darker the colours are at each pass over them."""


def line_look(number: int) -> tuple[str, tuple[int, ...]]:
    """Return the colour and the dashes of a curve: 28 can be told apart.

    >>> line_look(0), line_look(7)
    (('#0072b2', (1, 0)), ('#0072b2', (6, 3)))
    """
    return COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]


def class_colours(classes: int) -> list[str]:
    """Return a colour for every class: neighbours differ in hue, and those of one hue in lightness.

    >>> class_colours(3), len(set(class_colours(52)))
    (['#0072b2', '#d55e00', '#009e73'], 52)
    """
    return [_shaded(_HUES[n % len(_HUES)], _SHADES[n // len(_HUES) % len(_SHADES)]) for n in range(classes)]


def _shaded(colour: str, by: float) -> str:
    """Mix a colour with white by a share, or with black if it is below 0; black itself only gets lighter."""
    parts = [int(colour[index : index + 2], 16) for index in (1, 3, 5)]
    by = by if any(parts) or by >= 0 else 1 + by
    mixed = (round(part + by * (255 - part) if by >= 0 else part * (1 + by)) for part in parts)
    return "#" + "".join(f"{part:02x}" for part in mixed)
