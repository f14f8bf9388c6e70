# SPDX-License-Identifier: Apache-2.0
"""The output and events of jobs as the command shows them, and the names that it takes."""
import os
import re
import unittest

from cluster import BIN, ClusterTest
from terminal import screen_lines, typed
from waiting import eventually, eventually_equal, next_line

ARGUMENTS = ["--bytes", "16MiB", "--hot", "4%", "--step-ms", "10", "--seed", "1", "--pattern", "stride",
             "--steps", "1000000", "--print-every", "1"]
FUTURE = "2100-01-01T00:00:00Z"


class Streams(ClusterTest):
    def run_to_its_end(self, name, script):
        self.cluster.call("run", "--detach", "--name", name, "--", "/bin/sh", "-c", script)
        self.cluster.call("wait", name, exits=range(256))

    def refused(self, *arguments, contains):
        result = self.cluster.call(*arguments, exits=(5,))
        self.assertIn(contains, result.stderr)

    def test_tail_reads_the_last_lines(self):
        cluster = self.cluster
        count = 40000  # more lines than one window at the end of the log has
        self.run_to_its_end("lines", f"seq 1 {count}")
        for lines in (0, 1, 5, 20000, count - 1, count, count + 7):
            expected = "".join(f"{n}\n" for n in range(max(1, count - lines + 1), count + 1))
            self.assertEqual(cluster.call("logs", "lines", "--tail", lines).stdout, expected, lines)
        self.assertEqual(cluster.call("logs", "lines", "-f", "--tail", 2).stdout, f"{count - 1}\n{count}\n")

    def test_log_lines_have_times_and_are_selected_by_time(self):
        cluster = self.cluster
        self.run_to_its_end("words", "echo one; echo two; printf three")
        stamped = cluster.call("logs", "words", "--timestamps").stdout
        stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "
        self.assertRegex(stamped, f"^{stamp}one\n{stamp}two\n{stamp}three$")
        self.assertEqual(cluster.call("logs", "words", "--since", "1h").stdout, "one\ntwo\nthree")
        eventually_equal(lambda: cluster.call("logs", "words", "--since", FUTURE).stdout, "",
                         "what was seen is older than the future")
        cluster.call("logs", "words", "--since", "soon", exits=(64,))

    def test_a_restore_is_marked_in_the_log(self):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 3\b")
        image = cluster.json("snapshot", "job")["image"]
        cluster.call("stop", "job")
        loss = ["--accept-loss"] if "--accept-loss" in cluster.call("restore", "--help").stdout else []
        cluster.call("restore", "job", *loss, exits=(0, 3))
        marks = eventually(lambda: re.findall(r"^\[gpumigrate: .*$", cluster.log("job"), re.M),
                           "the log has a line that marks the restore")
        self.assertEqual(len(marks), 1, marks)
        self.assertRegex(marks[0], rf"^\[gpumigrate: restored from {re.escape(image)} as incarnation 2; .*\]$")

    def test_events_are_filtered_by_job_and_type(self):
        cluster = self.cluster
        self.run_to_its_end("one", "exit 0")
        self.run_to_its_end("two", "exit 3")

        def kinds(*arguments):
            lines = cluster.call("events", *arguments).stdout.splitlines()
            return [(line.split()[1], "two (" in line) for line in lines]

        self.assertEqual(set(kinds("--job", "two")) - {("job-started", True)}, {("job-ended", True)})
        self.assertEqual(kinds("--type", "job-ended"), [("job-ended", False), ("job-ended", True)])
        self.assertEqual(kinds("--job", "two", "--type", "job-ended", "--type", "job-lost", "--since", "1h"),
                         [("job-ended", True)])
        self.assertEqual(kinds("--since", FUTURE), [])
        self.refused("events", "--job", "nobody", contains="nobody")
        with cluster.popen("events", "-f", "--type", "job-removed") as follower:
            cluster.call("rm", "one")
            try:
                self.assertIn("job one", next_line(follower.stdout, "the event of the removal is shown"))
            finally:
                follower.kill()

    def test_only_ended_jobs_are_removed(self):
        cluster = self.cluster
        cluster.start("live", "hotset", *ARGUMENTS)
        self.run_to_its_end("over", "exit 0")
        identity = cluster.job("over")["id"]
        folder = next(cluster.home.glob(f"nodes/*/jobs/{identity}.1"))
        result = cluster.call("rm", "live", "over", "nobody", exits=(5,))
        self.assertEqual(result.stdout, f"job {identity} is removed\n")
        self.assertRegex(result.stderr, r"live \(j\S+\) is \w+: only ended jobs can be removed")
        self.assertIn("nobody", result.stderr)
        self.assertEqual([job["name"] for job in cluster.json("jobs")], ["live"])
        self.refused("describe", identity, contains=identity)
        eventually(lambda: not folder.exists(), "its node forgets the job")

    def test_the_name_of_a_job_selects_its_migration(self):
        cluster = self.cluster
        cluster.start("big", "hotset", *ARGUMENTS)
        cluster.wait_for_line("big", r"^step 3\b")
        self.refused("abort", "big", contains="is not being moved")
        moving = cluster.popen("migrate", "big", "--to", "node-b", "--bandwidth", "64KiB/s")
        eventually(lambda: cluster.json("describe", "big")["open_migration"], "the job is being moved")
        cluster.call("set", "big", "bandwidth", "128KiB/s")
        self.refused("resolve", "big", "--at", "source", contains="nothing to resolve")
        cluster.call("abort", cluster.job("big")["id"])
        _, errors = moving.communicate(timeout=60)
        self.assertEqual(moving.returncode, 2, errors)
        self.refused("watch", "big", contains="its last migration was m1")
        self.refused("watch", "nobody", contains="nobody")

    def test_the_name_of_a_place_selects_its_drain(self):
        cluster = self.cluster
        self.refused("drains", "node-a", contains="There is no drain")
        drain = cluster.json("drain", "node-a")
        self.assertEqual(cluster.json("drains", "node-a")["id"], drain["id"])

    def test_removals_are_confirmed_on_one_line(self):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 3\b")
        identity = cluster.job("job")["id"]
        image = cluster.json("snapshot", "job")["image"]
        cluster.call("protect", "job", "--every", "1h")
        # The first image is taken at once, and its writer has the store until the image is complete.
        eventually(lambda: len(cluster.json("images")) == 2, "protection has taken its first image")
        self.assertEqual(cluster.call("unprotect", "job").stdout,
                         f"job {identity} is no longer protected; its images are kept\n")
        self.assertEqual(cluster.call("images", "rm", image).stdout, f"image {image} is removed\n")

    def test_help_describes_the_streams_of_a_job(self):
        text = self.cluster.call("run", "--help").stdout
        self.assertIn("Standard input is empty", " ".join(text.split()))
        self.assertIn("Standard output and standard error are one stream", " ".join(text.split()))

    def test_an_exit_is_one_line_and_describe_ends_with_events(self):
        cluster = self.cluster
        cluster.call("run", "--detach", "--name", "ending", "--", "/bin/sh", "-c", "exit 3")
        line = cluster.call("wait", "ending", exits=(3,)).stdout
        self.assertRegex(line, r"^ending \(j\S+\) exited 3, was at node-a:0\n$")
        self.assertEqual(cluster.json("wait", "ending", exits=(3,))["exit_code"], 3)
        shown = cluster.call("describe", "ending").stdout.split("\n")
        events = shown[shown.index("  events      the newest:") + 1:-1]
        self.assertLessEqual(len(events), 5)
        self.assertRegex(events[-1], r"^    \d+s ago  job-ended  ")

    def test_the_name_of_a_job_selects_its_image(self):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 3\b")
        first, second = (cluster.json("snapshot", "job")["image"] for _ in range(2))
        number = re.search(r"\.v(\d+)@", first).group(1)
        self.assertEqual(cluster.json("restore", f"job#{number}", "--dry-run", exits=(5,))["image"], first)
        self.assertEqual(cluster.call("images", "rm", "job").stdout, f"image {second} is removed\n")
        self.assertEqual(cluster.call("images", "rm", f"job#{number}").stdout, f"image {first} is removed\n")
        self.refused("images", "rm", "job", contains='There is no image "job"')
        self.assertEqual(cluster.json("images", "--name", "job"), [])

    def test_the_progress_bar_of_a_drain_never_decreases(self):
        cluster = self.cluster
        for name in ("one", "two", "three"):
            cluster.start(name, "hotset", *ARGUMENTS)
            cluster.wait_for_line(name, r"^step 3\b")
        environment = dict(cluster.environment, PATH=f"{BIN}:{os.environ['PATH']}", TERM="xterm")
        shown, code = typed("gpumigrate drain node-a --parallel 1", environment, cluster.home, 60)
        self.assertEqual(code, 0, shown)
        percents = [int(percent) for percent in re.findall(r"(\d+)%  \d of 3 gone, \d moving", shown)]
        self.assertTrue(percents, shown)
        self.assertEqual(percents, sorted(percents))
        self.assertEqual([line for line in screen_lines(shown) if len(line) > 60], [])
        cluster.call("uncordon", "node-a")
        pipe = cluster.call("drain", "node-b").stderr
        self.assertNotIn("%", pipe)
        self.assertRegex(pipe, r"d\S+ one \(j\S+\) moved  node-b:0 -> node-a:0  downtime")


class Refusals(ClusterTest):
    nodes = 3

    def test_a_refusal_counts_the_causes(self):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 3\b")
        for node in ("node-b", "node-c"):
            cluster.call("cordon", node, "--reason", "fan")
        causes = "1 current, 2 cordoned"
        refused = cluster.call("migrate", "job", exits=(5,)).stderr
        self.assertEqual(refused, f"gpumigrate: No GPU can hold job: {causes}\n")
        dry = cluster.call("migrate", "job", "--dry-run", exits=(5,)).stdout
        self.assertIn(f"  GPUs        {causes} (-v shows each)\n", dry)
        self.assertNotIn("fan", dry)
        for arguments in (("-v",), ("-o", "wide")):
            self.assertIn("node-c:0  no        -      cordoned by operator: fan",
                          cluster.call("migrate", "job", "--dry-run", *arguments, exits=(5,)).stdout)
        plan = cluster.json("migrate", "job", "--dry-run", exits=(5,))
        self.assertEqual(sorted(candidate["cause"] for candidate in plan["candidates"]),
                         ["cordoned", "cordoned", "current"])


if __name__ == "__main__":
    unittest.main()
