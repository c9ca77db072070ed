"""The command `refs` of `gpufetch` and of `hdf5-gpufetch`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gpufetch._text import printable

__all__ = ["add_refs", "write_refs"]


def add_refs(commands: Any) -> argparse.ArgumentParser:
    """Add the command to those of a parser; its `run` is to be :func:`write_refs`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "refs", help="write kerchunk references, by which Zarr and xarray read an HDF5 file"
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument(
        "-o", "--out", type=Path, help="the file to write; by default it is printed"
    )
    parser.add_argument("--url", help="where readers find FILE (by default its absolute path)")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    parser.add_argument(
        "--inline",
        type=int,
        metavar="NBYTES",
        help="bytes of a dataset that the references may hold themselves (65536)",
    )
    parser.add_argument(
        "--skip",
        action="store_true",
        help="leave out what references cannot express, and say what that is",
    )
    return parser


def write_refs(arguments: argparse.Namespace) -> int:
    """Run the command; it needs h5py, which the parser does without."""
    from gpufetch.hdf5._new_file import new_file
    from gpufetch.hdf5._refs import INLINE_NBYTES, references

    file, out = arguments.file, arguments.out
    if out is not None and out.exists() and file.exists() and out.samefile(file):
        raise ValueError(f"{out} is the source itself: give another name")
    made = references(
        file,
        url=arguments.url,
        inline_nbytes=INLINE_NBYTES if arguments.inline is None else arguments.inline,
        leave_out=_say if arguments.skip else None,
    )
    text = json.dumps(made)
    if out is None:
        print(text)
        return 0
    with new_file(out, overwrite=arguments.overwrite) as path:
        path.write_text(text)
    return 0


def _say(problem: str) -> None:
    print(printable(f"left out: {problem}"), file=sys.stderr)
