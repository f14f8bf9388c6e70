# SPDX-License-Identifier: Apache-2.0
"""The environment of a user's shell is in none of the files that store its jobs."""
import os
import unittest

from cluster import ClusterTest

CANARY = "canary-7f3a91"
# A job with output, a digest at the end, and an image in between.
TRAINING = ["--params", "20000", "--steps", "100000", "--step-ms", "5", "--print-every", "1", "--seed", "2"]


class Secrets(ClusterTest):
    nodes = 2

    def files_with(self, text):
        found = []
        for folder, _, names in os.walk(self.cluster.home):
            for name in names:
                path = os.path.join(folder, name)
                if not os.path.isfile(path) or os.path.islink(path):
                    continue
                with open(path, "rb") as file:
                    if text.encode() in file.read():
                        found.append(os.path.relpath(path, self.cluster.home))
        return found

    def test_secrets_of_the_shell_are_in_no_file_of_the_cluster(self):
        cluster = self.cluster
        cluster.environment.update(AWS_SECRET_ACCESS_KEY=CANARY, HF_TOKEN=CANARY, MY_SETTING=CANARY)
        cluster.start("train", "charlm", *TRAINING)
        cluster.wait_for_line("train", r"^step 3\b")
        cluster.call("snapshot", "train")
        cluster.migrate("train", "node-b", "--live")
        cluster.call("suspend", "train")
        cluster.call("resume", "train")
        self.assertEqual(self.files_with(CANARY), [])
        # A variable that --env names is passed to the job, and the job's record contains it.
        cluster.call("run", "--cooperative", "--env", "MY_SETTING", "--", "/bin/sh", "-c", f'test "$MY_SETTING" = {CANARY}')
        self.assertNotEqual(self.files_with(CANARY), [])


if __name__ == "__main__":
    unittest.main()
