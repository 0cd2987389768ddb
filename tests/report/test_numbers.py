from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import pytest

from coterie.report.markup import Safe, el, join
from coterie.report.numbers import count, duration, number, percent, size
from coterie.report.pixels import png_uri


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (17_824, "17.8 kB"),
        (99_960, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (1_234_567, "1.2 MB"),
        (5e18, "5000 PB"),
    ],
)
def test_size(n_bytes: float, expected: str) -> None:
    assert size(n_bytes) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 ms"),
        (0.0994, "99 ms"),
        (0.1, "0.1 s"),
        (3.42, "3.4 s"),
        (120, "2 min"),
        (7260, "2 h 1 min"),
    ],
)
def test_duration(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_counts_shares_and_numbers() -> None:
    assert count(12345, "row") == "12,345 rows"
    assert count(1, "client") == "1 client"
    assert count(1797) == "1,797"
    assert percent(0.7957) == "79.6%"
    assert percent(1.0) == "100%"
    assert number(0.0001344) == "0.000134"
    assert number(12345.6) == "12,346"
    assert number(621.3) == "621"


def test_elements_escape_what_they_are_given() -> None:
    made = el("p", "<b>", el("i", "&"), None, class_='"x"', hidden=True, title=None)
    assert made == '<p class="&quot;x&quot;" hidden>&lt;b&gt;<i>&amp;</i></p>'
    assert el("img", alt="") == '<img alt="">'
    assert join(["<", Safe("<br>")]) == "&lt;<br>"


def test_images_keep_their_pixels() -> None:
    kind, _, text = png_uri(np.array([[0.0, 2.0, 4.0], [4.0, 1.0, 9.0]]), 0.0, 4.0).partition(",")
    assert kind == "data:image/png;base64"
    data = base64.b64decode(text)
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    at = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[at - 4 : at])
    lines = zlib.decompress(data[at + 4 : at + 4 + length])
    assert list(lines) == [0, 0, 128, 255, 0, 255, 64, 255]


def test_an_image_of_one_shade_is_black() -> None:
    assert png_uri(np.ones((2, 2)), 1.0, 1.0) == png_uri(np.zeros((2, 2)), 0.0, 1.0)
