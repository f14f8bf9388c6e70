# SPDX-License-Identifier: Apache-2.0
"""Makes a Python program movable from GPU to GPU by gpumigrate, while it runs.

    import gpumigrate
    job = gpumigrate.attach(model=model, optimizer=optimizer, loader=loader)
    for epoch in job.epochs(10):
        for batch in job.steps():
            train_step(batch)

Outside gpumigrate (CKPT_SOCKET is not in the environment) nothing is loaded, and the program runs unchanged."""
from __future__ import annotations

from typing import Any, Optional

from ._buffers import Buffer
from ._errors import Error, LibraryError, Mismatch, MoveWarning, StateChanged, UsageError
from ._job import Job
from ._memory import Memory

__all__ = ["Buffer", "Error", "Job", "LibraryError", "Memory", "Mismatch", "MoveWarning", "StateChanged", "UsageError",
           "attach"]
__version__ = "0.1.0"

_attached: Optional[Job] = None


def attach(model: Any = None, optimizer: Any = None, scaler: Any = None, scheduler: Any = None, loader: Any = None, *,
           memory: Optional[Memory] = None) -> Job:
    """Returns the job of this process. All tensors of `model` and `optimizer` (torch's) are put into memory that can be
    moved, and named. Their state on the host, `scaler` and `scheduler` move as host state. `memory` is for devices that
    torch does not know as its own."""
    global _attached
    if _attached is not None:
        raise UsageError("this process has attached already: one job has one attach(), for all its state")
    job = Job()
    _attached = job
    job._position.loader = loader
    if any(part is not None for part in (model, optimizer, scaler, scheduler)):
        from . import _torch
        _torch.attach(job, model, optimizer, scaler, scheduler, memory)
    return job
