# SPDX-License-Identifier: Apache-2.0
"""An operator's acts. Each is compared with its dry run, and with what is so after it."""
import json
import re

from cluster import EXAMPLES
from operator_day import OperatorTest, place_of
from waiting import eventually

STOPPED = (143, 137)  # a moved process is killed once its context is saved


class OperatorActs(OperatorTest):
    def start(self, name, place, program, *arguments, way=(), env=()):
        command = ("run", *way, *(("--node", place) if place else ()))
        plan = json.loads(self.cluster.call(*command, "--dry-run", "-o", "json", "--", EXAMPLES / program, *arguments).stdout)
        variables = [word for value in (*env, f"GPUMIGRATE_TEST_HURRY={self.cluster.hurry(name)}")
                     for word in ("--env", value)]
        self.cluster.call(*command, *variables, "--detach", "--name", name, "--", EXAMPLES / program, *arguments)
        self.assertEqual(place_of(self.cluster.job(name)), plan["to"])
        self.so.places[name] = plan["to"]
        self.cluster.wait_for_line(name, r"^step \d+")
        self.see(f"{name} is started")

    def stop(self, name):
        self.cluster.call("stop", name)
        self.cluster.call("wait", name, exits=STOPPED)
        del self.so.places[name]
        self.see(f"{name} is stopped")

    def move(self, name, *arguments):
        plan = self.cluster.json("migrate", name, *arguments, "--dry-run")
        report = self.cluster.json("migrate", name, *arguments)
        self.assertEqual((plan["possible"], report["result"], report["to"]), (True, "done", plan["to"]))
        self.so.places[name] = plan["to"]
        self.see(f"{name} is moved")

    def put(self, name, place):
        if self.so.places[name] != place:
            self.move(name, "--to", place)

    def refuse(self, why, verb, *arguments):
        before = self.moves()
        for dry in (("--dry-run",), ()):
            def is_refused(order=(verb, *dry, *arguments)):  # a node that answers slowly gives another reason
                refused = self.cluster.call(*order, exits=(5,))
                return re.search(why, refused.stdout + refused.stderr)
            eventually(is_refused, f"{verb} {arguments} is refused: {why}")
        self.assertEqual(self.moves(), before, "a move was begun")
        self.see(f"{verb} {arguments} is refused")

    def moves(self):
        return [move["id"] for move in self.cluster.json("migrations") if move["result"] != "refused"]

    def drain(self, place, exit_code):
        plan = self.cluster.json("drain", place, "--dry-run", exits=(exit_code,))
        done = self.cluster.json("drain", place, "--reason", "new driver", exits=(exit_code,))
        self.assertEqual({job["name"]: job["to"] for job in done["jobs"]}, {job["name"]: job["to"] for job in plan["jobs"]})
        self.so.cordons.add(place)
        self.so.places |= {job["name"]: job["to"] for job in done["jobs"] if job["to"]}
        self.see(f"{place} is drained")
        return {job["name"]: job for job in done["jobs"]}

    def uncordon(self, place, *arguments):
        said = self.cluster.call("uncordon", place, *arguments).stdout
        self.so.cordons.discard(place)
        return said

    def forgive(self, place):
        self.assertIn(f"forgiven: {place}: ", self.uncordon(place, "--forgive"))
        del self.so.closed[place]
        self.see(f"{place} is forgiven")

    def fault(self, place, xid):
        """A line in the kernel's log."""
        node, _, number = place.partition(":")
        gpu = next(gpu for gpu in self.cluster.json("gpus") if (gpu["node"], gpu["index"]) == (node, int(number)))
        bus = re.sub(r"^0{4}(.*)\.0$", r"\1", gpu["topology"]["bus_id"])
        log, known = self.cluster.home / "nodes" / node / "gpu" / "kernel.log", self.count_findings()
        with open(log, "a") as file:
            sequence = log.read_text().count("\n") + 1
            file.write(f"3,{sequence},{1000 * sequence},-;NVRM: Xid (PCI:{bus}): {xid}, pid='<unknown>', name=<unknown>, text\n")
        eventually(lambda: self.count_findings() > known, f"Xid {xid} of {place} is found")

    def count_findings(self):
        return len(self.cluster.json("health")["findings"])

    def evacuate(self, name, xid, state):
        """The job leaves its GPU by itself."""
        place = self.so.places[name]
        known = len(self.cluster.json("health")["evacuations"])
        self.fault(place, xid)

        def evacuated():
            evacuations = self.cluster.json("health")["evacuations"]
            return len(evacuations) > known and not evacuations[0]["open"] and evacuations[0]
        done = eventually(evacuated, f"{name} is evacuated")
        self.assertEqual((done["job_name"], done["from"], done["state"]), (name, place, state))
        self.so.places[name] = done["to"]
        self.so.cordons.add(place)
        self.so.closed[place] = rf"Xid {xid} .*\(cordoned\)"
        self.see(f"{name} has left {place} for Xid {xid}")
        return place

    def restore(self, name, exit_code, *arguments):
        plan = self.cluster.json("restore", name, *arguments, "--dry-run")
        done = self.cluster.json("restore", name, *arguments, exits=(exit_code,))
        self.assertEqual((done["restored"]["image"], done["restored"]["at"]), (plan["image"], plan["to"]))
        self.assertEqual(done["restored"]["lost_ms"] > 0, exit_code == 3, done)
        self.so.places[name] = plan["to"]
        self.so.parked.discard(name)
        self.see(f"{name} is restored")
        return plan["image"]
