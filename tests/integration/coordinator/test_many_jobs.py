# SPDX-License-Identifier: Apache-2.0
"""Nothing grows: 200 jobs one after the other, and thousands of operations on two that live on. Long;
test_leftovers.py is the short edition."""
import itertools
import os
import time
import unittest

from cluster import ClusterTest
from usage import HOTSET, SETTINGS, Api, Usage, jobs_one_after_the_other

JOBS = int(os.environ.get("GPUMIGRATE_MANY_JOBS", "200"))
OPERATIONS = int(os.environ.get("GPUMIGRATE_MANY_OPERATIONS", "10000"))
OPERATIONS_LIMIT_S = 600  # the time limit; the operations done within it are reported


class ManyJobs(ClusterTest):
    coordinator_settings = SETTINGS

    def test_daemons_use_no_more_memory_after_200_jobs_than_after_20(self):
        usage = jobs_one_after_the_other(self, self.cluster, JOBS, warm=max(2, JOBS // 10))
        usage.check_memory()


class ManyOperations(ClusterTest):
    coordinator_settings = SETTINGS
    gpus = 2

    def setUp(self):
        super().setUp()
        for name in ("here", "there"):
            self.cluster.start(name, "hotset", *HOTSET)
            self.cluster.wait_for_line(name, r"^step 2\b")
        self.api = Api(self.cluster)
        self.done = {}

    def operation(self, what, path, body=None, wanted=(200,)):
        status, answer = self.api.call(path, body)
        self.assertIn(status, wanted, f"{what}: {answer}")
        self.done[what] = self.done.get(what, 0) + 1
        return answer

    def snapshot(self, job):
        task = self.operation("snapshot", f"/v1/jobs/{job}/snapshot", {}, (202,))
        while task["open"]:
            task = self.api.call(f"/v1/tasks/{task['id']}?timeout_ms=30000")[1]
        self.assertEqual(task["exit_code"], 0, task)

    def move(self, job, place):
        migration = self.operation("migrate", f"/v1/jobs/{job}/migrate", {"to": place}, (202,))
        while migration["open"]:
            migration = self.api.call(f"/v1/migrations/{migration['id']}/watch?since={migration['revision']}&timeout_ms=30000")[1]
        self.assertEqual(migration["result"], "done", migration)
        return migration["id"]

    def cheap_ones(self, migration):
        closed = f"/v1/migrations/{migration}"
        self.operation("set, refused", f"{closed}/set", {"max_downtime_ms": 10}, (409,))
        self.operation("abort, refused", f"{closed}/abort", {}, (409,))
        for job in ("here", "there"):
            self.operation("describe", f"/v1/jobs/{job}")
            self.operation("migrate --dry-run", f"/v1/jobs/{job}/migrate", {"dry_run": True})
        self.operation("run --dry-run", "/v1/jobs", {"argv": ["x"], "cwd": "/tmp", "dry_run": True})
        self.operation("cordon", "/v1/cordon", {"place": "node-a:1", "reason": "test"})
        self.operation("uncordon", "/v1/uncordon", {"place": "node-a:1"})
        for path in ("/v1/jobs?limit=100", "/v1/images?limit=100", "/v1/migrations?limit=100",
                     "/v1/events?limit=100", "/v1/gpus"):
            self.operation("lists", path)

    def test_daemons_use_no_more_memory_after_10000_operations(self):
        usage = Usage(self, self.cluster)
        end = time.monotonic() + OPERATIONS_LIMIT_S
        rounds = 0
        for place in itertools.cycle(("node-b:0", "node-a:0")):
            migration = self.move("here", place)
            self.snapshot("there")
            for _ in range(7):
                self.cheap_ones(migration)
            rounds += 1
            usage.sample(remember=rounds <= 10)
            if sum(self.done.values()) >= OPERATIONS or time.monotonic() > end:
                break
        print(f"{sum(self.done.values())} operations in {rounds} rounds: {self.done}", flush=True)
        usage.check_memory()
