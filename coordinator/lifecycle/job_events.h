// SPDX-License-Identifier: Apache-2.0
// The events of a rank. Facts have already happened: reports of nodes and of migrations. Orders are refused
// if the rank's state does not allow them. docs/adr/0054-the-job-is-a-machine.md has the table of their
// effects.
// Threads: plain values. Ownership: pointers are borrowed for one step.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/state/restored.h"

namespace ckpt::coordinator::lifecycle {

// ---- Facts ----

// The node has answered the order to start the rank. An answer that leaves the start undecided is not an
// event.
struct StartAnswered {
  std::optional<Error> error;
};
// The node reports the instance of the last segment.
struct Reported {
  wire::JobPhase phase = wire::JobPhase::kRunning;
  int exit_code = -1;
  bool ended_on_request = false;
  std::string reason;
};
[[nodiscard]] Reported report_of(const wire::JobInstance& instance);
// The node lists its instances, and the instance of the last segment is not among them.
struct Missing {};
// The node has reported for some time that the rank continued elsewhere, but no node has the rank.
struct LeftBehind {};
// A migration has started the rank as incarnation `k` of the instance `segment`. `argv` is the program's
// command there; empty: as before.
struct MoveRunsAt {
  Incarnation k = 0;
  Segment segment;
  std::vector<JobRank> ranks;
  std::vector<std::string> argv;
};
// An instance was found that this coordinator's store does not know, or had recorded as lost.
// `known_elsewhere` means that the store had the job on another node. `name` is the job's name from now on.
struct FoundRunning {
  MoveRunsAt at;
  std::string name;
  bool known_elsewhere = false;
};
// The rank's node was removed. `unfenced` means that the instance may still run there.
struct NodeRemoved {
  bool unfenced = false;
};
// A removed node runs the rank.
struct RunsUnmanaged {
  std::string node;
  Incarnation incarnation = 0;
};
// The node has answered that no instance of the rank up to this incarnation exists there.
struct Proven {
  std::string node;
  Incarnation up_to = 0;
};

// ---- Orders ----

// An operation into or out of an image begins. The machine fills in the fields that follow from the rank
// itself.
struct OperationBegun {
  ImageOperation operation;
};
// A parked rank stays parked until a user resumes it.
struct StaysParked {};
// The rank's last snapshot is canceled, and the rank continues to run.
struct SnapshotGivenUp {
  std::string reason;
};
struct Stop {
  std::int64_t grace_ms = 0;
};
// The operator has confirmed that nothing runs on the node.
struct NodeFenced {
  std::string node;
};
// A job that was found on a node is confirmed, and may be moved automatically again.
struct Confirmed {
  std::string by;
};
// The rank is parked again, because another rank did not continue from its image.
struct RankParkedAgain {
  std::string reason;
};

// ---- Progress of an operation: these facts wait while the store refuses them ----

// The snapshot was not taken.
struct NotParked {
  Error error;
};
// The rank has ended with its last image. `image` is the newest whole image; nullopt: there is no newer one.
struct ImageStored {
  std::optional<Image> image;
  std::optional<SnapshotFacts> facts;
};
// All instances that had to end have ended.
struct InstancesEnded {};
// The next instance runs. `fill_ns` is the time for reading the image into memory; negative: not known.
struct RunsFromImage {
  Restored restored;
  std::int64_t fill_ns = -1;
};
// The next instance does not start.
struct NotStarted {
  Error error;
};

using JobEvent = std::variant<StartAnswered, Reported, Missing, LeftBehind, MoveRunsAt, FoundRunning,
                              NodeRemoved, RunsUnmanaged, Proven, OperationBegun, StaysParked,
                              SnapshotGivenUp, Stop, NodeFenced, Confirmed, RankParkedAgain, NotParked,
                              ImageStored, InstancesEnded, RunsFromImage, NotStarted>;

// ---- Actions: performed once the rows are stored ----

struct LogEntry {
  std::string kind;
  std::string text;
  std::string node;
};
// The progress or the outcome of the task that the operation's client watches.
struct TaskEntered {
  std::string state;
};
struct TaskEnded {
  std::optional<Error> error;
  int exit_code = 0;
  std::optional<Image> image;
  std::optional<Restored> restored;
  std::int64_t fill_ns = -1;
};
// The node is ordered to cancel the snapshot.
struct SnapshotCancelled {
  std::string node;
  Incarnation incarnation = 0;
};
// A warning for the coordinator's own log only.
struct Warning {
  std::string text;
};
using JobAction = std::variant<LogEntry, TaskEntered, TaskEnded, SnapshotCancelled, Warning>;

}  // namespace ckpt::coordinator::lifecycle
