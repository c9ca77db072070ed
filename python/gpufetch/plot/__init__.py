"""Plots that pull what they show: images, lines and histograms of tensors on a device.

>>> import gpufetch as gf
>>> gf.plot.imshow(x)     # any GPU tensor of two axes, or a picture in colours
>>> gf.plot.line(signal)  # one axis: the lowest and highest value under each pixel
>>> gf.plot.hist(x)       # counted on the device
>>> gf.plot.slices(x)     # planes of a volume, in the same colours

Each draws on Matplotlib axes of any backend. A drawing reads what the axes show, reduced on the
device to their pixels; the axes name the reduction. After a zoom or a pan, the next drawing reads
what they show then. In a window or a page it waits a tenth of a second for that, and shows what
it has meanwhile; it is repeated when the read has ended. Of several reads that wait, the newest is
done.

Contents are read again where the view changes, or after `refresh()`. Any thread may draw, also
beside a cell that plots: no lock is held, and pyplot is used where no axes are given, not later.

Needs Matplotlib, the extra `plot`.
"""

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"gpufetch.plot needs Matplotlib ({error}): pip install 'gpufetch[plot]'"
    ) from error

from gpufetch.plot._hist import DeviceHistogram, hist
from gpufetch.plot._image import DeviceImage, imshow
from gpufetch.plot._line import DeviceLine, line
from gpufetch.plot._slices import slices

__all__ = ["DeviceHistogram", "DeviceImage", "DeviceLine", "hist", "imshow", "line", "slices"]


def __dir__() -> list[str]:
    """Names that completion shows: the public ones."""
    return __all__
