# SPDX-License-Identifier: Apache-2.0
"""The state of the process's random generators: Python's, NumPy's if it is loaded, torch's of CPU and GPU.

The program registers generators that it has made itself."""
from __future__ import annotations

import importlib
import random
import sys
from typing import Any


def save() -> dict[str, Any]:
    state: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and hasattr(numpy, "random"):
        state["numpy"] = numpy.random.get_state()
    if torch is not None and hasattr(torch, "get_rng_state"):
        state["torch"] = bytes(torch.get_rng_state().tolist())
        # Reading the generators of the GPUs would create a context on each GPU, so they are read only if
        # torch has initialized CUDA.
        if torch.cuda.is_initialized():
            state["cuda"] = bytes(torch.cuda.get_rng_state().tolist())
    return state


def restore(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    if "numpy" in state:
        importlib.import_module("numpy").random.set_state(state["numpy"])
    if "torch" in state:
        torch = importlib.import_module("torch")
        torch.set_rng_state(torch.tensor(list(state["torch"]), dtype=torch.uint8))
        if "cuda" in state:
            torch.cuda.set_rng_state(torch.tensor(list(state["cuda"]), dtype=torch.uint8))
