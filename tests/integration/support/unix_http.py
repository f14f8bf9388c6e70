# SPDX-License-Identifier: Apache-2.0
"""HTTP over the coordinator's Unix socket, as its own user."""
import http.client
import json
import socket

LIMIT_S = 120  # the limit of a request in seconds; a hang is a failure, not a measurement


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=LIMIT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(home, target, body=None):
    """The status and the text of the answer, refusals included."""
    where = json.loads((home / "coordinator/api.json").read_text())
    connection = UnixConnection(where["socket"].removeprefix("unix:"))
    try:
        connection.request("GET" if body is None else "POST", target, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
