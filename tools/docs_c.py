"""The reference of a public C header: its comments as text, its declarations as code."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["page"]

# A comment that begins a line, and the code behind it, up to the next such comment.
PARTS = re.compile(r"^/\*(?P<comment>.*?)\*/\n?(?P<code>.*?)(?=^/\*|\Z)", re.MULTILINE | re.DOTALL)
GUARD = re.compile(
    r'^#(?:ifndef|define) GPUFETCH_\w+_H$|^#ifdef __cplusplus\n(?:extern "C" \{|\}).*?\n#endif$'
    r"|^#endif\s*\Z",
    re.MULTILINE,
)
DECLARED = re.compile(
    r"^GPUF_API\b[^;(]*?\b(gpuf_\w+)\s*\(|^typedef (?:struct|enum) (gpuf_\w+) \{",
    re.MULTILINE,
)
NAME = re.compile(r"(?<![\w`])((?:gpuf_|GPUF_)\w+(?:\.\w+)*(?:\(\))?)")


def prose(comment: str) -> str:
    """Return a comment as Markdown: names as code, indented lines as they are."""
    lines = [re.sub(r"^ \* ?", "", line).rstrip() for line in comment.strip().splitlines()]
    base = [line.lstrip() if number == 0 else line for number, line in enumerate(lines)]
    text, code = [], []
    in_list = False
    for line in [*base, ""]:
        in_list = bool(re.match(r" *- ", line)) or (in_list and line.startswith("  "))
        if line.startswith("  ") and not in_list:
            code.append(line)
            continue
        if code and not line:
            code.append(line)
            continue
        if code:
            text += ["", "```c", *(c[2:] for c in code), "```", ""]
            code = []
        if re.match(r" *- ", line) and text and not re.match(r" *- |  ", text[-1]):
            text.append("")
        escaped = re.sub(r"([*<\\])", r"\\\1", line).replace("\\<", "&lt;")
        text.append(NAME.sub(r"`\1`", escaped.strip() if not in_list else f"  {escaped.strip()}"))
        if in_list and escaped.strip().startswith("- "):
            text[-1] = text[-1].lstrip()
    if code:
        text += ["", "```c", *(c[2:] for c in code), "```"]
    return "\n".join(text).strip()


def page(header: Path) -> str:
    text = GUARD.sub("", header.read_text())
    out = [f"# gpufetch/{header.name}"]
    for part in PARTS.finditer(text):
        comment, code = part["comment"], part["code"].strip("\n")
        section = re.match(r" -+ (.*?) -+ *$", comment)
        found = [name for pair in DECLARED.findall(code) for name in pair if name]
        names = list(dict.fromkeys(found))
        if section:
            out.append(f"## {section[1]}")
        elif names and "clang-format" not in comment:
            out.append(f"### {', '.join(names[:3])}{', …' if len(names) > 3 else ''}")
        if not section and "clang-format" not in comment:
            comment = re.sub(r"^ \*\s*\n \* SPDX-.*$", "", comment, flags=re.MULTILINE)
            out.append(prose(comment))
        if code.strip():
            out.append(f"```c\n{code.strip()}\n```")
    return "\n\n".join(out) + "\n"
