"""Prints what pyproject.toml requires, each package with exactly its lower bound.

    python lower_bounds.py PYPROJECT EXTRA...

Ends with an error where a requirement has no lower bound.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def main() -> None:
    project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in sys.argv[2:]:
        wanted += project["optional-dependencies"][extra]
    for requirement in wanted:
        match = re.fullmatch(r"([\w.-]+)(\[[\w,]+\])?>=([\d.]+)", requirement)
        if match is None:
            sys.exit(f"{requirement} has no lower bound, as NAME>=VERSION")
        name, extras, version = match.groups()
        print(f"{name}{extras or ''}=={version}")


if __name__ == "__main__":
    main()
