# SPDX-License-Identifier: Apache-2.0
"""The package with torch: names, state, data, wrong uses. Runs with the Python of `tools/torch find`; skipped without."""
import os
import pathlib
import random
import subprocess
import sys
import unittest
import unittest.mock
import warnings

try:
    import torch
except ImportError:
    found = subprocess.run([pathlib.Path(__file__).resolve().parents[4] / "tools/torch", "find"], capture_output=True, text=True)
    if found.returncode == 0:
        os.execv(found.stdout.strip(), [found.stdout.strip(), *sys.argv])
    print(f"skipped: {found.stderr.strip()}")
    sys.exit(0)

import gpumigrate
import gpumigrate._job
from fake_session import FakeSession, JobTest


class Memory:
    """Tensors of more than one element are device memory."""

    def holds(self, tensor):
        return tensor.numel() > 1

    def place(self, tensor):
        return tensor.clone()

    def pointer(self, tensor):
        return tensor.data_ptr()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)  # has a counter, which is a tensor with one element
        self.last = torch.nn.Linear(4, 4)
        self.last.weight = self.first.weight
        self.register_buffer("table", torch.zeros(2, 3), persistent=False)
        self.extra = 0

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


class TorchTest(JobTest):
    def begin(self, arrives=None, optimizer="AdamW", model=None, **settings):
        self.new_process(arrives)
        self.model = Model() if model is None else model
        self.optimizer = getattr(torch.optim, optimizer)(self.model.parameters(), lr=0.1, **settings)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
        self.job = gpumigrate.attach(self.model, self.optimizer, self.scaler, self.scheduler, memory=Memory())
        return self.job

    def step(self):
        self.model.extra += 1
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(5, 4)).square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        return loss.item()

    def copy_memory_from(self, tensors):
        """Fills the tensors' memory, as the mover does."""
        for name, tensor in self.tensors().items():
            tensor.detach().copy_(tensors[name])

    def tensors(self):
        state = gpumigrate._torch.TorchState(self.model, self.optimizer, Memory())
        return state.named()


class Names(TorchTest):
    def test_tensors_have_their_program_names_and_tied_weights_have_one_name(self):
        self.begin()
        names = self.job._session.tensors
        self.assertEqual({name for name in names if name.startswith("model.")},
                         {"model.first.weight", "model.first.bias", "model.norm.weight", "model.norm.bias", "model.last.bias",
                          "model.norm.running_mean", "model.norm.running_var", "model.table"})
        self.assertEqual(self.model.last.weight.data_ptr(), self.model.first.weight.data_ptr())
        for name in ("first.weight", "norm.bias"):
            for key in ("exp_avg", "exp_avg_sq"):
                self.assertIn(f"optim.{name}.{key}", names)
        self.assertEqual(names["model.table"][1:], (24, 11, (2, 3), 1))
        self.assertEqual(names["optim.first.weight.exp_avg"][4], 2)
        self.assertEqual(names["model.first.weight"][0], self.model.first.weight.data_ptr())

    def test_named_tensors_are_placed_in_movable_memory(self):
        model = Model()
        before = {name: tensor.data_ptr() for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        self.begin(model=model)
        same = [name for name, tensor in (*model.named_parameters(), *model.named_buffers())
                if tensor.data_ptr() == before[name]]
        self.assertEqual(same, ["norm.num_batches_tracked"])

    def test_views_of_one_tensor_stay_views_of_one_tensor(self):
        model = Model()
        model.last.bias.data = model.first.bias.data.view(4)
        self.begin(model=model)
        self.assertEqual(model.last.bias.data_ptr(), model.first.bias.data_ptr())
        self.assertNotIn("model.last.bias", self.job._session.tensors)

    def test_memory_in_another_order_has_another_shape(self):
        state = gpumigrate._torch.TorchState(None, None, Memory())
        image = torch.zeros(2, 3, 4, 5)
        self.assertEqual(state.layout("a", image).shape, (2, 3, 4, 5))
        self.assertEqual(state.layout("a", image.to(memory_format=torch.channels_last)).shape, (2, 4, 5, 3))
        self.assertEqual(state.layout("a", torch.zeros(3, dtype=torch.complex64)).nbytes, 24)
        with self.assertRaisesRegex(gpumigrate.UsageError, "'a' is not contiguous"):
            state.layout("a", image[:, :, :, ::2])
        with self.assertRaisesRegex(gpumigrate.UsageError, "'a': tensors of torch.float8_e8m0fnu cannot be named"):
            state.layout("a", torch.zeros(3).to(torch.float8_e8m0fnu))

    def test_parameters_without_a_model_are_named_by_their_group(self):
        self.new_process()
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        job = gpumigrate.attach(optimizer=optimizer, memory=Memory())
        self.assertEqual(set(job._session.tensors), {"param.group0.0", "optim.group0.0.momentum_buffer"})

    def test_outside_gpumigrate_nothing_changes(self):
        self.new_process()
        del os.environ["CKPT_SOCKET"]
        model = Model()
        before = model.first.weight.data_ptr()
        optimizer = torch.optim.AdamW(model.parameters())
        gpumigrate.attach(model, optimizer)
        self.assertEqual((model.first.weight.data_ptr(), len(optimizer.state)), (before, 0))


class Pool(unittest.TestCase):
    """Torch's own allocator is for a GPU: here its calls are looked at."""

    def test_only_placed_tensors_are_in_the_pool(self):
        calls = []
        memory = gpumigrate._memory.PoolMemory(unittest.mock.Mock())
        session = memory._session
        with unittest.mock.patch.object(torch.cuda, "MemPool", side_effect=lambda made: calls.append(made) or "pool"), \
                unittest.mock.patch.object(torch.cuda, "use_mem_pool") as use, \
                unittest.mock.patch.object(torch.cuda.memory, "CUDAPluggableAllocator") as allocator, \
                unittest.mock.patch.object(torch.cuda, "synchronize", side_effect=lambda: calls.append("synchronized")), \
                unittest.mock.patch.object(gpumigrate._memory, "Hooks") as hooks:
            hooks.return_value.end.side_effect = lambda: calls.append("ended")
            use.side_effect = lambda pool: unittest.mock.MagicMock(__enter__=lambda _: calls.append(f"in {pool}"),
                                                                   __exit__=lambda *_: calls.append("out"))
            for value in (3.0, 4.0):
                self.assertEqual(memory.place(torch.full((2,), value)).tolist(), [value] * 2)
            session.before_its_end()
        allocator.assert_called_once_with(hooks.return_value.path, "gpumigrate_alloc", "gpumigrate_free")
        self.assertEqual(calls, [allocator.return_value.allocator.return_value, "in pool", "out", "in pool", "out",
                                 "synchronized", "ended"])

    def test_cpu_memory_is_host_state(self):
        memory = gpumigrate._memory.PoolMemory(None)
        self.assertFalse(memory.holds(torch.zeros(2)))
        self.assertTrue(memory.holds(unittest.mock.Mock(device=torch.device("cuda"))))


class Moving(TorchTest):
    def run_moved(self, stop, steps=7, **settings):
        """Losses, with a move after so many steps (0: none)."""
        torch.manual_seed(5)
        job = self.begin(**settings)
        job.start()
        losses = []
        for number in range(1, steps + 1):
            losses.append(self.step())
            if number == stop:
                saved, memory = self.saved_by(job), self.tensors()
                torch.manual_seed(99)
                job = self.begin(saved, **settings)
                self.copy_memory_from(memory)
                job.start()
        return losses, self.model.extra, self.model.norm.num_batches_tracked.item(), self.scheduler.get_last_lr()

    def test_a_moved_training_continues_bit_for_bit(self):
        for settings in ({}, {"amsgrad": True}, {"optimizer": "SGD", "momentum": 0.9}, {"optimizer": "SGD"},
                         {"optimizer": "Adagrad"}):
            expected = self.run_moved(0, **settings)
            for stop in (1, 4, 6):
                self.assertEqual(self.run_moved(stop, **settings), expected, (settings, stop))

    def test_state_created_early_trains_like_state_created_late(self):
        for optimizer, settings in (("AdamW", {}), ("Adam", {"amsgrad": True}), ("SGD", {"momentum": 0.9, "nesterov": True})):
            losses = []
            for early in (False, True):
                torch.manual_seed(3)
                self.model = Model()
                self.optimizer = getattr(torch.optim, optimizer)(self.model.parameters(), lr=0.1, **settings)
                self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
                self.scaler = torch.amp.GradScaler("cpu", enabled=False)
                if early:
                    gpumigrate._torch.make_state(self.optimizer)
                losses.append([self.step() for _ in range(5)])
            self.assertEqual(losses[0], losses[1])
            for parameter in self.model.parameters():
                self.assertEqual(set(self.optimizer.state[parameter]) - {"step"},
                                 {"momentum_buffer"} if optimizer == "SGD" else
                                 {"exp_avg", "exp_avg_sq"} | ({"max_exp_avg_sq"} if settings else set()))

    def test_host_state_that_the_standby_keeps_elsewhere_is_refused(self):
        saved = self.saved_by_fresh()
        self.begin(saved)
        state = gpumigrate._torch.TorchState(self.model, self.optimizer, Memory())
        self.model.norm.num_batches_tracked = torch.zeros(2)
        arrived = state.save()
        self.model.norm.num_batches_tracked = torch.tensor(0)
        with self.assertRaisesRegex(gpumigrate.Mismatch, "num_batches_tracked' is not in device memory here"):
            state.restore(arrived)

    def saved_by_fresh(self):
        self.begin().start()
        return self.saved_by(self.job)


class Noisy(torch.utils.data.Dataset):
    """Changes its items at random, as an augmentation does."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index + random.random() + torch.rand(1).item()


class Data(JobTest):
    def batches(self, arrives, stop, workers=0, data=None):
        self.new_process(arrives)
        torch.manual_seed(1 if arrives is None else 77)
        random.seed(1 if arrives is None else 77)
        loader = torch.utils.data.DataLoader(data or Noisy(), batch_size=2, shuffle=True, num_workers=workers,
                                             multiprocessing_context="fork" if workers else None)
        job = gpumigrate.attach(loader=loader)
        done = []
        for epoch in job.epochs(2):
            for batch in job.steps():
                done.append((epoch, batch.tolist(), torch.rand(1).item()))
                if len(done) == stop:
                    FakeSession.asked = True
                elif job._session.saved:
                    return done[:stop], job._session.saved
        return done, job._session.saved

    def test_the_sampler_is_advanced_to_the_next_batch(self):
        everything, _ = self.batches(None, 0)
        for stop in (1, 4, 5, 8, 11):
            done, saved = self.batches(None, stop)
            later, _ = self.batches(saved, 0)
            self.assertEqual(done + later, everything, stop)

    def test_loader_with_workers_continues_after_a_move(self):
        numbers = list(range(12))
        everything, _ = self.batches(None, 0, 2, numbers)
        done, saved = self.batches(None, 4, 2, numbers)
        later, _ = self.batches(saved, 0, 2, numbers)
        self.assertEqual(done + later, everything)

    def test_completed_batches_are_not_loaded_again(self):
        _, saved = self.batches(None, 5)
        loaded = []

        class Watched(Noisy):
            def __getitem__(self, index):
                loaded.append(index)
                return super().__getitem__(index)
        self.batches(saved, 0, data=Watched())
        self.assertEqual(len(loaded), 2 + 12)


class WrongUses(TorchTest):
    def refused(self, change, pattern, steps=0):
        self.begin()
        self.job.start()
        for _ in range(steps):
            self.step()
            self.job.barrier()
        change()
        with self.assertRaisesRegex(gpumigrate.StateChanged, pattern):
            self.job.barrier()

    def test_freed_memory_is_refused(self):
        self.refused(lambda: self.model.first.weight.untyped_storage().resize_(0), "'model.first.weight' was freed")

    def test_emptied_tensor_is_refused(self):
        def empty():
            self.model.table = torch.zeros(0)
        self.refused(empty, "'model.table' was freed or moved")

    def test_renamed_tensor_is_refused(self):
        def rename():
            self.model.other = self.model.norm
            del self.model.norm
        self.refused(rename, "'model.norm.weight' was renamed or removed")

    def test_reshaped_memory_is_refused(self):
        def reshape():
            self.model.table = torch.zeros(3, 2)
        self.refused(reshape, r"'model.table' was named as f4\[2, 3\] and is f4\[3, 2\] now")

    def test_replaced_memory_is_refused(self):
        def replace():
            self.model.first.bias.data = torch.zeros(4)
        self.refused(replace, "'model.first.bias' lies in other memory")

    def test_state_created_after_attach_is_refused(self):
        self.begin(optimizer="RMSprop")
        self.job.start()
        self.step()
        with self.assertRaisesRegex(gpumigrate.StateChanged, "'optim.first.bias.square_avg' was created after attach"):
            self.job.barrier()

    def test_later_changes_refuse_only_the_move(self):
        self.begin()
        self.job.start()
        for _ in range(3):
            self.step()
            self.job.barrier()
        self.model.table = torch.zeros(3, 2)
        with self.assertWarnsRegex(gpumigrate.MoveWarning, "'model.table'"):
            self.saved_by(self.job)


if __name__ == "__main__":
    warnings.simplefilter("always")
    unittest.main()
