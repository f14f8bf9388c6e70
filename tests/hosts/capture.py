# SPDX-License-Identifier: Apache-2.0
"""Captures the packets that pass a bridge of the hosts, in both directions of one host: a listener on the
network could read them."""
import ctypes
import os
import select
import socket
import threading

ALL_PACKETS = 0x0003  # the value of ETH_P_ALL
NETWORK_NAMESPACE = 0x40000000  # the value of CLONE_NEWNET
BUFFER_BYTES = 256 << 20
HEADERS_BYTES = 14 + 20 + 20  # the bytes of the headers of Ethernet, IPv4, and TCP without options


class Capture:
    """with Capture(hosts, "node-a", 0) as capture: ...; capture.payload"""

    def __init__(self, hosts, host, network):
        self.hosts, self.port = hosts, hosts.port(host, network)
        self.packets = []
        self.ready = threading.Event()
        self.failed = None
        self.thread = threading.Thread(target=self.read_all)

    def __enter__(self):
        self.thread.start()
        self.ready.wait(30)
        if self.failed:
            raise self.failed
        return self

    def __exit__(self, *_):
        self.end.send(b"\0")
        self.thread.join()
        self.payload = b"".join(self.packets)

    def read_all(self):
        try:
            self.enter_the_bridges_namespace()
            self.end, ended = socket.socketpair()
            packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PACKETS))
            packets.setsockopt(socket.SOL_SOCKET, 33, BUFFER_BYTES)  # 33 is SO_RCVBUFFORCE
            packets.bind((self.port, 0))
        except OSError as error:
            self.failed = error
            return
        finally:
            self.ready.set()
        packets.setblocking(False)
        ended.setblocking(False)
        poll = select.poll()
        poll.register(packets, select.POLLIN)
        poll.register(ended, select.POLLIN)
        over = False
        while True:
            if over and not self.take(packets):
                return
            for number, _ in poll.poll():
                if number == ended.fileno():
                    over = True
            self.take(packets)

    def take(self, packets):
        """Keeps the packets that have arrived; false if none has."""
        any_came = False
        while True:
            try:
                self.packets.append(packets.recv(1 << 17)[HEADERS_BYTES:])
                any_came = True
            except BlockingIOError:
                return any_came

    def enter_the_bridges_namespace(self):
        """This thread alone."""
        namespace = os.open(f"/proc/{self.hosts.state['switch']}/ns/net", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(namespace, NETWORK_NAMESPACE):
                raise OSError(ctypes.get_errno(), "entering the bridges' network namespace")
        finally:
            os.close(namespace)
