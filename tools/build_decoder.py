"""Compiles jupyter/widget/decoder.wasm, the viewer's decoder, by PyPI's ziglang.

    build_decoder.py [FILE]

`./dev decoder` runs it in .venv-reader/. The same sources give the same bytes on every machine.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "jupyter/widget/decoder.wasm"

# What decoding needs, and no more.
CODEC = (
    "bitplanes",
    "block",
    "checksum",
    "decode",
    "dictionary",
    "geometry",
    "header",
    "levels",
    "lines",
    "lz4",
    "matches",
    "numbers",
    "planes",
    "predict",
    "ranked",
    "ranked_block",
    "scalar",
    "sparse",
    "tree",
    "walks",
)
SOURCES = ("jupyter/widget/decoder.c", *(f"src/codec/{name}.c" for name in CODEC))
# As in meson.build; wasi's C library has memcpy and malloc, and nothing of it calls the system.
FLAGS = (
    "-target",
    "wasm32-wasi",
    "-mexec-model=reactor",
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-DNDEBUG",
    "-DGPUFETCH_STATIC",
    "-DGPUFI_DECODE_ONLY",
    "-Os",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-unused-function",
    "-Wno-unused-parameter",
    "-Werror",
    "-Isrc",
    "-Isrc/include",
    "-s",
)


def build(file: Path) -> None:
    """Compile the module into a file. CalledProcessError, after the compiler's own words."""
    compiler = (sys.executable, "-m", "ziglang", "cc")
    subprocess.run([*compiler, *FLAGS, "-o", str(file), *SOURCES], cwd=ROOT, check=True)
    file.chmod(0o644)


def main() -> None:
    """Compile it, and say how large it is."""
    file = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else FILE
    build(file)
    print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
