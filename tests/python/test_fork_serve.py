"""Forked children of programs that serve, or that are connected to a server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jupyter_client")

from forking import in_child, refused
from serving import needs_server

import gpufetch as gf

pytestmark = [
    needs_server,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

ROWS = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)


def test_a_forked_child_cannot_use_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    with gf.serve("first") as server, gf.serve("second") as second:
        server.publish("rows", ROWS)
        second.publish("other", ROWS)
        with gf.connect("first", timeout=10) as run, gf.connect(["first", "second"]) as both:
            rows, joint = run["rows"], both["rows"]
            future = rows.fetch_async()
            assert (future.result() == ROWS).all() and (joint.fetch() == ROWS).all()
            # A thread that holds the connection's lock is not in the child.
            waiting = threading.Thread(target=lambda: run.wait_step(timeout=20), daemon=True)
            waiting.start()
            calls: list[Callable[[], Any]] = [
                lambda: run["rows"],
                lambda: list(run),
                lambda: run.step,
                lambda: run.wait_step(timeout=1),
                lambda: rows.fetch(),
                lambda: rows[3].stats(),
                lambda: rows.fetch_async().result(),
                future.result,
                lambda: list(both),
                lambda: joint.fetch(),
                lambda: server.publish("rows", ROWS),
                lambda: server.step(1),
                lambda: server.stop(),
                lambda: gf.serve("third"),
            ]

            def work() -> None:
                for call in calls:
                    refused(call)
                repr(run), repr(both), repr(rows)
                run.close()
                both.close()

            in_child(work)
            while waiting.is_alive():
                server.step(1)
                waiting.join(0.01)
            assert (rows.fetch() == ROWS).all() and (joint.fetch() == ROWS).all()
