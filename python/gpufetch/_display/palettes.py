"""Colour maps of 255 colours, as evenly spaced to the eye as their positions are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["NAN_COLOUR", "PALETTES", "VIRIDIS"]

COUNT = 255  # and one for NaN
NAN_COLOUR = (230, 60, 60)

# Polynomials in the position from 0 to 1 of viridis's red, green and blue.
_COEFFICIENTS = (
    (0.2777273272234177, 0.005407344544966578, 0.3340998053353061),
    (0.1050930431085774, 1.404613529898575, 1.384590162594685),
    (-0.3308618287255563, 0.214847559468213, 0.09509516302823659),
    (-4.634230498983486, -5.799100973351585, -19.33244095627987),
    (6.228269936347081, 14.17993336680509, 56.69055260068105),
    (4.776384997670288, -13.74514537774601, -65.35303263337234),
    (-5.435455855934631, 4.645852612178535, 26.3124352495832),
)
# Colours at even distances, between which the others lie.
_ANCHORS = {
    "magma": "0000040a08221d114736106b51127c6a1c818326819c2e7fb73779d0416fe75263f56b5cfc8961fea772"
    "fec488fde2a3fcfdbf",
    "RdBu_r": "0530611752902a71b23f8ec06bacd19bc9e0c2ddece0ecf3f7f6f6fbe5d8fbccb4f5aa89e48066d0554"
    "8ba2832930e2667001f",
    "twilight": "e2d9e2c4ced495b5c77297c16276ba5e51ad592a8f45135c2f14364a1342741e4f983550b25652c27"
    "c63cca389d8c7bee2d9e2",
    "gray": "000000ffffff",
}


def _viridis() -> npt.NDArray[np.uint8]:
    powers = np.linspace(0, 1, COUNT)[:, None] ** np.arange(len(_COEFFICIENTS))
    colours: npt.NDArray[np.float64] = powers @ np.array(_COEFFICIENTS)
    return np.rint(255 * np.clip(colours, 0, 1)).astype(np.uint8)


def _between(anchors: str) -> npt.NDArray[np.uint8]:
    colours = np.frombuffer(bytes.fromhex(anchors), np.uint8).reshape(-1, 3)
    places = np.linspace(0, len(colours) - 1, COUNT)
    channels = [np.interp(places, np.arange(len(colours)), colours[:, i]) for i in range(3)]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8)


VIRIDIS = _viridis()
PALETTES = {"viridis": VIRIDIS} | {name: _between(text) for name, text in _ANCHORS.items()}
"""The colours of each map from low to high; those of `twilight` come back to the first."""
