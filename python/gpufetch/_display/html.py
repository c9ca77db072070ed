"""The frame of every rich display: its style, and tables. All text is escaped here."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence

import numpy as np

__all__ = ["escape", "figure", "frame", "safely", "table"]

# JupyterLab's variables where it defines them; else the colours of the page's scheme. Rules name
# the class twice, since Jupyter's own rules for tables would win otherwise.
_STYLE = """
.gpufetch-display{--gf-fg:#1f2328;--gf-dim:#59636e;--gf-line:#d1d9e0;
--gf-fill:#8fb6e8;--gf-bar:#3d6fb4;
color:var(--jp-content-font-color1,var(--vscode-editor-foreground,var(--gf-fg)));
font:13px/1.45 var(--jp-content-font-family,system-ui,sans-serif);padding:2px 0}
@media (prefers-color-scheme:dark){.gpufetch-display{
--gf-fg:#e6edf3;--gf-dim:#9198a1;--gf-line:#3d444d;--gf-fill:#2b4f7e;--gf-bar:#79a8e8}}
[data-jp-theme-light=true] .gpufetch-display{--gf-fill:#8fb6e8;--gf-bar:#3d6fb4}
[data-jp-theme-light=false] .gpufetch-display{--gf-fill:#2b4f7e;--gf-bar:#79a8e8}
.gpufetch-display .gf-dim{color:var(--jp-content-font-color2,var(--gf-dim))}
.gpufetch-display .gf-row{display:flex;flex-wrap:wrap;gap:8px 28px;align-items:flex-start}
.gpufetch-display figure{margin:0}
.gpufetch-display figcaption{font-size:11px;color:var(--jp-content-font-color2,var(--gf-dim))}
.gpufetch-display svg{display:block}
.gpufetch-display svg text{fill:currentColor;font-size:11px;stroke:none}
.gpufetch-display img{display:block;border:1px solid var(--jp-border-color2,var(--gf-line))}
.gpufetch-display.gpufetch-display table{border-collapse:collapse;margin:4px 0;font-size:inherit;
color:inherit;border:none;table-layout:auto;width:auto}
.gpufetch-display.gpufetch-display table tr:nth-child(n){background:none}
.gpufetch-display.gpufetch-display table :is(th,td){text-align:left;
padding:1px 14px 1px 0;border:none;vertical-align:top;white-space:normal;max-width:44em;
overflow-wrap:anywhere;color:inherit}
.gpufetch-display.gpufetch-display table th{font-weight:500;white-space:nowrap;
color:var(--jp-content-font-color2,var(--gf-dim))}
.gpufetch-display pre{margin:4px 0;font-size:12px;color:inherit;background:none;overflow-x:auto}
.gpufetch-display summary{cursor:pointer}
"""


def escape(text: object) -> str:
    """Text as HTML shows it."""
    return html.escape(str(text))


def frame(title: str, about: str, *parts: str) -> str:
    """A whole display: a title, what it is about in plain text, and parts of HTML."""
    style = _STYLE.replace("\n", "")
    about = f" <span class='gf-dim'>{escape(about)}</span>" if about else ""
    inside = "".join(parts)
    return (
        f"<div class='gpufetch-display'><style>{style}</style><div><b>{escape(title)}</b>{about}"
        f"</div>{inside}</div>"
    )


def table(rows: Iterable[Sequence[object]], head: Sequence[str] | None = None) -> str:
    """A table of plain text; without a head, the first cell of each row is what it is called."""
    lines = []
    if head is not None:
        lines.append("<tr>" + "".join(f"<th>{escape(text)}</th>" for text in head) + "</tr>")
    for row in rows:
        tags = ["th" if head is None and i == 0 else "td" for i in range(len(row))]
        cells = zip(tags, row, strict=True)
        lines.append(
            "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for tag, text in cells) + "</tr>"
        )
    return f"<table>{''.join(lines)}</table>" if lines else ""


def figure(drawing: str, caption: str) -> str:
    """A drawing, which is HTML, with a caption, which is plain text."""
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def safely(make: Callable[[], str], fallback: Callable[[], str]) -> str:
    """What `make` gives; the fallback's text, escaped, and the reason where that fails.

    NumPy's rounding is no error here, whatever the user has set with numpy.errstate.
    """
    try:
        with np.errstate(all="ignore"):
            return make()
    except Exception as error:
        text = f"{fallback()}\nnot shown: {type(error).__name__}: {error}"
        return f"<pre>{escape(text)}</pre>"
