# SPDX-License-Identifier: Apache-2.0
"""The steps of a cooperative move at which a process may die: what the suites that kill, hold or lose
something there share."""
from fault_points import Point

ARGUMENTS = ["--bytes", "32MiB", "--hot", "4%", "--step-ms", "5", "--seed", "11", "--pattern", "random",
             "--steps", "1400",
             "--print-every", "1"]

SOURCE, TARGET, EITHER = "node-a", "node-b", None
# The crash points as (name, role whose process is killed, number, node that the job must end on).
POINTS = [
    ("source_preparing", "agent.node-a", Point.SOURCE_PREPARING, EITHER),
    ("source_precopy", "agent.node-a", Point.SOURCE_PRECOPY, EITHER),
    ("source_paused", "agent.node-a", Point.SOURCE_PAUSED, SOURCE),
    ("source_barrier_durable", "agent.node-a", Point.SOURCE_BARRIER_DURABLE, EITHER),
    ("source_final_sent", "agent.node-a", Point.SOURCE_FINAL_SENT, EITHER),
    ("source_received_runs", "agent.node-a", Point.SOURCE_RECEIVED_RUNS, TARGET),
    ("source_released_durable", "agent.node-a", Point.SOURCE_RELEASED_DURABLE, TARGET),
    ("target_preparing", "agent.node-b", Point.TARGET_PREPARING, EITHER),
    ("target_precopy", "agent.node-b", Point.TARGET_PRECOPY, SOURCE),
    ("target_verified", "agent.node-b", Point.TARGET_VERIFIED, SOURCE),
    ("target_committed_durable", "agent.node-b", Point.TARGET_COMMITTED_DURABLE, TARGET),
    ("target_runs", "agent.node-b", Point.TARGET_RUNS, TARGET),
    ("target_runs_stated", "agent.node-b", Point.TARGET_RUNS_STATED, TARGET),
    ("source_mover_attached", "mover.node-a.0", Point.SOURCE_MOVER_ATTACHED, SOURCE),
    ("source_mover_round", "mover.node-a.0", Point.SOURCE_MOVER_ROUND, SOURCE),
    ("source_mover_final", "mover.node-a.0", Point.SOURCE_MOVER_FINAL, SOURCE),
    ("source_mover_manifest", "mover.node-a.0", Point.SOURCE_MOVER_MANIFEST, EITHER),
    ("target_mover_attached", "mover.node-b.0", Point.TARGET_MOVER_ATTACHED, SOURCE),
    ("target_mover_round", "mover.node-b.0", Point.TARGET_MOVER_ROUND, SOURCE),
    ("target_mover_final", "mover.node-b.0", Point.TARGET_MOVER_FINAL, SOURCE),
    ("target_mover_verified", "mover.node-b.0", Point.TARGET_MOVER_VERIFIED, SOURCE),
    ("standby_keeper_started", "keeper.j1.standby", Point.KEEPER_STANDBY_STARTED, SOURCE),
    ("standby_keeper_gate_opened", "keeper.j1.standby", Point.KEEPER_GATE_OPENED, EITHER),
    ("standby_ready", "rank.j1.standby", Point.RANK_STANDBY_READY, SOURCE),
    ("coordinator_begun", "coordinator", Point.COORDINATOR_BEGUN, EITHER),
    ("coordinator_prepared", "coordinator", Point.COORDINATOR_PREPARED, EITHER),
    ("coordinator_granted_durable", "coordinator", Point.COORDINATOR_GRANTED_DURABLE, EITHER),
    ("coordinator_commit_sent", "coordinator", Point.COORDINATOR_COMMIT_SENT, EITHER),
    ("coordinator_heard_committed", "coordinator", Point.COORDINATOR_HEARD_COMMITTED, TARGET),
    ("coordinator_heard_released", "coordinator", Point.COORDINATOR_HEARD_RELEASED, TARGET),
    ("coordinator_closed_durable", "coordinator", Point.COORDINATOR_CLOSED_DURABLE, TARGET),
]
