# SPDX-License-Identifier: Apache-2.0
"""A coordinator whose store is removed, or replaced by an older copy, while it is down."""
import shutil
import threading

from crashing import CrashingTest
from crash_points import POINTS


class StoreLosingTest(CrashingTest):
    def store(self):
        folder = self.cluster.home / "coordinator"
        return [*folder.glob("state.db*"), *folder.glob("journal*"), *folder.glob("gang-journal*")]

    def stop_coordinator(self):
        self.cluster.kill("gpumigrate-coordinator")

    def remove_store(self):
        lost = self.store()
        self.assertGreaterEqual(len(lost), 2, lost)
        for path in lost:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def lose_store(self):
        self.stop_coordinator()
        self.remove_store()
        self.cluster.up()

    def copy_store(self):
        """Copies the store, as a backup of the folder by other means does. Meanwhile the coordinator is down."""
        copy = self.cluster.home / "copy"
        self.stop_coordinator()
        copy.mkdir()
        for path in self.store():
            shutil.copytree(path, copy / path.name) if path.is_dir() else shutil.copy2(path, copy / path.name)
        self.cluster.up()

    def bring_copy_back(self):
        self.remove_store()
        for path in (self.cluster.home / "copy").iterdir():
            target = self.cluster.home / "coordinator" / path.name
            shutil.copytree(path, target) if path.is_dir() else shutil.copy2(path, target)

    def up_again(self):
        """`local up` has a coordinator without a store take in what runs; with an older copy an admin opens the window."""
        has_store = any(path.stat().st_size > 0 for path in self.store() if path.name == "state.db")
        self.cluster.up()
        if has_store:
            self.cluster.call("cluster", "recover", "--for", "10m")

    def wait_for_event(self, kind, count=1):
        """So many events of the kind, of this life of the store, within a minute."""
        with self.cluster.popen("events", "-f", "-o", "json") as follower:
            deadline = threading.Timer(60, follower.kill)
            deadline.start()
            try:
                for line in follower.stdout:
                    count -= f'"kind":"{kind}"' in line.replace(" ", "")
                    if count == 0:
                        return
            finally:
                deadline.cancel()
                follower.kill()
        self.fail(f"{count} events {kind} more were expected within a minute")

    def wait_until_nothing_is_open(self):
        """Follows each open migration to its end."""
        for migration in self.cluster.json("migrations"):
            if migration["open"]:
                self.cluster.call("watch", migration["id"], exits=(0, 1, 2, 3, 4, 5))


def lose_at_each_point(case, ways):
    """A test of `case` for each crash point and way of losing the store: its lose_at(role, number, way)."""
    for name, role, number, _ in POINTS:
        for way in ways:
            setattr(case, f"test_{name}_{way}", lambda self, role=role, number=number,
                    way=way: self.lose_at(role, number, way))
