"""What the tests of LazyArray share: a count of transfers, and a tensor that can be replaced."""

from __future__ import annotations

from typing import Any

import pytest

import gpufetch as gf
from gpufetch import _core


class Traffic:
    """Counts what _core.fetch and _core.fetch_async pull from now on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.transfers: list[int] = []  # bytes of each
        for name in ("fetch", "fetch_async"):
            patch.setattr(_core, name, self._counted(getattr(_core, name)))

    @property
    def calls(self) -> int:
        return len(self.transfers)

    @property
    def nbytes(self) -> int:
        return sum(self.transfers)

    def _counted(self, function: Any) -> Any:
        def counted(x: Any, **options: Any) -> Any:
            self.transfers.append(_core.asdevice(x).nbytes)
            return function(x, **options)

        return counted


class ReplaceableTensor:
    """A framework's tensor whose memory can be replaced by that of another array."""

    def __init__(self, values: Any, device: str | None = None) -> None:
        self.replace(values, device)

    def replace(self, values: Any, device: str | None = None) -> None:
        self._array = gf.to_device(values, device=device)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()
