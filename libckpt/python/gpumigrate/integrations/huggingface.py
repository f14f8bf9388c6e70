# SPDX-License-Identifier: Apache-2.0
"""Trainer of transformers 5. A program calls `huggingface.prepare(trainer)` before `trainer.train()`.

The barrier is before the batches of a step are read. So Trainer's work after a step (logs, evaluations, saves) is done
where the step was. A moved Trainer runs the epochs that are left, and the rest of the batches of the first one."""
from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Iterator, Optional

from .. import attach
from .._errors import UsageError
from .._job import Job
from .._memory import Memory
from ._loops import CountedLoader

# Counts that Trainer stores outside its TrainerState.
COUNTS = ("_total_loss_scalar", "_globalstep_last_logged", "current_flos")


def prepare(trainer: Any, *, memory: Optional[Memory] = None) -> None:
    """Adds a callback that names all state, and counts the batches of the training's loader. `memory` is that of attach()."""
    transformers = importlib.import_module("transformers")
    if not hasattr(trainer, "_run_epoch"):
        raise UsageError(f"Trainer of transformers {transformers.__version__} has no _run_epoch: this is for version 5 "
                         "(tested with 5.12)")
    loop = Loop(trainer)

    class Callback(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None,
                           lr_scheduler: Any = None, **_: Any) -> None:
            scaler = getattr(getattr(trainer, "accelerator", None), "scaler", None)
            job = attach(model, getattr(optimizer, "optimizer", optimizer), scaler, lr_scheduler, memory=memory)
            loop.begin(job, state)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            loop.correct_epoch(state)

    trainer.add_callback(Callback())
    # This callback is inserted first, so that other callbacks begin their work (trackers open their runs)
    # only once the job is about to work here.
    callbacks = trainer.callback_handler.callbacks
    callbacks.insert(0, callbacks.pop())
    make_loader, trainer_epoch = trainer.get_train_dataloader, trainer._run_epoch
    trainer.get_train_dataloader = lambda: SteppedLoader(make_loader(), loop)
    trainer._run_epoch = lambda **given: loop.run_epoch(trainer_epoch, given)


class Loop:
    """Trainer's loop, and the state that it keeps beside its TrainerState."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.job: Optional[Job] = None
        self.accumulate = trainer.args.gradient_accumulation_steps
        self.worked = False  # whether the job has done work in this process
        self._epoch, self._batches = 0, 0  # the current epoch and its batches, whether completed or not

    def begin(self, job: Job, state: Any) -> None:
        self.job = job

        def save() -> dict[str, Any]:
            return {"state": dataclasses.asdict(state), "counts": {name: getattr(self.trainer, name) for name in COUNTS},
                    "loss": self.trainer._tr_loss.item(), "callbacks": [own.state()["attributes"] for own in self._stateful()]}

        def restore(arrived: dict[str, Any]) -> None:
            vars(state).update(arrived["state"])
            vars(self.trainer).update(arrived["counts"])
            self.trainer._tr_loss.fill_(arrived["loss"])
            for own, attributes in zip(self._stateful(), arrived["callbacks"]):
                vars(own).update(attributes)

        job.register("trainer", save, restore)
        job.start()

    def run_epoch(self, run: Any, given: dict[str, Any]) -> None:
        """Runs Trainer's own loop for the rest of the epoch."""
        job = self.job
        if job is None or not job.active:
            run(**given)
            return
        position = job._position
        if given["epoch"] < position.epoch:
            return  # the step was completed before the move
        position.begin_epoch(given["epoch"])
        self._epoch, self._batches = given["epoch"], given["steps_in_epoch"]
        left = given["steps_in_epoch"] - position.done_before
        given = given | {"steps_in_epoch": left, "num_update_steps_per_epoch": max(1, -(-left // self.accumulate))}
        if job.resumed:
            given["resume_from_checkpoint"] = None  # the source already skipped what this option skips
        run(**given)

    def correct_epoch(self, state: Any) -> None:
        """Sets the epoch's fraction. Trainer takes the rest of an epoch for the whole of it."""
        if self.job is not None and self.job.active:
            state.epoch = self._epoch + self.job._position.batch / self._batches

    def _stateful(self) -> list[Any]:
        return [own for own in self.trainer.callback_handler.callbacks if hasattr(own, "state")]


class SteppedLoader(CountedLoader):
    """The training's loader, with a barrier before the batches of the next step."""

    def __init__(self, loader: Any, loop: Loop) -> None:
        super().__init__(loader, lambda: loop.job)
        self._loop = loop

    def _batches(self, job: Job) -> Iterator[Any]:
        if self._loop.worked:
            job.barrier()  # a barrier between two epochs
        for batch in job._position.batches(self._loader):
            self._loop.worked = True
            yield batch
            if job._position.batch % self._loop.accumulate == 0:
                job.barrier()
