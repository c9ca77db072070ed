"""The reference of a Python module: signatures and docstrings of its public names."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["MODULES", "page"]

LINE_LENGTH = 88
MODULES = ("gpufetch", "gpufetch.hdf5", "gpufetch.plot")


def as_markdown(docstring: str) -> str:
    """Turn sections of NumPy's style into bold words and lists of definitions."""
    docstring = re.sub(r":\w+:`~?\.?", "`", docstring)
    docstring = re.sub(r"(?<![`\w])__\w+__(?![`\w])", r"`\g<0>`", docstring)
    lines, out = docstring.splitlines(), []
    section = is_code = False
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if is_code and not line.strip():
            out += ["```"]
            is_code = False
        elif line.startswith(">>>") and not is_code:
            out += ["", "```python"]
            is_code = True
        if re.fullmatch(r"-{3,}", line):
            continue
        if re.fullmatch(r"-{3,}", following):
            out += [f"**{line}**", ""]
            section = True
        elif section and line and not line.startswith(" "):
            out += ["", f"`{line}`"]
        elif section and line:
            out.append(f":   {line.strip()}" if out[-1].startswith("`") else f"    {line.strip()}")
        else:
            out.append(line)
    return "\n".join([*out, "```"] if is_code else out)


def signature(name: str, item: Any) -> str:
    """Return a call as code, in lines of its own for each argument if it is long."""
    try:
        found = inspect.signature(item)
    except (TypeError, ValueError):
        return f"```python\n{name}(...)\n```"
    arguments = [a for a in found.parameters.values() if a.name not in ("self", "cls")]
    text = str(found.replace(parameters=arguments))
    if isinstance(item, type):
        text = text.rpartition(" -> ")[0] or text
    # Annotations are text in most modules.
    text = re.sub(r"(: |-> )'((?:[^'\\]|\\.)*)'", r"\1\2", text)
    if len(name + text) > LINE_LENGTH:
        split = re.split(r", (?=(?:\*?\*?\w+(?:: | = |=|,|\))|/|\*,))", text[1:].rpartition(")")[0])
        text = "(\n    " + ",\n    ".join(split) + ",\n)" + text.rpartition(")")[2]
    return f"```python\n{name}{text}\n```"


def members(owner: type) -> Iterator[str]:
    """Yield the public members that have a docstring, the owner's own and inherited ones."""
    for name in dir(owner):
        item = inspect.getattr_static(owner, name)
        if name.startswith("_") or not inspect.getdoc(item):
            continue
        is_value = not callable(getattr(owner, name)) or isinstance(item, property)
        yield f"#### {owner.__name__}.{name}"
        if not is_value:
            yield signature(name, getattr(owner, name))
        yield as_markdown(inspect.getdoc(item) or "")


def page(name: str) -> str:
    module = importlib.import_module(name)
    out = [f"# {name}", as_markdown(inspect.getdoc(module) or "")]
    for public in module.__all__:
        item = getattr(module, public)
        if inspect.ismodule(item) or public.startswith("__"):
            continue
        out.append(f"## {name}.{public}")
        if isinstance(item, type) or callable(item):
            is_raised = isinstance(item, type) and issubclass(item, Exception)
            if not is_raised:
                out.append(signature(public, item))
            out.append(as_markdown(inspect.getdoc(item) or ""))
            if isinstance(item, type) and not is_raised:
                out += members(item)
        else:
            out.append(f"```python\n{public} = {item!r}\n```")
    return "\n\n".join(part for part in out if part) + "\n"
