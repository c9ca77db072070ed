"""The command line: `gpufetch info | demo | ls | plugin-path`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py

import gpufetch as gf
from gpufetch.lazy import format_nbytes

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, 1 for a failure, 2 for wrong usage."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except BrokenPipeError:
        # The reader of a pipe has gone (gpufetch ls FILE | head): let the flush at exit succeed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MemoryError, OSError, RuntimeError, ValueError) as error:
        print(f"gpufetch {arguments.command}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpufetch", description="Arrays from GPU memory to NumPy, HDF5 and notebooks."
    )
    parser.add_argument("--version", action="version", version=f"gpufetch {gf.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    info = commands.add_parser("info", help="say what gpufetch was built with and runs on")
    info.set_defaults(run=_info)

    ls = commands.add_parser("ls", help="list the datasets of HDF5 files")
    ls.add_argument("file", type=Path, nargs="+")
    ls.set_defaults(run=_ls)

    plugin_path = commands.add_parser(
        "plugin-path", help="print the directory to put into HDF5_PLUGIN_PATH"
    )
    plugin_path.set_defaults(run=_plugin_path)

    demo = commands.add_parser("demo", help="write, read back, check and plot real data")
    demo.add_argument("--directory", type=Path, default=Path("demo"), help="(%(default)s)")
    demo.add_argument(
        "--simulation", type=Path, help="the compiled example gray_scott; without it, no simulation"
    )
    demo.add_argument("--notebook", type=Path, help="a notebook to execute on the demo's files")
    demo.set_defaults(run=_demo)
    return parser


def _info(arguments: argparse.Namespace) -> int:
    for line in _info_lines(gf.info()):
        print(line)
    return 0


def _info_lines(values: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Write nested facts, one a line; leaves out what is None or empty."""
    known = {name: value for name, value in values.items() if value not in (None, [], {})}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        if isinstance(value, dict):
            yield f"{indent}{name}"
            yield from _info_lines(value, indent + "  ")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield f"{indent}{name}[{index}]"
                yield from _info_lines(item, indent + "  ")
        else:
            text = format_nbytes(value) if name.endswith("_nbytes") else value
            yield f"{indent}{name:<{width}}  {text}"


def _plugin_path(arguments: argparse.Namespace) -> int:
    print(gf.hdf5.plugin_path())
    return 0


def _ls(arguments: argparse.Namespace) -> int:
    for path in arguments.file:
        rows = [_LS_COLUMNS, *_ls_rows(path)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        print(f"{path}: {format_nbytes(path.stat().st_size)}")
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print("  " + "  ".join(cells).rstrip())
    return 0


_LS_COLUMNS = ("dataset", "shape", "dtype", "chunks", "filter", "size", "ratio")
_FILTER_NAMES = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit"}


def _ls_rows(path: Path) -> list[tuple[str, ...]]:
    rows = []

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            rows.append(_ls_row(name, item))

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except OSError as error:
        raise OSError(f"{path}: {error}") from error
    return rows


def _ls_row(name: str, dataset: h5py.Dataset) -> tuple[str, ...]:
    stored = dataset.id.get_storage_size()
    nbytes = dataset.nbytes if dataset.shape is not None else 0
    return (
        name,
        "empty" if dataset.shape is None else str(dataset.shape),
        str(dataset.dtype),
        "-" if dataset.chunks is None else str(dataset.chunks),
        "+".join(_filter_names(dataset)) or "-",
        format_nbytes(nbytes),
        f"{nbytes / stored:.2f}" if stored else "-",
    )


def _filter_names(dataset: h5py.Dataset) -> list[str]:
    properties = dataset.id.get_create_plist()
    names = []
    for index in range(properties.get_nfilters()):
        number, _, _, name = properties.get_filter(index)
        known = "gpufetch" if number == gf.hdf5.FILTER_ID else _FILTER_NAMES.get(number)
        names.append(known or name.decode(errors="replace").split(";")[0] or str(number))
    return names


def _demo(arguments: argparse.Namespace) -> int:
    from gpufetch import demo  # needs matplotlib and nbclient, which the others do without

    demo.run(arguments.directory, simulation=arguments.simulation, notebook=arguments.notebook)
    return 0


if __name__ == "__main__":
    sys.exit(main())
