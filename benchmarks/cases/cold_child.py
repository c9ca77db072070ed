"""One cold fetch: `cold_child.py KIND NBYTES BACKEND` prints {"seconds": ..., "source": ...}.

KIND is gpufetch, raw, numpy or a framework. The array is on the device, its context is made and
its work is done before the clock starts; nothing has been fetched.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import Array, same_bits
from peers import load, raw_copy


def contender(kind: str, array: Array, backend: str) -> tuple[Any, Callable[[Any], Any], str]:
    """The array on the device, the call that fetches it, and what kind of array it is."""
    if kind == "numpy":
        return array, np.copy, "NumPy array"
    if kind == "raw":
        raw = raw_copy(backend, array.nbytes)
        return raw.put(array), lambda source: raw.to_host(source).view(np.float32), "raw memory"
    if kind != "gpufetch":
        framework = load(kind)
        return framework.put(array), framework.get, f"{kind} array"
    import gpufetch as gf

    for name in ("cupy", "torch") if backend == "cuda" else ():
        try:
            return load(name).put(array), gf.fetch, f"{name} array"
        except ImportError:
            continue
    return gf.to_device(array, device=f"{backend}:0"), gf.fetch, "DeviceArray"


def main() -> int:
    kind, nbytes, backend = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    array = np.random.default_rng(nbytes).random(nbytes // 4, dtype=np.float32)
    source, call, source_is = contender(kind, array, backend)
    start = time.perf_counter_ns()
    result = call(source)
    stop = time.perf_counter_ns()
    if not same_bits(array, np.asarray(result)):
        print(f"{kind}: the answer differs from the source", file=sys.stderr)
        return 1
    print(json.dumps({"seconds": (stop - start) * 1e-9, "source": source_is}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
