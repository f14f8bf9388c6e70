# SPDX-License-Identifier: Apache-2.0
"""What a user of another host may try. Runs there: `intruder.py TRY [ARGUMENT ...]`, and prints what came of it.

  hello ADDRESS PORT TOKEN NAME [FOLDER]   claims to be node NAME; FOLDER: the certificate that it shows, else none
  http ADDRESS PORT TOKEN [FOLDER [PATH [tell]]]   asks for all jobs, or for PATH; `tell`: prints that it has asked
  take PORT COUNT FILE                     listens, answers so many connections with nothing, and writes what it
                                           was sent to FILE
  shown ADDRESS PORT FOLDER                a digest of the certificate that is shown there"""
import contextlib
import hashlib
import pathlib
import socket
import ssl
import struct
import sys
import zlib

HELLO, HELLO_REPLY = 16, 17
HEADER = "<IHHIIQ"
LIMIT_S = 10


def connection(address, port, folder):
    plain = socket.create_connection((address, int(port)), LIMIT_S)
    if folder is None:
        return plain
    context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
    context.check_hostname = False
    own = "node" if pathlib.Path(folder, "node.pem").exists() else "client"
    context.load_cert_chain(f"{folder}/{own}.pem", f"{folder}/{own}.key")
    return context.wrap_socket(plain)


def hello_frame(name, token):
    """As libckpt/protocol/wire/codec.h lays it out."""
    texts = b"".join(struct.pack("<Q", len(text)) + text.encode() for text in (name, token))
    fields = struct.pack("<I", 1) + texts
    body = b"\x01" + struct.pack("<BBI", 1, 1, len(fields)) + fields
    return struct.pack(HEADER, 0x4d475047, 1, HELLO, len(body), zlib.crc32(body), 1) + body


def read_all(stream):
    heard = b""
    with contextlib.suppress(OSError):
        while part := stream.recv(65536):
            heard += part
    return heard


def hello(address, port, token, name, folder=None):
    with connection(address, port, folder) as stream:
        stream.sendall(hello_frame(name, token))
        heard = read_all(stream)
    if len(heard) < struct.calcsize(HEADER):
        return "closed"
    # The body: endianness, envelope, version, accepted.
    return "accepted" if heard[struct.calcsize(HEADER) + 1 + 6 + 4] else "refused"


def http(address, port, token, folder=None, path="/v1/jobs", tell=None):
    with connection(address, port, folder) as stream:
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        if tell:
            stream.settimeout(None)
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                       f"{authorization}\r\n".encode())
        if tell:
            print("sent", flush=True)
        heard = read_all(stream)
    return "answered" if b"200 OK" in heard else "closed"


def take(port, count, file):
    with socket.create_server(("0.0.0.0", int(port))) as server, open(file, "wb") as heard:
        server.settimeout(LIMIT_S)
        for _ in range(int(count)):
            stream, _ = server.accept()
            stream.settimeout(0.5)  # the other side waits for an answer
            heard.write(read_all(stream))
            heard.flush()
            stream.close()
    return f"{pathlib.Path(file).stat().st_size} bytes"


def shown(address, port, folder):
    with connection(address, port, folder) as stream:
        return hashlib.sha256(stream.getpeercert(binary_form=True)).hexdigest()


if __name__ == "__main__":
    try:
        print({"hello": hello, "http": http, "take": take, "shown": shown}[sys.argv[1]](*sys.argv[2:]))
    except OSError as error:
        print("closed", error)
