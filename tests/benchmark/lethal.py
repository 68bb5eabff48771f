"""A prior that ends its process, as a crash in another tool's library would."""

from __future__ import annotations

import os
import signal

from torch import Tensor


def die(field: Tensor, sigma: float) -> Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    return field
