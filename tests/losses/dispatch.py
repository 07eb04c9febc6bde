"""Watch what a computation dispatches: operations that launch a kernel, and those that read the device."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READS_THE_DEVICE = {"_local_scalar_dense", "nonzero", "is_nonzero", "unique2", "_unique2", "masked_select", "equal"}
LAUNCHES_NOTHING = {"detach", "alias", "empty", "empty_like", "new_empty", "empty_strided", "_unsafe_view"}


class Watch(TorchDispatchMode):
    """Counts operations by name; one that waits for the device or has a shape from its data is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        boolean = name in ("index", "index_put", "index_put_") and any(
            isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1]
        )
        if name in READS_THE_DEVICE or boolean:
            raise AssertionError(f"{func} waits for the device")
        if not func.is_view and name not in LAUNCHES_NOTHING:
            self.launched[name] += 1
        return func(*args, **(kwargs or {}))
