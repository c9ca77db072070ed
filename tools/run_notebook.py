"""Run the code cells of a notebook as one Python program, without Jupyter.

    MPLBACKEND=Agg python3 tools/run_notebook.py notebooks/frameworks.ipynb [FOLDER]

Prints what the cells print, under the headings of the text cells. Figures go to FOLDER as PNG
files, if it is given. There are no magics. A cell that fails ends the program with its traceback
and status 1.
"""

from __future__ import annotations

import json
import linecache
import sys
from pathlib import Path
from typing import Any


def save_figures(folder: Path | None, cell: str) -> None:
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums() if pyplot else []:
        if folder:
            path = folder / f"{cell}-{number}.png"
            pyplot.figure(number).savefig(path)
            print(f"[{path}]")
        pyplot.close(number)


def run(path: Path, folder: Path | None) -> None:
    names = {"__name__": "__main__"}
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            print("", *(line for line in source.splitlines() if line.startswith("#")), sep="\n")
            continue
        label = f"{path.name}: {cell['id']}"
        # So that a traceback shows the line.
        linecache.cache[label] = (len(source), None, source.splitlines(keepends=True), label)
        exec(compile(source, label, "exec"), names)
        save_figures(folder, cell["id"])


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
