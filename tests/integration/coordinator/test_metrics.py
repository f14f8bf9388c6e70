# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a local cluster: what a migration measured, GPUs and jobs, a lost node that fires
its alert; the dashboard's and the rules' queries."""
import json
import re
import ssl
import subprocess
import unittest
import urllib.request

from cluster import ClusterTest
from moving import HOTSET
from prometheus import DEPLOY, ROOT, Prometheus, program

RULES = DEPLOY / "prometheus" / "gpumigrate.rules.yml"
DASHBOARD = DEPLOY / "grafana" / "gpumigrate.json"


def at_once(rules):
    """The rules without their times, which gpumigrate.rules.test.yml tests."""
    return re.sub(r"(?m)^( +for:) .*$", r"\1 0s", rules)


def dashboard_queries():
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    queries += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    return [query.replace("$__rate_interval", "1m") for query in queries]


def documented():
    """{name: kind} of docs/metrics.md."""
    rows = re.findall(r"(?m)^\| `([a-z_]+)` \| (counter|gauge|histogram) \|",
                      (ROOT / "docs" / "metrics.md").read_text())
    return dict(rows)


class ScrapedCluster(ClusterTest):
    def setUp(self):
        super().setUp()
        status = self.cluster.json("local", "status")
        self.certificate = status["metrics_certificate"]
        self.addresses = {process["name"]: process["metrics"].removeprefix("https://").removesuffix("/metrics")
                          for process in status["processes"]}
        nodes = [self.addresses[name] for name in ("node-a", "node-b")]
        self.prometheus = Prometheus({"gpumigrate-coordinator": [self.addresses["coordinator"]],
                                      "gpumigrate-agent": nodes},
                                     self.certificate, at_once(RULES.read_text()))
        self.addCleanup(self.prometheus.stop)
        self.wait_for = self.prometheus.wait_for
        self.wait_for('sum(up{job=~"gpumigrate-.*"})', 3)

    def series(self, expression, label):
        return {labels[label]: value for labels, value in self.prometheus.query(expression)}


class Metrics(ScrapedCluster):
    def test_metrics_count_a_migration_and_its_bytes(self):
        self.cluster.start("job", "hotset", *HOTSET, "--steps", "100000")
        self.cluster.wait_for_line("job", r"^step \d+")
        self.wait_for('gpumigrate_jobs{state="running"}', 1)
        self.wait_for('gpumigrate_gpu_jobs{node="node-a"}', 1)
        report = self.cluster.migrate("job", "node-b", "--live")
        moved = '{strategy="live",mode="cooperative"}'
        self.wait_for(f"gpumigrate_downtime_seconds_count{moved}", 1)
        self.wait_for(f"gpumigrate_downtime_seconds_sum{moved}", report["downtime_ms"] / 1000)
        self.wait_for("sum(gpumigrate_downtime_piece_seconds_sum)",
                      lambda sum: abs(sum - report["downtime_ms"] / 1000) < 1e-6)
        for piece, ms in report["downtime_breakdown_ms"].items():
            self.wait_for(f'gpumigrate_downtime_piece_seconds_sum{{piece="{piece}"}}', ms / 1000)
        self.wait_for(f"gpumigrate_migration_duration_seconds_sum{moved}", report["total_ms"] / 1000)
        self.wait_for('gpumigrate_migrations_total{strategy="live",mode="cooperative",result="done"}', 1)
        self.wait_for("sum(gpumigrate_migrations_total)", 1)
        self.wait_for("sum(gpumigrate_migrations_in_progress)", 0)
        self.wait_for("gpumigrate_rounds_sum", report["rounds"])
        self.wait_for('gpumigrate_sent_bytes_total{kind="chunks"}', report["sent_bytes"])
        self.wait_for("gpumigrate_wire_bytes_total", report["wire_bytes"])
        self.wait_for("gpumigrate_dirty_bytes_total", report["dirty_bytes"])
        self.wait_for("gpumigrate_resent_chunks_total", 0)
        # The source's agent counts while it sends, and reports a few times a second. The last bytes may
        # therefore be missing.
        self.wait_for('gpumigrate_agent_sent_bytes_total{node="node-a"}',
                      lambda sent: 0 < sent <= report["sent_bytes"])
        self.wait_for('gpumigrate_agent_sent_bytes_total{node="node-b"}', 0)
        self.wait_for("sum(gpumigrate_agent_transfers)", 0)
        self.wait_for('gpumigrate_gpu_jobs{node="node-a"}', 0)
        self.wait_for('gpumigrate_gpu_jobs{node="node-b"}', 1)
        self.wait_for('gpumigrate_gpu_job_bytes{node="node-b"}', report["state_bytes"])
        self.wait_for('gpumigrate_agent_mover_serving{node="node-b",gpu="0"}', 1)
        self.compare_gpus()
        self.cluster.call("stop", "job")
        self.wait_for('gpumigrate_jobs{state="running"}', 0)

    def compare_gpus(self):
        """With what the command shows."""
        for gpu in self.cluster.json("gpus"):
            labels = f'{{node="{gpu["node"]}",gpu="{gpu["index"]}"}}'
            self.wait_for(f"gpumigrate_gpu_memory_total_bytes{labels}", gpu["total_bytes"])
            self.wait_for(f"gpumigrate_gpu_healthy{labels}", 1)
            info = self.prometheus.query(f"gpumigrate_gpu_info{labels}")[0][0]
            self.assertEqual((info["UUID"], info["modelName"]), (gpu["uuid"], gpu["model"]))
        # The job's 64 MiB are on node-b now. Node-a has freed them, or reports them as free with its next
        # inventory.
        self.wait_for('gpumigrate_gpu_memory_free_bytes{node="node-a"} - on (gpu) gpumigrate_gpu_memory_free_bytes{node="node-b"}',
                      lambda difference: difference >= 64 << 20)

    def test_a_lost_node_fires_its_alert(self):
        self.wait_for("sum(gpumigrate_node_ready)", 2)
        self.assertEqual(self.prometheus.query('ALERTS{alertname="GpumigrateNodeLost"}'), [])
        self.cluster.kill("node-b/agent.toml")
        alert = self.prometheus.wait_for_alert("GpumigrateNodeLost")
        self.assertEqual(alert["labels"]["node"], "node-b")
        self.assertEqual(alert["labels"]["severity"], "page")
        self.assertIn("node-b", alert["annotations"]["summary"])
        self.prometheus.wait_for_alert("GpumigrateAgentMetricsDown")
        self.wait_for('gpumigrate_events_total{kind="node-lost"}', 1)
        self.cluster.up()  # the addresses are unchanged: Prometheus is not notified
        self.wait_for('sum(up{job=~"gpumigrate-.*"})', 3)
        self.wait_for('count(ALERTS{alertname="GpumigrateNodeLost"}) or vector(0)', 0)

    def test_every_query_of_dashboard_and_rules_is_valid(self):
        """Each name must be documented, too: Prometheus accepts any name."""
        names = documented()
        known = {"up", "ALERTS", "pulse", *names}
        for name, kind in names.items():
            if kind == "histogram":
                known |= {name + suffix for suffix in ("_bucket", "_sum", "_count")}
        rules = [rule["query"] for group in self.prometheus.get("/api/v1/rules")["groups"]
                 for rule in group["rules"]]
        self.assertGreaterEqual(len(rules), 10)
        queries = dashboard_queries()
        self.assertGreaterEqual(len(queries), 30)
        for query in queries + rules:
            self.prometheus.query(query)  # fails if the query does not parse
            used = set(re.findall(r"\b(?:gpumigrate|process)_[a-z_]+", query))
            self.assertLessEqual(used, known, query)
        for rule in self.prometheus.get("/api/v1/rules")["groups"][0]["rules"]:
            self.assertIn(rule["health"], ("ok", "unknown"), rule)

    def test_scraped_metrics_are_documented(self):
        """Names, kinds and help texts as Prometheus understood them."""
        names = documented()
        scraped = self.prometheus.get("/api/v1/metadata")
        for name, descriptions in scraped.items():
            if name.startswith(("gpumigrate_", "process_")):
                self.assertEqual({entry["type"] for entry in descriptions}, {names.get(name)}, name)
                self.assertTrue(all(entry["help"] for entry in descriptions), name)
        for name in ("gpumigrate_node_ready", "gpumigrate_downtime_seconds", "gpumigrate_agent_nvml_answers"):
            self.assertIn(name, scraped)

    def test_metrics_need_a_certificate(self):
        for name, address in self.addresses.items():
            context = ssl.create_default_context(cafile=self.certificate["ca"])
            with self.assertRaises(OSError, msg=name):
                urllib.request.urlopen(f"https://{address}/metrics", context=context, timeout=30)
            context.load_cert_chain(self.certificate["certificate"], self.certificate["key"])
            with urllib.request.urlopen(f"https://{address}/metrics", context=context, timeout=30) as answer:
                self.assertEqual(answer.status, 200, name)


class Rules(unittest.TestCase):
    def promtool(self, *arguments):
        result = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True,
                                cwd=RULES.parent, timeout=120)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_rules_fire_on_their_conditions(self):
        self.promtool("check", "rules", RULES.name)
        self.promtool("test", "rules", "gpumigrate.rules.test.yml")

    def test_each_rule_has_a_test(self):
        tested = set(re.findall(r"alertname: (\w+)",
                                (RULES.parent / "gpumigrate.rules.test.yml").read_text()))
        self.assertEqual(set(re.findall(r"- alert: (\w+)", RULES.read_text())), tested)

    def test_configuration_is_valid(self):
        self.promtool("check", "config", "--syntax-only", "prometheus.yml")
