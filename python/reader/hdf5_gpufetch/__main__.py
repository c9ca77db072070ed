"""The command line: `hdf5-gpufetch plugin-path | ls | repack | refs`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hdf5_gpufetch
from hdf5_gpufetch._gpufetch._command_line import run_command
from hdf5_gpufetch._gpufetch._text import format_nbytes, printable
from hdf5_gpufetch._gpufetch.hdf5._refs_command import add_refs, write_refs

__all__ = ["main"]

_CODECS = ("gzip", "none", "gpufetch")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, 1 for a failure, 2 for wrong usage."""
    arguments = _parser().parse_args(argv)
    return run_command("hdf5-gpufetch", arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hdf5-gpufetch", description="Reads HDF5 files that gpufetch wrote."
    )
    version = f"hdf5-gpufetch {hdf5_gpufetch.__version__}"
    parser.add_argument("--version", action="version", version=version)
    parser.set_defaults(failure=1, escapes=True)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    path = commands.add_parser("plugin-path", help="print the directory for HDF5_PLUGIN_PATH")
    path.set_defaults(run=_plugin_path, escapes=False)  # the shell needs the bytes of the path
    ls = commands.add_parser("ls", help="list HDF5 files: datasets, filters, what reading needs")
    ls.add_argument("file", type=Path, nargs="+")
    ls.set_defaults(run=_ls)
    _add_repack(commands)
    add_refs(commands).set_defaults(run=_refs)
    return parser


def _add_repack(commands: Any) -> None:
    parser = commands.add_parser("repack", help="copy an HDF5 file so that other HDF5 reads it")
    parser.add_argument("source", type=Path, metavar="IN")
    parser.add_argument("dest", type=Path, metavar="OUT")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="take fill values where sources of virtual datasets are missing",
    )
    parser.add_argument(
        "--codec",
        choices=_CODECS,
        default="gzip",
        help="gzip, none: any HDF5 reads it; gpufetch: smaller and faster (default: %(default)s)",
    )
    parser.set_defaults(run=_repack)


def _plugin_path(arguments: argparse.Namespace) -> int:
    print(hdf5_gpufetch.plugin_path())
    return 0


def _need_h5py() -> None:
    if find_spec("h5py") is None:
        raise ImportError("this needs h5py: pip install h5py")


def _ls(arguments: argparse.Namespace) -> int:
    _need_h5py()
    from hdf5_gpufetch._gpufetch.hdf5._ls import ls_lines

    for path in arguments.file:
        for line in ls_lines(path):
            print(printable(line))
    return 0


def _repack(arguments: argparse.Namespace) -> int:
    _need_h5py()
    from hdf5_gpufetch._gpufetch.hdf5._repack import repack

    repack(
        arguments.source,
        arguments.dest,
        codec=arguments.codec,
        overwrite=arguments.overwrite,
        allow_gaps=arguments.allow_gaps,
        progress=True,
    )
    before, after = arguments.source.stat().st_size, arguments.dest.stat().st_size
    print(f"{printable(str(arguments.dest))}: {format_nbytes(after)}, was {format_nbytes(before)}")
    return 0


def _refs(arguments: argparse.Namespace) -> int:
    _need_h5py()
    return write_refs(arguments)


if __name__ == "__main__":
    sys.exit(main())
