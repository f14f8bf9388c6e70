# SPDX-License-Identifier: Apache-2.0
"""The crash points by their names, as libckpt/base/fault_points.def lists them: Point.SOURCE_BARRIER_DURABLE
is kSourceBarrierDurable."""
import enum
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parents[3] / "libckpt/base/fault_points.def"


def read_table():
    for number, name in re.findall(r"^CKPT_FAULT_POINT\((\d+), k(\w+)\)", TABLE.read_text(), re.M):
        yield re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper(), int(number)


Point = enum.IntEnum("Point", list(read_table()))
