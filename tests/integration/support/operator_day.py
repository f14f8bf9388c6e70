# SPDX-License-Identifier: Apache-2.0
"""A cluster whose operator is told the truth: each list, table, metric and alert is compared with the processes that
live, and with what was done to nodes and GPUs."""
import collections
import pathlib
import re
import subprocess

from cluster import BIN, ClusterTest
from prometheus import LIMIT_S, Prometheus
from test_metrics import RULES, at_once
from waiting import eventually_equal

ENDED = ("exited", "failed", "lost")
DEVICE = re.compile(r"/nodes/([^/]+)/gpu/device(\d+)$")
# The alerts with a time range fire for the length of the range: minutes to an hour.
LOOKING_BACK = set(re.findall(r"alert: (\w+)\s+expr: [^\n]*(?:increase|rate)\(", RULES.read_text()))


def table(text, key):
    """{cell of the column `key`: {column: cell}} of a table as it is printed."""
    head, *lines = text.rstrip("\n").split("\n")
    columns = re.split(r"\s{2,}", head.strip())
    rows = [dict(zip(columns, re.split(r"\s{2,}", line.strip()))) for line in lines]
    return {row[key]: row for row in rows}


def place_of(document):
    return None if document["gpu"] is None else f"{document['node']}:{document['gpu']}"


def unequal(what, seen, expected):
    if seen != expected:
        yield f"{what} is {seen}, not {expected}"


class Truth:
    """The true state of jobs, nodes and GPUs, which the operator must see."""

    def __init__(self, nodes, gpus):
        self.nodes, self.gpus = list(nodes), gpus
        self.places = {}  # the places of all jobs that have a process
        self.parked = set()
        self.silent = {}  # the states of jobs on disconnected nodes
        self.killed = set()  # the jobs on disconnected nodes that have no process any more
        self.dead = set()  # nodes whose agents have been killed
        self.closed = {}  # GPUs that take no job because of a finding, with a pattern of their HEALTH
        self.cordons = set()  # the cordoned places
        self.overdue = 0  # the number of jobs without a recent image

    def unhealthy(self):
        return {place for place in self.closed if place in self.cordons}

    def states(self):
        states = {job: "running" for job in self.places} | {job: "parked" for job in self.parked}
        return states | self.silent

    def all_gpus(self):
        return [f"{node}:{gpu}" for node in self.nodes for gpu in range(self.gpus)]

    def jobs_at(self, place):
        return {job for job, at in self.places.items() if at == place or at.startswith(place + ":")}

    def alerts(self):
        firing = {f"GpumigrateNodeLost {node}" for node in self.dead if node in self.nodes}
        firing |= {f"GpumigrateAgentMetricsDown {node}" for node in self.dead}
        firing |= {f"GpumigrateGpuUnhealthy {place}" for place in self.unhealthy()}
        return firing | ({"GpumigrateImagesOld"} if self.overdue else set())


class OperatorTest(ClusterTest):
    """Three nodes, whose metrics are scraped."""

    nodes, gpus, memory = 3, 2, "1GiB"

    def setUp(self):
        super().setUp()
        status = self.cluster.json("local", "status")
        addresses = {process["name"]: process["metrics"].removeprefix("https://").removesuffix("/metrics")
                     for process in status["processes"]}
        self.node_of_address = {address: name for name, address in addresses.items()}
        agents = [address for name, address in addresses.items() if name != "coordinator"]
        targets = {"gpumigrate-coordinator": [addresses["coordinator"]], "gpumigrate-agent": agents}
        self.prometheus = Prometheus(targets, status["metrics_certificate"], at_once(RULES.read_text()))
        self.addCleanup(self.prometheus.stop)
        self.so = Truth(sorted(name for name in addresses if name != "coordinator"), self.gpus)

    def see(self, act):
        """After `act` an operator sees what is so."""
        eventually_equal(lambda: list(self.lists_differ()), [], f"{act}: lists and tables differ from what is so")
        self.wait_for_scrapes(lambda: [*self.metrics_differ(), *self.alerts_differ()], act)

    def wait_for_scrapes(self, differences, act):
        for _ in range(4 * LIMIT_S):
            if not (seen := differences()):
                return
            while not self.prometheus.listener.scrapes.empty():
                self.prometheus.listener.scrapes.get()
            self.prometheus.next_scrape()
        self.fail(f"{act}: metrics and alerts differ from what is so: {seen}")

    def processes_of_jobs(self):
        """{job: its processes}, by the variable that each job has."""
        found = collections.defaultdict(set)
        for pid, command in self.cluster.processes().items():
            if command.startswith("cudasim-device"):  # the process of a card, whose environment is that of
                                                      # the card's first user
                continue
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            for entry in environment:
                if entry.startswith(b"GPUMIGRATE_TEST_HURRY="):
                    found[entry.decode().rpartition("/hurry-")[2]].add(pid)
        return found

    @staticmethod
    def devices_of(pids):
        """GPUs that the processes have open."""
        found = set()
        for pid in pids:
            try:
                links = [descriptor.readlink() for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
            except OSError:
                continue
            found |= {":".join(match.groups()) for link in links if (match := DEVICE.search(str(link)))}
        return found

    def lists_differ(self):
        jobs = [job for job in self.cluster.json("jobs") if job["state"] not in ENDED]
        yield from self.jobs_differ(jobs)
        yield from self.gpus_differ({job["name"]: job["id"] for job in jobs})
        yield from self.nodes_differ()
        yield from self.records_differ()
        yield from self.health_differs()

    def jobs_differ(self, jobs):
        processes = self.processes_of_jobs()
        yield from unequal("devices of processes", {job: self.devices_of(pids) for job, pids in processes.items()},
                           {job: {place} for job, place in self.so.places.items() if job not in self.so.killed})
        expected = {job: (state, self.so.places.get(job)) for job, state in self.so.states().items()}
        yield from unequal("jobs -o json", {job["name"]: (job["state"], place_of(job)) for job in jobs},
                           {job: (state.partition(" (")[0], place) for job, (state, place) in expected.items()})
        shown = table(self.cluster.call("jobs").stdout, "NAME")
        yield from unequal("jobs", {name: (row["STATE"], row["GPU"]) for name, row in shown.items()},
                           {name: (state, place or "-") for name, (state, place) in expected.items()})
        for job in jobs:
            yield from self.descriptions_differ(job, expected.get(job["name"]))
            has_process = job["name"] in self.so.places and job["name"] not in self.so.killed
            if has_process and job["ranks"][0]["pid"] not in processes[job["name"]]:
                yield f"{job['name']} has process {job['ranks'][0]['pid']}, not one of {processes[job['name']]}"

    def descriptions_differ(self, job, expected):
        described = self.cluster.json("describe", job["id"])
        for field in ("name", "state", "node", "gpu", "ranks", "incarnation", "movable", "reason", "mode", "exit_code"):
            yield from unequal(f"{field} in describe {job['name']}", described[field], job[field])
        if expected:
            state, place = expected
            head = self.cluster.call("describe", job["id"]).stdout.split("\n")[0]
            words = state if place is None else f"{state} at {place}"
            if f"{job['name']} ({job['id']})" not in head or words not in head:
                yield f"describe begins with {head!r}, not with {words!r}"

    def gpus_differ(self, ids):
        listed = {f"{gpu['node']}:{gpu['index']}": gpu for gpu in self.cluster.json("gpus")}
        shown = table(self.cluster.call("gpus").stdout, "GPU")
        yield from unequal("gpus -o json", sorted(listed), self.so.all_gpus())
        yield from unequal("gpus", sorted(shown), self.so.all_gpus())
        free = self.free_bytes()
        yield from unequal("free bytes in gpus", {place: listed[place]["free_bytes"] for place in free}, free)
        for place, gpu in listed.items():
            jobs = {ids.get(job) for job in self.so.jobs_at(place)}
            yield from unequal(f"jobs of {place} in gpus -o json", set(gpu["jobs"]), jobs)
            yield from unequal(f"jobs of {place} in gpus", set(re.findall(r"j\d\S*[^,\s]", shown[place]["JOBS"])), jobs)
            yield from unequal(f"healthy of {place}", gpu["healthy"], place not in self.so.unhealthy())
            yield from unequal(f"cordons of {place}", {cordon["place"] for cordon in gpu["cordons"] or []},
                               self.so.cordons & {place, gpu["node"]})
            yield from unequal(f"CORDONS of {place}", set(re.findall(r"(\S+) by ", shown[place]["CORDONS"])),
                               self.so.cordons & {place, gpu["node"]})
            health = self.health_of(place)
            if not re.fullmatch(health, shown[place]["HEALTH"]):
                yield f"HEALTH of {place} is {shown[place]['HEALTH']}, not {health}"

    def free_bytes(self):
        """{place: free memory}, as the cards of nodes that are not away have it."""
        found = {}
        for node in set(self.so.nodes) - self.so.dead:
            text = subprocess.run([BIN / "cudasim-ctl", "--dir", self.cluster.home / "nodes" / node / "gpu", "status"],
                                  check=True, capture_output=True, text=True).stdout
            for gpu, total, used in re.findall(r"(?m)^device (\d+) .*\n +memory (\d+) used (\d+) ", text):
                found[f"{node}:{gpu}"] = int(total) - int(used)
        return found

    def health_of(self, place):
        return self.so.closed.get(place, "node silent" if place.split(":")[0] in self.so.dead else "ok")

    def nodes_differ(self):
        expected = {node: ("unreachable" if node in self.so.dead else "ready", len(self.so.jobs_at(node)),
                           {at for at in self.so.cordons if at.partition(":")[0] == node}) for node in self.so.nodes}
        yield from unequal("nodes -o json", {node["name"]: (node["state"], node["jobs"],
                                                            {cordon["place"] for cordon in node["cordons"] or []})
                                             for node in self.cluster.json("nodes")}, expected)
        shown = table(self.cluster.call("nodes").stdout, "NODE")
        yield from unequal("nodes", {name: (row["STATE"].partition(",")[0], int(row["JOBS"]),
                                            set(re.findall(r"(\S+) by ", row["CORDONS"])))
                                     for name, row in shown.items()}, expected)

    def records_differ(self):
        """The lists of what was done: each table has what the JSON has."""
        for command, key, fields in (("migrations", "ID", {"STATE": "result", "FROM": "from", "TO": "to"}),
                                     ("drains", "ID", {"STATE": "result", "PLACE": "place", "GONE": "jobs_gone"}),
                                     ("images", "IMAGE", {"JOB": "job_name"})):
            listed = {document["id"]: document for document in self.cluster.json(command)}
            shown = table(self.cluster.call(command).stdout, key)
            yield from unequal(f"{command} in its table", set(shown), set(listed))
            for name, row in shown.items():
                for column, field in fields.items():
                    if column in row and name in listed:
                        yield from unequal(f"{column} of {name}", row[column], str(listed[name][field]))
        images = {image["id"]: image for image in self.cluster.json("images")}
        shown = table(self.cluster.call("images").stdout, "IMAGE")
        for name, image in images.items():
            state = "suspect" if image["suspect"] else "damaged" if image["damaged"] else "whole"
            yield from unequal(f"STATE of {name}", shown.get(name, {}).get("STATE"), state)

    def health_differs(self):
        health = self.cluster.json("health")
        text = self.cluster.call("health").stdout
        for finding in health["findings"]:
            place = f"{finding['node']}:{finding['gpu']}"
            if not re.search(rf"(?m)^{place} +{finding['xid']} .*{re.escape(finding['reason'])}", text):
                yield f"health does not show {finding}"
        for evacuation in health["evacuations"]:
            words = (evacuation["id"], evacuation["job_name"], evacuation["state"], evacuation["from"], evacuation["to"] or "-")
            if not re.search("(?m)^" + " +".join(map(re.escape, words)), text):
                yield f"health does not show {evacuation}"

    def metrics_differ(self):
        query = ("node_ready|gpu_healthy|gpu_jobs|jobs|breaker_open|evacuations_open|jobs_left_on_bad_gpu|images_overdue|"
                 "migrations_in_progress|agent_coordinator_connected")
        seen = collections.Counter()
        for labels, value in self.prometheus.query(f'{{__name__=~"gpumigrate_({query})"}}') or []:
            name = labels["__name__"].removeprefix("gpumigrate_")
            which = f"{labels['node']}:{labels['gpu']}" if "gpu" in labels else labels.get("node") or labels.get("state")
            if name == "migrations_in_progress":
                which = None  # migrations in any state
            if which not in ENDED:
                seen[(name, which)] += value
        expected = self.metrics_expected()
        for key in sorted({*seen, *expected}, key=str):
            if key in expected or seen[key]:
                yield from unequal(f"metric {key}", seen.get(key), expected.get(key))

    def metrics_expected(self):
        so = self.so
        expected = {("node_ready", node): float(node not in so.dead) for node in so.nodes}
        expected |= {("agent_coordinator_connected", node): 1.0 for node in so.nodes if node not in so.dead}
        expected |= {("gpu_jobs", place): float(len(so.jobs_at(place))) for place in so.all_gpus()}
        expected |= {("gpu_healthy", place): float(place not in so.unhealthy()) for place in so.all_gpus()}
        states = collections.Counter(state.partition(" (")[0] for state in so.states().values())
        expected |= {("jobs", state): float(count) for state, count in states.items()}
        expected |= {(name, None): 0.0 for name in ("breaker_open", "evacuations_open", "jobs_left_on_bad_gpu",
                                                    "migrations_in_progress")}
        return expected | {("images_overdue", None): float(so.overdue)}

    def alerts_differ(self):
        seen = set()
        for labels, _ in self.prometheus.query('ALERTS{alertstate="firing"}') or []:
            words = [labels["alertname"]]
            if "gpu" in labels:
                words.append(f"{labels['node']}:{labels['gpu']}")
            elif labels["alertname"] in ("GpumigrateNodeLost", "GpumigrateAgentMetricsDown"):
                words.append(labels.get("node") or self.node_of_address[labels["instance"]])
            if words[0] not in LOOKING_BACK:
                seen.add(" ".join(words))
        yield from unequal("alerts", seen, self.so.alerts())
