# SPDX-License-Identifier: Apache-2.0
"""Lines that an operator types in an hour with three nodes, in order: (the line, the exit codes that it may
have). `{examples}` is the folder of the example programs; a line that ends with ^C is interrupted after it has
printed."""

# The screens are also printed in narrower and wider terminals.
SCREENS = tuple(f"gpumigrate {screen}" for screen in (
    "jobs", "jobs -a -o wide", "describe plain", "nodes", "gpus", "migrations", "drains", "images", "health", "rebalance",
    "cluster recover", "doctor", "help", "help migrate"))
COMMANDS = (
    # The first minute of the trial.
    ("gpumigrate", (0, 64)),
    ("gpumigrate --version", (0,)),
    ("gpumigrate help", (0,)),
    ("gpumigrate help migrate", (0,)),
    ("gpumigrate jbos", (64,)),
    ("gpumigrate nodes", (0,)),
    ("gpumigrate gpus", (0,)),
    ("gpumigrate jobs", (0,)),
    # Starting jobs.
    ("gpumigrate run -- nosuchprog", (127,)),
    ("gpumigrate run -- /etc/passwd", (126,)),
    ("gpumigrate run --dry-run -- {examples}/charlm --steps 100000 --step-ms 20", (0,)),
    ("gpumigrate run --detach --cooperative --name big --node node-a:0 -- {examples}/hotset --bytes 128MiB "
     "--hot 4% --pattern random --steps 100000 --step-ms 20", (0,)),
    ("gpumigrate run --detach --name plain --node node-b:0 -- {examples}/charlm-plain --params 20000 "
     "--steps 100000 --step-ms 20", (0,)),
    ("gpumigrate run --detach --cooperative --name low --priority -5 --node node-a:1 -- {examples}/charlm "
     "--params 20000 --steps 100000 --step-ms 20", (0,)),
    ("gpumigrate run --gpu-memory 5 -- {examples}/charlm", (64,)),
    ("gpumigrate run --name low -- {examples}/charlm", (5,)),
    ("gpumigrate jobs", (0,)),
    ("gpumigrate jobs -o wide", (0,)),
    ("gpumigrate jobs --node node-a", (0,)),
    ("gpumigrate describe plain", (0,)),
    ("gpumigrate logs plain --tail 2", (0,)),
    # Moving jobs.
    ("gpumigrate migrate big --to \"\"", (64,)),
    ("gpumigrate migrate big --too node-c", (64,)),
    ("gpumigrate migrate nobody --to node-c", (5,)),
    ("gpumigrate migrate big --to node-z", (5,)),
    ("gpumigrate migrate big --to node-c:1 --dry-run", (0,)),
    ("gpumigrate migrate big --to node-c:1", (0,)),
    ("gpumigrate migrate big --to node-a:0 --bandwidth 60MiB/s", (0,)),
    ("gpumigrate migrate plain --to node-b:1 --max-downtime 1ms", (5,)),
    ("gpumigrate migrate plain --to node-c", (0,)),
    ("gpumigrate migrate big --to node-b --bandwidth 5MiB/s --detach", (0,)),
    ("gpumigrate watch big ^C", (6,)),
    ("gpumigrate set big bandwidth 10MiB/s", (0,)),
    ("gpumigrate abort big", (0,)),
    ("gpumigrate migrations", (0,)),
    ("gpumigrate migrations -o json", (0,)),
    # Images of jobs.
    ("gpumigrate protect big --every 1m --to /nonexistent/dir", (5,)),
    ("gpumigrate protect big --to node-b --every 1m", (0,)),
    ("gpumigrate snapshot plain", (0,)),
    ("gpumigrate images", (0,)),
    ("gpumigrate restore plain", (5,)),
    ("gpumigrate restore plain --dry-run", (0, 5)),
    ("gpumigrate suspend low", (0,)),
    ("gpumigrate suspend low", (0, 5)),
    ("gpumigrate jobs", (0,)),
    ("gpumigrate resume low", (0, 3)),
    ("gpumigrate unprotect big", (0,)),
    # Maintenance of nodes.
    ("gpumigrate drain node-c --reason \"new driver\"", (0,)),
    ("gpumigrate drains", (0,)),
    ("gpumigrate nodes", (0,)),
    ("gpumigrate gpus", (0,)),
    ("gpumigrate uncordon node-c", (0,)),
    ("gpumigrate events --since 10m --job big", (0,)),
    ("gpumigrate events --type drain-ended", (0, 5, 64)),
    SCREENS,
    # The end of the trial.
    ("gpumigrate wait big --timeout 1s", (124,)),
    ("gpumigrate stop low", (0,)),
    ("gpumigrate wait low", tuple(range(256))),
    ("gpumigrate rm low", (0,)),
    ("gpumigrate rm big", (5,)),
    ("gpumigrate jobs -a", (0,)),
    ("gpumigrate jobs -o json > /dev/full", (1,)),
    ("gpumigrate stop big", (0,)),
    ("gpumigrate stop plain --grace 0s", (0,)),
    ("gpumigrate doctor", (0, 1)),
)
