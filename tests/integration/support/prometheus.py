# SPDX-License-Identifier: Apache-2.0
"""A Prometheus server that scrapes a local cluster, and notifies a test of events there.

Nothing sleeps: Prometheus also scrapes a port of the test's own, as often as the cluster, and each of these
scrapes is the moment to ask again; alerts arrive at the same port, which is its Alertmanager, too."""
import http.server
import json
import pathlib
import queue
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
INTERVAL = "500ms"
LIMIT_S = 60  # the limit of a wait in seconds; a hang is a failure, not a measurement


def program(name):
    found = shutil.which(name)
    if found is None:
        raise AssertionError(f"there is no {name}: tools/setup installs it")
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Listener(http.server.ThreadingHTTPServer):
    """Receives scrapes and alerts."""
    daemon_threads = True

    def __init__(self):
        self.scrapes = queue.Queue()
        self.alerts = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer(b"# TYPE pulse gauge\npulse 1\n")
                self.server.scrapes.put(None)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(b"{}")
                for alert in json.loads(body):
                    self.server.alerts.put(alert)

            def answer(self, body):
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"


class Prometheus:
    """`targets`: {job name: [address]}. `rules`: text of a rules file."""

    def __init__(self, targets, certificate, rules):
        self.listener = Listener()
        self.alerts = {}  # alerts by name that no test waits for yet
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gm-prometheus-"))
        self.port = free_port()
        (self.folder / "rules.yml").write_text(rules)
        # JSON is valid YAML.
        tls = {"ca_file": certificate["ca"], "cert_file": certificate["certificate"], "key_file": certificate["key"]}
        jobs = [{"job_name": name, "scheme": "https", "tls_config": tls,
                 "static_configs": [{"targets": addresses}]}
                for name, addresses in targets.items()]
        jobs.append({"job_name": "pulse", "static_configs": [{"targets": [self.listener.address]}]})
        (self.folder / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL,
                       "evaluation_interval": INTERVAL},
            "rule_files": ["rules.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [self.listener.address]}]}]},
            "scrape_configs": jobs}))
        with open(self.folder / "log", "w") as log:
            self.process = subprocess.Popen(
                [program("prometheus"), f"--config.file={self.folder}/prometheus.yml",
                 f"--storage.tsdb.path={self.folder}/data",
                 f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log)

    def stop(self):
        self.process.terminate()
        self.process.wait(LIMIT_S)
        self.listener.shutdown()
        self.listener.server_close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self):
        return (self.folder / "log").read_text()[-3000:]

    def get(self, path, **query):
        """`data` of the answer; None while the server is not up yet. A query that does not parse is an
        error."""
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError(f"{path} {query}: {error.read().decode()[:1000]}") from error
        except urllib.error.URLError:
            return None

    def query(self, expression):
        """[({label: value}, number)]; None while the server is not up yet."""
        data = self.get("/api/v1/query", query=expression)
        if data is None:
            return None
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(entry["metric"], float(entry["value"][1])) for entry in data["result"]]

    def next_scrape(self):
        try:
            self.listener.scrapes.get(timeout=LIMIT_S)
        except queue.Empty:
            raise AssertionError("Prometheus does not scrape: " + self.log()) from None

    def wait_for(self, expression, expected):
        """Asks after each scrape until the only number that comes back is the expected one (or one that the
        function accepts)."""
        accepts = expected if callable(expected) else lambda value: abs(value - expected) <= 1e-9 * max(1,
                                                                                                        abs(expected))
        last = None
        for _ in range(LIMIT_S * 5):
            last = self.query(expression)
            if last is not None and len(last) == 1 and accepts(last[0][1]):
                return last[0][1]
            self.next_scrape()
        raise AssertionError(f"{expression} is {last}, not {expected}")

    def wait_for_alert(self, name):
        """The first alert of that name that Prometheus sends; others that come before it are kept for
        later callers."""
        while name not in self.alerts:
            try:
                alert = self.listener.alerts.get(timeout=LIMIT_S)
            except queue.Empty:
                raise AssertionError(f"no alert {name}: {self.get('/api/v1/alerts')} {self.log()}") from None
            self.alerts.setdefault(alert["labels"]["alertname"], alert)
        return self.alerts.pop(name)
