#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the sections that move jobs over a cluster with tiny sizes: their rows and plots are all there,
nothing is left behind. No time is checked. check_moves.py PROGRAM"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROWS = {"downtime": 14, "downtime_terms": 14, "bytes": 7, "slowdown": 8, "sweep_dirty": 6, "sweep_link": 5}
PLOTS = {"downtime-dirty-share": 6, "downtime-link-rate": 5}


def check_section(section, rows):
    assert section["failed"] is None, section["failed"]
    assert len(section["rows"]) == rows, section["rows"]
    names = [column["name"] for column in section["columns"]]
    for row in section["rows"]:
        assert row["values"], row
        for name, value in row["values"].items():
            assert name in names, (row, names)
            assert 0 <= value["min"] <= value["median"] <= value["max"], (row["name"], name, value)


def check_plot(script, drawing, points):
    blocks = re.findall(r"^\$(\w+) << END\n(.*?)^END$", script.read_text(encoding="utf-8"), re.M | re.S)
    assert [name for name, _ in blocks] == ["stop_copy", "live", "bound"], (script, blocks)
    for name, lines in blocks:
        values = [[float(value) for value in line.split()] for line in lines.splitlines()]
        assert len(values) == points, (script, name, values)
        for x, median, least, most in values:
            assert x > 0 and 0 < least <= median <= most, (script, name, values)
    if shutil.which("gnuplot"):
        root = xml.etree.ElementTree.parse(drawing).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg", drawing
    else:
        assert not drawing.exists(), drawing


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "homes").mkdir()
        environment = dict(os.environ, GPUMIGRATE_SOFTWARE_GPU="1", TMPDIR=str(root / "homes"))
        subprocess.run([sys.argv[1], "moves", "slowdown", "sweeps", "plots", "--bytes", "16MiB", "--pairs",
                        "1", "--json",
                        str(root / "report.json"), "--output", folder], env=environment, check=True)
        report = json.loads((root / "report.json").read_text(encoding="utf-8"))
        sections = {section["name"]: section for section in report["sections"]}
        for name, rows in ROWS.items():
            check_section(sections[name], rows)
        moved = {row["name"]: row["values"] for row in sections["bytes"]["rows"]}
        assert moved["hotset, 1 GiB/s"]["state"]["median"] == 16, moved
        assert all(values["rounds"]["median"] >= 2 for values in moved.values()), moved
        for name, points in PLOTS.items():
            check_plot(root / f"{name}.gnuplot", root / f"{name}.svg", points)
        assert not list((root / "homes").iterdir()), "the bench left its cluster's home behind"


main()
