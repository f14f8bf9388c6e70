# SPDX-License-Identifier: Apache-2.0
"""Callbacks of frameworks, over stand-ins that call back in the frameworks' order, moved at each step. Trainer and Accelerate
themselves: tests/integration/moves/test_python_torch.py. Lightning has not been run."""
import dataclasses
import random
import sys
import types
import unittest
import unittest.mock

import gpumigrate
from fake_session import FakeSession, JobTest
from gpumigrate.integrations import accelerate, huggingface, lightning


class Counter:
    """A scheduler, a scaler, a loop: a number with a state."""

    def __init__(self):
        self.number = 0

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


class Shuffled:
    name = "shuffled"

    def __len__(self):
        return 4

    def __iter__(self):
        return iter(random.sample(range(100), 4))


class Moved(BaseException):
    """The process has ended at the barrier."""


class FrameworkTest(JobTest):
    """`train(done)` trains and appends what each step had. A move at any step must not change that."""

    def setUp(self):
        super().setUp()
        module = types.ModuleType("gpumigrate._torch")
        module.attach = self.attached
        for patch in (unittest.mock.patch.dict(sys.modules, {"gpumigrate._torch": module}),
                      unittest.mock.patch.object(gpumigrate, "_torch", module, create=True),
                      unittest.mock.patch.object(FakeSession, "barrier", self.barrier_of)):
            patch.start()
            self.addCleanup(patch.stop)
        self.stop = 0

    def attached(self, job, model, optimizer, scaler, scheduler, memory):
        self.parts = (model, optimizer, scaler, scheduler)
        for name, part in (("scaler", scaler), ("scheduler", scheduler)):
            if part is not None:
                job.register(name, part.state_dict, part.load_state_dict)

    def barrier_of(self):
        self.barriers += 1
        if self.barriers == self.stop:
            self.saved = gpumigrate._attached._session.save()
            raise Moved

    def run_once(self, arrives, stop):
        self.new_process(arrives)
        self.barriers, self.stop = 0, stop
        done = []
        try:
            self.train(done)
        except Moved:
            pass
        return done

    def check_each_step(self, steps):
        random.seed(1)
        everything = self.run_once(None, 0)
        self.assertEqual(len(everything), steps)
        for stop in range(1, steps):
            random.seed(1)
            done = self.run_once(None, stop)
            random.seed(9)
            with unittest.mock.patch("sys.stderr"):
                self.assertEqual(done + self.run_once(self.saved, 0), everything, stop)


@dataclasses.dataclass
class TrainerState:
    epoch: float = 0
    global_step: int = 0
    max_steps: int = 0
    history: list = dataclasses.field(default_factory=list)


class Loss:
    def __init__(self):
        self.value = 0.0

    def item(self):
        return self.value

    def fill_(self, value):
        self.value = value


class Patience:
    """A callback with a state, as EarlyStoppingCallback is one."""
    count = 0

    def state(self):
        return {"attributes": {"count": self.count}}

    def on_train_begin(self, *_, **__):
        pass

    def on_step_end(self, *_, **__):
        self.count += 1


class HuggingFace(FrameworkTest):
    class Trainer:
        def __init__(self):
            self.patience, self.accelerator = Patience(), types.SimpleNamespace(scaler=Counter())
            self.callback_handler = types.SimpleNamespace(callbacks=[self.patience])
            self.args = types.SimpleNamespace(gradient_accumulation_steps=1)

        def add_callback(self, callback):
            self.callback_handler.callbacks.append(callback)

        def get_train_dataloader(self):
            return Shuffled()

        def train(self, done):
            self.loader, self.state, self.scheduler, self.done = self.get_train_dataloader(), TrainerState(max_steps=10), Counter(), done
            self._tr_loss, self._total_loss_scalar, self._globalstep_last_logged, self.current_flos = Loss(), 0.0, 0, 0
            wrapped = types.SimpleNamespace(optimizer="optimizer")
            for callback in self.callback_handler.callbacks:
                callback.on_train_begin(None, self.state, None, model="model", optimizer=wrapped, lr_scheduler=self.scheduler,
                                        train_dataloader=self.loader)
            for epoch in range(3):
                self._run_epoch(epoch=epoch, steps_in_epoch=4, num_update_steps_per_epoch=4, resume_from_checkpoint=None)

        def _run_epoch(self, epoch, steps_in_epoch, num_update_steps_per_epoch, resume_from_checkpoint):
            batches, state = iter(self.loader), self.state
            for step in range(num_update_steps_per_epoch):
                if state.global_step >= state.max_steps:
                    return
                batch = next(batches)
                self._tr_loss.value += batch
                self.current_flos += 1
                self.scheduler.number += 2
                self.accelerator.scaler.number += 3
                state.history.append(batch)
                state.global_step += 1
                state.epoch = epoch + (step + 1) / steps_in_epoch
                for callback in self.callback_handler.callbacks:
                    callback.on_step_end(None, state, None)
                self.done.append((dataclasses.astuple(state), self.scheduler.number, self.accelerator.scaler.number, random.random(),
                                  self._tr_loss.value, self.current_flos, self.patience.count, self.loader.name, len(self.loader)))

    def train(self, done):
        trainer = self.Trainer()
        transformers = types.SimpleNamespace(TrainerCallback=object)
        with unittest.mock.patch.dict(sys.modules, transformers=transformers):
            huggingface.prepare(trainer)
        trainer.train(done)

    def test_trainer_continues_after_a_move_at_each_step(self):
        self.check_each_step(10)
        self.assertEqual(self.parts[:2], ("model", "optimizer"))

    def test_trainer_of_an_unsupported_version_is_refused(self):
        transformers = types.SimpleNamespace(TrainerCallback=object, __version__="4.1")
        with unittest.mock.patch.dict(sys.modules, transformers=transformers):
            with self.assertRaisesRegex(gpumigrate.UsageError, "4.1 has no _run_epoch"):
                huggingface.prepare(types.SimpleNamespace())


class Lightning(FrameworkTest):
    optimizers = ("optimizer",)
    accumulate = 1

    def train(self, done):
        modules = {"lightning": types.ModuleType("lightning"), "lightning.pytorch": types.SimpleNamespace(Callback=object)}
        with unittest.mock.patch.dict(sys.modules, modules), \
                unittest.mock.patch("importlib.util.find_spec", return_value=True):
            callback, loader = lightning.prepare(Shuffled())
        loop, scheduler, scaler = Counter(), Counter(), Counter()
        trainer = types.SimpleNamespace(
            optimizers=self.optimizers, lr_scheduler_configs=[types.SimpleNamespace(scheduler=scheduler)],
            precision_plugin=types.SimpleNamespace(scaler=scaler), fit_loop=loop, global_step=0)
        batches = iter(loader)  # created before the callback is called, as Lightning does
        callback.on_train_start(trainer, "module")
        while True:
            for batch in batches:
                loop.number += 1
                trainer.global_step = loop.number // self.accumulate
                scheduler.number += 2
                scaler.number += 3
                done.append((loop.number, scheduler.number, scaler.number, batch, random.random()))
                callback.on_train_batch_end(trainer, "module", None, batch, 0)
            if loop.number >= 12:
                return
            batches = iter(loader)

    def test_fit_continues_after_a_move_at_each_step(self):
        self.check_each_step(12)

    def test_barrier_follows_each_step_of_the_optimizer(self):
        self.accumulate = 2
        self.run_once(None, 0)
        self.assertEqual(self.barriers, 6)

    def test_several_optimizers_are_refused(self):
        self.optimizers = ("a", "b")
        with self.assertRaisesRegex(gpumigrate.UsageError, "has 2 optimizers"):
            self.run_once(None, 0)

    def test_a_loader_without_its_callback_is_refused(self):
        with unittest.mock.patch.dict(sys.modules, {"lightning.pytorch": types.SimpleNamespace(Callback=object)}), \
                unittest.mock.patch("importlib.util.find_spec", return_value=True):
            _, loader = lightning.prepare(Shuffled())
        with self.assertRaisesRegex(gpumigrate.UsageError, "pass the callback to the trainer"):
            next(iter(loader))


class AcceleratedLoader:
    """As Accelerate wraps one of torch: it has the functions of a position and none. Its order is the pass's."""

    def __init__(self):
        self.base_dataloader, self.iteration = object(), 0

    def state_dict(self):
        raise AttributeError("dl_state_dict")

    load_state_dict = state_dict

    def set_epoch(self, epoch):
        self.iteration = epoch

    def __iter__(self):
        yield from range(10 * self.iteration, 10 * self.iteration + 4)
        self.iteration += 1


class Accelerate(FrameworkTest):
    loader = Shuffled

    def train(self, done):
        scaler, scheduler = Counter(), Counter()
        accelerator = types.SimpleNamespace(num_processes=1, scaler=scaler, unwrap_model=lambda model: model.strip("()"))
        job = accelerate.attach(accelerator, "(model)", types.SimpleNamespace(optimizer="optimizer"),
                                types.SimpleNamespace(scheduler=scheduler), self.loader())
        for epoch in job.epochs(2):
            for batch in job.steps():
                scaler.number += 1
                scheduler.number += 2
                done.append((epoch, batch, scaler.number, scheduler.number, random.random()))

    def test_parts_are_unwrapped(self):
        self.check_each_step(8)
        self.assertEqual(self.parts[:2], ("model", "optimizer"))

    def test_order_of_the_batches_is_that_of_the_pass(self):
        self.loader = AcceleratedLoader
        self.check_each_step(8)

    def test_several_processes_are_refused(self):
        with self.assertRaisesRegex(gpumigrate.UsageError, "has 2 processes"):
            accelerate.attach(types.SimpleNamespace(num_processes=2), None)


class Outside(JobTest):
    socket = ""

    def test_a_loader_is_unchanged_outside_gpumigrate(self):
        with unittest.mock.patch.dict(sys.modules, transformers=types.SimpleNamespace(TrainerCallback=object)):
            trainer = HuggingFace.Trainer()
            huggingface.prepare(trainer)
        with unittest.mock.patch("gpumigrate.integrations.huggingface.attach", side_effect=lambda *_, **__: gpumigrate.Job()):
            done = []
            trainer.train(done)
        self.assertEqual([state[1] for state, *_ in done], list(range(1, 11)))


if __name__ == "__main__":
    unittest.main()
