# SPDX-License-Identifier: Apache-2.0
"""Accelerate. A program calls `job = accelerate.attach(accelerator, model, optimizer, scheduler)` with the objects that
`prepare` has returned, then `for batch in job.steps(loader, accumulate=accelerator.gradient_accumulation_steps)`."""
from __future__ import annotations

from typing import Any, Optional

from .. import attach as attach_parts
from .._errors import UsageError
from .._job import Job
from .._memory import Memory


def attach(accelerator: Any, model: Any, optimizer: Any = None, scheduler: Any = None, loader: Any = None, *,
           memory: Optional[Memory] = None) -> Job:
    """Attaches a training of Accelerate. Its state has the names of the objects that Accelerate has wrapped."""
    if accelerator.num_processes != 1:
        raise UsageError(f"the training has {accelerator.num_processes} processes: only a training with one process can be moved")
    return attach_parts(accelerator.unwrap_model(model), getattr(optimizer, "optimizer", optimizer), accelerator.scaler,
                        getattr(scheduler, "scheduler", scheduler), loader, memory=memory)
