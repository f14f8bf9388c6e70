# SPDX-License-Identifier: Apache-2.0
"""Jobs of the Python package: what they name, when they start, how they go on, and each wrong use."""
import io
import os
import random
import subprocess
import sys
import unittest
import unittest.mock
import warnings

import gpumigrate
from fake_session import FakeSession, JobTest

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("torch", "numpy"):
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
import gpumigrate
job = gpumigrate.attach()
job.register("state", dict, dict)
job.on_start(lambda: print("started"))
print([(epoch, batch) for epoch in job.epochs(2) for batch in job.steps("ab")], job.active)
"""


class Array:
    def __init__(self, pointer=4096, shape=(4, 2), typestr="<f4", strides=None):
        self.pointer, self.shape, self.typestr, self.strides = pointer, shape, typestr, strides

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.typestr, "data": (self.pointer, False), "strides": self.strides,
                "version": 3}


class OutsideGpumigrate(JobTest):
    socket = ""

    def test_neither_torch_nor_libckpt_is_needed(self):
        environment = {name: value for name, value in os.environ.items() if name != "CKPT_SOCKET"}
        environment["GPUMIGRATE_LIBCKPT"] = "/nonexistent/libckpt.so.1"
        done = subprocess.run([sys.executable, "-c", WITHOUT], env=environment, capture_output=True, text=True)
        self.assertEqual(done.stdout, "started\n[(0, 'a'), (0, 'b'), (1, 'a'), (1, 'b')] False\n", done.stderr)
        self.assertEqual(done.stderr, "")

    def test_package_is_inactive_in_transparent_mode(self):
        for preload, active in (("/usr/lib/libother.so", True), ("/usr/lib/libother.so:/opt/libckpt_shim.so", False)):
            self.new_process()
            with unittest.mock.patch.dict(os.environ, CKPT_SOCKET="/nonexistent/keeper.sock", LD_PRELOAD=preload):
                self.assertEqual(gpumigrate.attach().active, active)

    def test_loops_without_epochs_may_be_repeated(self):
        job = gpumigrate.attach()
        self.assertEqual([list(job.steps([1, 2])) for _ in range(2)], [[1, 2], [1, 2]])


class Naming(JobTest):
    def test_buffer_accepts_arrays_pointers_and_allocations(self):
        job = gpumigrate.attach()
        job.buffer("array", Array(), kind="parameter")
        job.buffer("pointer", 1 << 20, 100)
        made = job.alloc(64)
        job.buffer("made", made)
        self.assertEqual(job._session.tensors, {"array": (4096, 32, 11, (4, 2), 1), "pointer": (1 << 20, 100, 1, (100,), 3),
                                                "made": (made.pointer, 64, 1, (64,), 3)})

    def test_unnamed_memory_can_be_freed(self):
        job = gpumigrate.attach()
        made = job.alloc(64)
        job.free(made)
        self.assertEqual(job._session.freed, [made.pointer])

    def test_warm_up_runs_only_in_standbys(self):
        ran = []
        gpumigrate.attach().warmup(lambda: ran.append("fresh"))
        self.new_process(b"")
        gpumigrate.attach().warmup(lambda: ran.append("standby"))
        self.assertEqual(ran, ["standby"])


class Moving(JobTest):
    def begin(self, arrives=None, totals=None):
        self.new_process(arrives)
        job = gpumigrate.attach()
        totals = {} if totals is None else totals
        job.register("totals", lambda: totals, totals.update)
        return job, totals

    def rest(self, arrives, make_data, epochs=3):
        """The steps that a standby still does, each with the random number that it draws, and its totals."""
        job, totals = self.begin(arrives)
        done = [(epoch, batch, random.random()) for epoch in job.epochs(epochs) for batch in job.steps(make_data())]
        return done, totals

    def check_every_barrier(self, make_data):
        """A job that moves at any step ends as one that does not."""
        random.seed(3)
        all_steps, _ = self.rest(None, make_data)
        for stop in range(1, len(all_steps)):
            random.seed(3)
            job, totals = self.begin()
            done = []
            for epoch in job.epochs(3):
                for batch in job.steps(make_data()):
                    done.append((epoch, batch, random.random()))
                    totals["steps"] = len(done)
                    FakeSession.asked = len(done) == stop
                    if job._session.saved:
                        break
                if job._session.saved:
                    break
            del done[stop:]
            random.seed(99)
            with unittest.mock.patch("sys.stderr", io.StringIO()) as log:
                later, arrived = self.rest(job._session.saved, make_data)
            self.assertEqual(done + later, all_steps, stop)
            self.assertEqual(arrived, {"steps": stop})
        return log.getvalue()

    def test_sequence_continues_after_a_move_at_every_barrier(self):
        self.assertEqual(self.check_every_barrier(lambda: [5, 6, 7]), "")

    def test_a_loader_without_a_state_is_read_again_and_logged(self):
        class Shuffled:
            def __iter__(self):
                return iter(random.sample(range(100), 4))
        self.assertIn("3 batches of Shuffled were read and dropped", self.check_every_barrier(Shuffled))

    def test_a_loader_with_random_batches_continues_after_a_move(self):
        class Noisy:
            def __iter__(self):
                order = random.sample(range(100), 3)
                return (number + random.random() for number in order)
        self.check_every_barrier(Noisy)

    def test_a_loader_with_a_state_continues_from_its_state(self):
        class Stateful:
            begins = 0

            def __iter__(self):
                while self.begins < 4:
                    self.begins += 1
                    yield self.begins
                self.begins = 0

            def state_dict(self):
                return {"begins": self.begins}

            def load_state_dict(self, state):
                self.begins = state["begins"]
        self.assertEqual(self.check_every_barrier(Stateful), "")

    def test_start_functions_run_after_the_state_is_restored(self):
        job, totals = self.begin()
        totals["a"] = 1
        job.start()
        saved = self.saved_by(job)
        job, arrived = self.begin(saved)
        seen = []
        job.on_start(lambda: seen.append((job.resumed, dict(arrived))))
        job.start()
        self.assertEqual(seen, [(True, {"a": 1})])

    def test_random_generators_of_a_job_without_steps_are_restored(self):
        job, _ = self.begin()
        job.start()
        saved = self.saved_by(job)
        expected = random.random()
        job, _ = self.begin(saved)
        job.start()
        self.assertEqual(random.random(), expected)

    def test_steps_with_accumulation_have_one_barrier_per_optimizer_step(self):
        job, _ = self.begin()
        with unittest.mock.patch.object(job, "barrier") as barrier:
            list(job.steps(range(7), accumulate=3))
        self.assertEqual(barrier.call_count, 2)

    def test_a_standby_with_different_states_exits_immediately(self):
        job, _ = self.begin()
        job.register("here", int, int)
        job.start()
        saved = self.saved_by(job)
        for names, reason in (((), "'here' came from the source and is not registered here"),
                              (("here", "more"), "'more' is registered here and was not at the source")):
            job, _ = self.begin(saved)
            for name in names:
                job.register(name, int, lambda state: None)
            with unittest.mock.patch("sys.stderr", io.StringIO()) as log, \
                    unittest.mock.patch("os._exit", side_effect=SystemExit) as end, self.assertRaises(SystemExit):
                job.start()
            end.assert_called_once_with(1)
            self.assertEqual(log.getvalue(), f"gpumigrate: this standby cannot go on: host state {reason}\n")

    def test_output_is_in_the_log_before_the_process_ends(self):
        job, _ = self.begin()
        job.start()
        with unittest.mock.patch("sys.stdout") as out:
            self.saved_by(job)
        out.flush.assert_called()

    def test_state_that_cannot_be_saved_fails_only_the_move(self):
        job, _ = self.begin()
        job.register("open file", lambda: sys.stdin, id)
        job.start()
        with self.assertWarnsRegex(gpumigrate.MoveWarning, "a move was refused: .*TextIOWrapper"):
            self.saved_by(job)
        job.barrier()


class WrongUses(JobTest):
    def setUp(self):
        super().setUp()
        self.job = gpumigrate.attach()

    def refused(self, error, pattern):
        return self.assertRaisesRegex(error, pattern)

    def test_second_attach_is_refused(self):
        with self.refused(gpumigrate.UsageError, "has attached already"):
            gpumigrate.attach()

    def test_duplicate_names_are_refused(self):
        self.job.buffer("a", Array())
        with self.refused(gpumigrate.UsageError, "buffer 'a' is named already"):
            self.job.buffer("a", Array())
        self.job.register("b", int, int)
        with self.refused(gpumigrate.UsageError, "host state 'b' is registered already"):
            self.job.register("b", int, int)

    def test_registration_after_the_start_is_refused(self):
        self.job.start()
        for late in (lambda: self.job.buffer("a", Array()), lambda: self.job.register("a", int, int),
                     lambda: self.job.warmup(print), lambda: self.job.on_start(print)):
            with self.refused(gpumigrate.UsageError, "comes too late"):
                late()

    def test_second_pass_without_epochs_is_refused(self):
        list(self.job.steps([1]))
        with self.refused(gpumigrate.UsageError, r"second pass.*job.epochs"):
            list(self.job.steps([1]))

    def test_barrier_before_the_start_is_refused(self):
        with self.refused(gpumigrate.UsageError, r"before start\(\)"):
            self.job.barrier()

    def test_steps_without_data_are_refused(self):
        with self.refused(gpumigrate.UsageError, "has no data"):
            next(self.job.steps())

    def test_memory_of_an_unsupported_kind_is_refused(self):
        for memory, reason in ((7, "needs nbytes"), ("text", "neither a device pointer nor"),
                               (Array(typestr="<c8"), "elements of type <c8"), (Array(strides=(4, 16)), "are not contiguous")):
            with self.refused(gpumigrate.UsageError, reason):
                self.job.buffer("a", memory)
        with self.refused(gpumigrate.UsageError, "its kind is one of"):
            self.job.buffer("a", Array(), kind="weights")

    def test_free_of_named_memory_is_refused(self):
        made = self.job.alloc(64)
        self.job.buffer("made", made)
        with self.refused(gpumigrate.UsageError, "'made' lies in the memory to be freed"):
            self.job.free(made)

    def changed(self, change, pattern):
        """An error in the first steps; later the move is refused and the job runs on."""
        for steps in (0, 5):
            self.new_process()
            job, array = gpumigrate.attach(), Array()
            job.buffer("a", array)
            job.start()
            for _ in range(steps):
                job.barrier()
            change(array)
            if steps == 0:
                with self.refused(gpumigrate.StateChanged, pattern):
                    job.barrier()
            else:
                with self.assertWarnsRegex(gpumigrate.MoveWarning, pattern):
                    self.saved_by(job)

    def test_freed_memory_is_refused(self):
        self.changed(lambda array: setattr(array, "pointer", 0), "'a' was freed")

    def test_reshaped_memory_is_refused(self):
        self.changed(lambda array: setattr(array, "shape", (2, 2)), r"named as f4\[4, 2\] and is f4\[2, 2\] now")

    def test_memory_with_another_type_is_refused(self):
        self.changed(lambda array: setattr(array, "typestr", "<i4"), r"and is i4\[4, 2\] now")

    def test_replaced_memory_is_refused(self):
        self.changed(lambda array: setattr(array, "pointer", 8192), "'a' lies in other memory")

    def test_job_that_never_stepped_is_reported(self):
        with unittest.mock.patch("sys.stderr", io.StringIO()) as log:
            self.job._at_exit()
        self.assertIn("never stepped", log.getvalue())
        self.assertTrue(self.job._session is None)

    def test_a_child_process_neither_ends_nor_reports_the_job(self):
        session = self.job._session
        with unittest.mock.patch("os.getpid", return_value=0), unittest.mock.patch("sys.stderr", io.StringIO()) as log:
            self.job._at_exit()
            self.job.finish()
        self.assertEqual((session.ended, log.getvalue()), (False, ""))

    def test_a_fresh_job_that_cannot_start_reports_the_error(self):
        with unittest.mock.patch.object(FakeSession, "ready", side_effect=gpumigrate.LibraryError("no context")):
            with self.refused(gpumigrate.LibraryError, "no context"):
                self.job.start()


if __name__ == "__main__":
    warnings.simplefilter("always")
    unittest.main()
