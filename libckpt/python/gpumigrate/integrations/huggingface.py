# SPDX-License-Identifier: Apache-2.0
"""Trainer of transformers: `huggingface.prepare(trainer)` before `trainer.train()`.

After a move Trainer counts epochs from the standby's first one; the number of steps is that of the job, and ends it."""
from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Optional

from .. import attach
from .._job import Job
from ._loops import CountedLoader


def prepare(trainer: Any) -> None:
    """Adds a callback that names all and has the barrier, and counts the batches of the training's loader."""
    class Callback(importlib.import_module("transformers").TrainerCallback):  # type: ignore[misc]
        job: Optional[Job] = None

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None,
                           lr_scheduler: Any = None, **_: Any) -> None:
            scaler = getattr(getattr(trainer, "accelerator", None), "scaler", None)
            self.job = attach(model, getattr(optimizer, "optimizer", optimizer), scaler, lr_scheduler)

            def set_state(arrived: dict[str, Any]) -> None:
                vars(state).update(arrived)

            self.job.register("trainer", lambda: dataclasses.asdict(state), set_state)
            self.job.start()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.job is not None:
                self.job.barrier()

    callback = Callback()
    make_loader = trainer.get_train_dataloader
    trainer.get_train_dataloader = lambda: CountedLoader(make_loader(), lambda: callback.job)
    trainer.add_callback(callback)
