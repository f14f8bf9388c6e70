#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the packed corpus of a fuzz target: one file TARGET.pack with all its inputs.

    corpus_pack.py pack FOLDER FILE       writes the files of FOLDER as the pack FILE
    corpus_pack.py unpack FILE FOLDER     writes each input of FILE as a file of FOLDER, which is new or empty
    corpus_pack.py list FILE              prints the SHA-256, the length and the name of each input
    corpus_pack.py add FILE INPUT...      adds files to FILE, which is made if it is not there

The format, with all numbers little-endian (replay.cc reads it as well):

    magic   8 bytes: "GMCORP", a zero byte, the version 1. The zero byte is why git treats packs as binary.
    count   u32: how many inputs follow
    each    u16 length of the name, the name, u32 length of the input, the input

Inputs are sorted by name and each name is there once, so the same inputs always give the same file. Nothing
follows the last input. An input added under a name that the pack has replaces the one that was there."""
import argparse
import hashlib
import os
import pathlib
import re
import struct
import sys

MAGIC = b"GMCORP\0\1"
# The same limits as in replay.cc, far above the needs of a corpus. They detect a damaged length before
# anything is read.
MAX_PACK_BYTES = 64 << 20
MAX_INPUT_BYTES = 1 << 20
# Names become files of a folder. A name must not lead out of the folder, be hidden in it, or need quoting.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


class PackError(Exception):
    """The error of a file that is no valid corpus or input. The text names the file and the reason."""


def check_name(name, where):
    if not NAME.fullmatch(name):
        raise PackError(f"{where}: {name!r} is no name of an input: letters, digits, '_', '.', '-', at most 200")


def read_input(path):
    if not path.is_file():
        raise PackError(f"{path}: not a file")
    if path.stat().st_size > MAX_INPUT_BYTES:
        raise PackError(f"{path}: {path.stat().st_size} bytes, and an input has at most {MAX_INPUT_BYTES}")
    check_name(path.name, path)
    return path.read_bytes()


def read_pack(path):
    """Returns the inputs of a pack by name. Raises PackError unless the file is exactly what write_pack() writes."""
    if path.stat().st_size > MAX_PACK_BYTES:
        raise PackError(f"{path}: {path.stat().st_size} bytes, and a pack has at most {MAX_PACK_BYTES}")
    data = path.read_bytes()
    position = 0

    def take(count, what):
        nonlocal position
        if count > len(data) - position:
            raise PackError(f"{path}: cut off at byte {len(data)}: {what} would end at byte {position + count}")
        position += count
        return data[position - count:position]

    if take(len(MAGIC), "the magic") != MAGIC:
        raise PackError(f"{path}: not a packed corpus of version {MAGIC[-1]}")
    (count,) = struct.unpack("<I", take(4, "the count"))
    inputs = {}
    last = ""
    for index in range(1, count + 1):
        what = f"input {index} of {count}"
        (length,) = struct.unpack("<H", take(2, f"the length of the name of {what}"))
        name = take(length, f"the name of {what}").decode("latin-1")
        check_name(name, f"{path}: at byte {position - length}: {what}")
        if name <= last:
            raise PackError(f"{path}: at byte {position - length}: {what}: {name} must not come after {last}")
        last = name
        (length,) = struct.unpack("<I", take(4, f"the length of {name}"))
        if length > MAX_INPUT_BYTES:
            raise PackError(f"{path}: at byte {position - 4}: {name} has {length} bytes, and at most {MAX_INPUT_BYTES} are allowed")
        inputs[name] = take(length, name)
    if position != len(data):
        raise PackError(f"{path}: {len(data) - position} bytes follow the last input, which ends at byte {position}")
    return inputs


def write_pack(path, inputs):
    parts = [MAGIC, struct.pack("<I", len(inputs))]
    for name in sorted(inputs):
        parts += [struct.pack("<H", len(name)), name.encode("ascii"), struct.pack("<I", len(inputs[name])),
                  inputs[name]]
    data = b"".join(parts)
    if len(data) > MAX_PACK_BYTES:
        raise PackError(f"{path}: {len(data)} bytes, and a pack has at most {MAX_PACK_BYTES}")
    # The new pack is written next to the old pack and renamed. After an interruption, the pack is either the
    # old or the new one.
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(data)
    os.replace(beside, path)


def pack(folder, file):
    write_pack(file, {path.name: read_input(path) for path in folder.iterdir()})


def unpack(file, folder):
    inputs = read_pack(file)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise PackError(f"{folder}: not empty, and what is in it would be taken for inputs of {file}")
    for name, data in inputs.items():
        (folder / name).write_bytes(data)


def show(file):
    for name, data in read_pack(file).items():
        print(hashlib.sha256(data).hexdigest(), len(data), name)


def add(file, paths):
    inputs = read_pack(file) if file.exists() else {}
    for path in paths:
        data = read_input(path)
        if inputs.get(path.name) != data:
            print(f"{'replaced' if path.name in inputs else 'added'} {path.name}")
        inputs[path.name] = data
    write_pack(file, inputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run, words in (("pack", pack, ("folder", "file")), ("unpack", unpack, ("file", "folder")),
                             ("list", show, ("file",)),
                             ("add", add, ("file", "input"))):
        command = commands.add_parser(name)
        command.set_defaults(run=run, words=words)
        for word in words:
            command.add_argument(word, metavar=word.upper(), type=pathlib.Path,
                                 nargs="+" if word == "input" else None)
    options = parser.parse_args()
    try:
        options.run(*(getattr(options, word) for word in options.words))
    except (PackError, OSError) as error:
        print(f"corpus_pack: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
