#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one section of gpumigrate-bench with tiny sizes and checks the shape of its report, never a time.
check_report.py PROGRAM SECTION ROWS [--bytes N]"""
import json
import subprocess
import sys
import tempfile


def check_section(section, rows):
    assert section["failed"] is None, section["failed"]
    assert section["measures"] and section["columns"]
    names = [column["name"] for column in section["columns"]]
    assert len(section["rows"]) >= rows, section["rows"]
    for row in section["rows"]:
        assert row["name"] and row["values"], row
        for name, value in row["values"].items():
            assert name in names, (row, names)
            assert value["runs"] >= 1
            assert value["min"] <= value["median"] <= value["max"], (row["name"], name, value)
            assert value["median"] > 0, (row["name"], name, value)
    for goal in section["goals"]:
        assert goal["relation"] in (">=", "<="), goal
        holds = goal["value"] >= goal["goal"] if goal["relation"] == ">=" else goal["value"] <= goal["goal"]
        assert goal["passed"] == holds, goal


def main():
    program, name, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        path, text = folder + "/report.json", folder + "/report.md"
        subprocess.run([program, name, "--bytes", "16MiB", "--pairs", "1", "--json", path, "--markdown",
                        text],
                       check=True)
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        with open(text, encoding="utf-8") as file:
            assert "### " + name in file.read()
    assert report["machine"]["cores"] >= 1 and report["driver"]["devices"] >= 1, report
    sections = {section["name"]: section for section in report["sections"]}
    check_section(sections[name], rows)


main()
