"""A program of benchmarks/programs, which answers each line that it is sent with a JSON object."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

BUILD = "GPUFETCH_BUILD_DIR"  # where compiled programs are


def program_path(name: str) -> Path:
    return Path(os.environ.get(BUILD, "")) / "benchmarks" / "programs" / name


class Program:
    """A running one. What it says first is in `greeting`."""

    def __init__(
        self, name: str, *arguments: str | Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [program_path(name), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.greeting = self._reply()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, request: str) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"error": f"{self._name} has died"}
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply
