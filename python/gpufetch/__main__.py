"""The command line: `gpufetch info | ls | verify | repack | refs | plugin-path | demo | attach`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gpufetch as gf
from gpufetch._command_line import complain, run_command
from gpufetch._text import format_nbytes, printable
from gpufetch.hdf5._copy import CODECS
from gpufetch.hdf5._ls import ls_lines
from gpufetch.hdf5._refs_command import add_refs, write_refs
from gpufetch.hdf5._verify import Verification, files_of, passed_over

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, 1 for a failure, 2 for wrong usage.

    Of `verify`, 1 is damage, and 3 what could not be checked, or said.
    """
    arguments = _parser().parse_args(argv)
    return run_command("gpufetch", arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpufetch", description="Arrays from GPU memory to NumPy, HDF5 and notebooks."
    )
    parser.add_argument("--version", action="version", version=f"gpufetch {gf.__version__}")
    parser.set_defaults(failure=1, escapes=True)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        _add_info,
        _add_ls,
        _add_verify,
        _add_repack,
        _add_refs,
        _add_plugin_path,
        _add_demo,
        _add_attach,
    ):
        add(commands)
    return parser


def _add_info(commands: Any) -> None:
    parser = commands.add_parser("info", help="say what gpufetch was built with and runs on")
    parser.set_defaults(run=_info)


def _info(arguments: argparse.Namespace) -> int:
    for line in _info_lines(gf.info()):
        print(line)
    return 0


def _info_lines(values: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Write nested facts, one to a line; leaves out what is None or empty."""
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


def _add_ls(commands: Any) -> None:
    parser = commands.add_parser(
        "ls", help="list HDF5 files: datasets, filters, what reading needs"
    )
    parser.add_argument("file", type=Path, nargs="+")
    parser.set_defaults(run=_ls)


def _ls(arguments: argparse.Namespace) -> int:
    status = 0
    for path in arguments.file:
        try:
            lines = list(ls_lines(path))
        except OSError as error:
            complain("gpufetch", arguments, error)
            status = 1
        else:
            print(*map(printable, lines), sep="\n")
    return status


def _add_verify(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="read all of HDF5 files and checkpoints, and name what is damaged",
        epilog="The exit status is 0 where all is whole, 1 where something is damaged, 2 for wrong "
        "usage, and 3 where nothing was found damaged, and something could not be checked or "
        "printed: the system refused it, or there is nothing.",
    )
    parser.add_argument("path", type=Path, nargs="+", help="a file, or a folder of files")
    parser.set_defaults(run=_verify, failure=3)


def _verify(arguments: argparse.Namespace) -> int:
    damage_count = refusal_count = 0

    def say(line: str) -> int:
        """Print a line; 1 where that is refused, and checking goes on."""
        try:
            print(printable(line), flush=True)
        except OSError as error:
            complain("gpufetch", arguments, error)
            return 1
        return 0

    for path in arguments.path:
        try:
            files = files_of(path)
            for line in passed_over(path):
                refusal_count += say(line)
            if not files:
                raise FileNotFoundError(f"no HDF5 file in {path}")
        except (OSError, ValueError) as error:
            say(f"{path}: could not be checked: {error}")
            refusal_count += 1
            continue
        for file in files:
            verification = Verification(file)
            for line in verification.lines(progress=sys.stderr.isatty()):
                refusal_count += say(line)
            damage_count += verification.damage_count
            refusal_count += verification.refusal_count
    if damage_count:
        return 1
    return 3 if refusal_count else 0


def _add_repack(commands: Any) -> None:
    parser = commands.add_parser(
        "repack", help="copy an HDF5 file, its datasets stored another way"
    )
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
        choices=CODECS,
        default="gpufetch",
        help="none and gzip: any HDF5 reads it; bitshuffle-lz4: hdf5plugin (default: %(default)s)",
    )
    parser.set_defaults(run=_repack)


def _repack(arguments: argparse.Namespace) -> int:
    gf.hdf5.repack(
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


def _add_refs(commands: Any) -> None:
    add_refs(commands).set_defaults(run=write_refs)


def _add_plugin_path(commands: Any) -> None:
    parser = commands.add_parser(
        "plugin-path", help="print the directory to put into HDF5_PLUGIN_PATH"
    )
    parser.set_defaults(run=_plugin_path, escapes=False)  # the shell needs the bytes of the path


def _plugin_path(arguments: argparse.Namespace) -> int:
    print(gf.hdf5.plugin_path())
    return 0


def _add_demo(commands: Any) -> None:
    parser = commands.add_parser("demo", help="write, read back, check and plot real data")
    parser.add_argument("--directory", type=Path, default=Path("demo"), help="(%(default)s)")
    parser.add_argument(
        "--simulation", type=Path, help="the compiled example gray_scott; without it, no simulation"
    )
    parser.add_argument("--notebook", type=Path, help="a notebook to execute on the demo's files")
    parser.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from gpufetch import _demo  # needs matplotlib and nbclient, which the others do without

    _demo.run(arguments.directory, simulation=arguments.simulation, notebook=arguments.notebook)
    return 0


def _add_attach(commands: Any) -> None:
    parser = commands.add_parser("attach", help="watch a program that serves its tensors")
    parser.add_argument(
        "server",
        nargs="*",
        help="its name or connection file; several, or a pattern: as one; without: list all",
    )
    parser.add_argument("--interval", type=float, default=1.0, help="seconds (%(default)s)")
    parser.add_argument("--once", action="store_true", help="print once, and end")
    parser.add_argument("--no-stats", action="store_true", help="do not reduce the tensors")
    parser.set_defaults(run=_attach)


def _attach(arguments: argparse.Namespace) -> int:
    from gpufetch._remote import watch

    servers = arguments.server[0] if len(arguments.server) == 1 else arguments.server
    if not servers:
        for line in watch.server_lines():
            print(line)
    elif arguments.once:
        watch.show_once(servers, with_stats=not arguments.no_stats)
    else:
        watch.watch(servers, arguments.interval, with_stats=not arguments.no_stats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
