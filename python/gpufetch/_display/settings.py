"""What can be set for displays; `%config GpufetchMagics` sets it in IPython."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HOST_NBYTES", "Settings", "settings"]

HOST_NBYTES = 64 << 20


@dataclass
class Settings:
    """Attributes.

    reads_device
        Whether displays read elements; else they show what is known without that.
    host_nbytes
        Bytes of a tensor that are read where no GPU does it; of a larger one, a sample.
    """

    reads_device: bool = True
    host_nbytes: int = HOST_NBYTES


settings = Settings()
