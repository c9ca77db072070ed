"""The filter's id as the C header defines it, for programs that run without gpufetch."""

import re
from pathlib import Path

HEADER = Path(__file__).resolve().parents[2] / "src" / "include" / "gpufetch" / "hdf5.h"
FILTER_ID = int(
    re.findall(r"^#define GPUF_H5_FILTER_ID (\d+)$", HEADER.read_text(), re.MULTILINE)[0]
)
