"""Make the pages that MkDocs turns into the site: `./dev docs` calls this.

    python tools/docs_pages.py FOLDER

They are the pages of docs/ and of the root, the notebooks, and the reference: of Python from the
docstrings of the installed package, of C from the comments of the public headers. Links to other
files of the tree lead to copies of them. `mkdocs build --strict` checks every link.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import docs_c
import docs_python
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).resolve().parents[1]
HEADERS = sorted((ROOT / "src" / "include" / "gpufetch").glob("*.h"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# Where a file of the tree is in the site.
PAGES = {
    ROOT / "README.md": "index.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "SECURITY.md": "security.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "benchmarks" / "README.md": "measuring.md",
    ROOT / "packaging" / "README.md": "recipes.md",
    **{page: page.name for page in (ROOT / "docs").glob("*.md")},
    **{path: f"notebooks/{path.stem}.md" for path in NOTEBOOKS},
    **{path: f"reference/{path.name}.md" for path in HEADERS},
}
# A link; or code, in which there are none.
LINK = re.compile(r"`[^`]*`|\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)

STYLE = """
.wy-nav-content { max-width: 62rem; }
.rst-content a.headerlink { font-size: 0.8em; }
.rst-content .codehilite { margin: 0 0 1.2rem; }
.rst-content .codehilite pre { border: 0; padding: 0.8rem; font-size: 0.8rem; overflow-x: auto; }
.rst-content code.literal, .rst-content code { color: #24476b; }
.rst-content table { display: block; overflow-x: auto; }
.rst-content table td { white-space: normal; }
"""


class Site:
    """A folder of pages, and the files of the tree that they link to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def place_of(self, target: Path) -> str | None:
        """Where the site has a file, of which it may first get a copy; None for a folder."""
        if target in PAGES:
            return PAGES[target]
        if not target.is_file():
            return None
        place = f"source/{target.relative_to(ROOT)}"
        (self.folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, self.folder / place)
        return place

    def with_links(self, markdown: str, source: Path, name: str) -> str:
        """Turn links from one file of the tree to others into links of the page `name`."""

        def turned(match: re.Match[str]) -> str:
            text, link, anchor = match[1], match[2], match[3] or ""
            if not link or "://" in link:
                return match[0]
            target = (source.parent / link).resolve()
            if not target.exists():
                raise SystemExit(f"{source.relative_to(ROOT)}: no file {link}")
            place = self.place_of(target)
            if place is None:
                return text
            return f"[{text}]({os.path.relpath(place, Path(name).parent)}{anchor})"

        return LINK.sub(turned, markdown)

    def add(self, source: Path, name: str, text: str) -> None:
        """Write a page. Fenced code is left as it is."""
        parts, end = [], 0
        for fence in FENCE.finditer(text):
            parts += [self.with_links(text[end : fence.start()], source, name), fence[0]]
            end = fence.end()
        parts.append(self.with_links(text[end:], source, name))
        self.write(name, "".join(parts).replace("```ipython", "```python"))


def notebook_page(path: Path) -> str:
    """Return the text and the code of a notebook; it is committed without outputs."""
    cells = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        cells.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
    return "\n\n".join([*cells, f"To run it: <a href={path.name} download>{path.name}</a>"]) + "\n"


def with_guides(text: str) -> str:
    """Turn names of pages in comments and docstrings into links."""
    return re.sub(r"docs/([a-z-]+\.md)", r"[docs/\1](../\1)", text)


def build(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    site = Site(folder)
    for source, name in PAGES.items():
        if source in NOTEBOOKS:
            site.add(source, name, notebook_page(source))
            shutil.copyfile(source, folder / "notebooks" / source.name)
        elif source in HEADERS:
            site.write(name, with_guides(docs_c.page(source)))
        else:
            site.add(source, name, source.read_text())
    for module in docs_python.MODULES:
        site.write(f"reference/{module}.md", with_guides(docs_python.page(module)))
    colours: str = HtmlFormatter(style="default").get_style_defs(".codehilite")  # type: ignore[no-untyped-call]
    site.write("extra.css", STYLE + colours + "\n")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
