# SPDX-License-Identifier: Apache-2.0
"""Lightning. A program calls `callback, loader = lightning.prepare(loader)`, then `Trainer(callbacks=[callback])` and
`fit(model, loader)`.

A training has one optimizer. With accumulate_grad_batches, the barrier is after an optimizer step."""
from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Optional

from .. import attach
from .._errors import UsageError
from .._job import Job
from ._loops import CountedLoader


def prepare(loader: Any) -> tuple[Any, CountedLoader]:
    name = "lightning.pytorch" if importlib.util.find_spec("lightning") else "pytorch_lightning"

    class Callback(importlib.import_module(name).Callback):  # type: ignore[misc]
        job: Optional[Job] = None
        steps = 0

        def on_train_start(self, trainer: Any, module: Any) -> None:
            if len(trainer.optimizers) != 1:
                raise UsageError(f"the training has {len(trainer.optimizers)} optimizers: only a training with one optimizer can be moved")
            schedulers = [each.scheduler for each in trainer.lr_scheduler_configs]
            self.job = attach(module, trainer.optimizers[0], getattr(trainer.precision_plugin, "scaler", None))
            for number, scheduler in enumerate(schedulers):
                self.job.register(f"scheduler{number}", scheduler.state_dict, scheduler.load_state_dict)
            self.job.register("loops", trainer.fit_loop.state_dict, trainer.fit_loop.load_state_dict)
            self.job.start()
            self.steps = trainer.global_step

        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            if self.job is not None and trainer.global_step != self.steps:
                self.steps = trainer.global_step
                self.job.barrier()

    callback = Callback()
    return callback, CountedLoader(loader, lambda: callback.job)
