# SPDX-License-Identifier: Apache-2.0
"""A session without libckpt: what a job names and saves stays here, and a standby gets it from here."""
import os
import unittest
import unittest.mock

import gpumigrate
import gpumigrate._job


class FakeSession:
    arrives = None  # the bytes that a standby receives; None: a fresh instance
    asked = False  # whether a pause is requested at the next barrier

    def __init__(self):
        self.standby = FakeSession.arrives is not None
        self.failure = None
        self.tensors, self.freed, self.saved = {}, [], None
        self.ended = False
        self.allocated = 0

    def alloc(self, nbytes):
        self.allocated += 1
        return self.allocated << 32

    def free(self, pointer):
        self.freed.append(pointer)

    def tensor(self, name, pointer, nbytes, dtype, shape, kind):
        self.tensors[name] = (pointer, nbytes, dtype, tuple(shape), kind)

    def host_state(self, name, save, load_back):
        self.save, self.load_back = save, load_back

    def ready(self):
        if self.standby:
            self.load_back(FakeSession.arrives)
        return self.standby

    def barrier(self):
        if FakeSession.asked:
            FakeSession.asked = False
            self.saved = self.save()

    def shutdown(self):
        self.ended = True


class JobTest(unittest.TestCase):
    """Each test is a process: with a job that gpumigrate has started, and one attach()."""

    socket = "/nonexistent/keeper.sock"

    def setUp(self):
        environment = {"CKPT_SOCKET": self.socket} if self.socket else {}
        for patch in (unittest.mock.patch.object(gpumigrate._job, "Session", FakeSession),
                      unittest.mock.patch.dict(os.environ, environment),
                      unittest.mock.patch.object(gpumigrate._job.atexit, "register")):
            patch.start()
            self.addCleanup(patch.stop)
        if not self.socket:
            os.environ.pop("CKPT_SOCKET", None)
        self.new_process()

    def new_process(self, arrives=None):
        FakeSession.arrives, FakeSession.asked = arrives, False
        gpumigrate._attached = None

    def saved_by(self, job):
        """The state that the job saves at its next barrier."""
        FakeSession.asked = True
        job.barrier()
        return job._session.saved
