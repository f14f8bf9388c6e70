// SPDX-License-Identifier: Apache-2.0
// The events of a rank. Facts have happened: reports of nodes and of migrations. Orders are refused where the rank's
// state does not allow them. docs/adr/0054-the-job-is-a-machine.md has the table of their effects.
// Threads: plain values. Ownership: pointers are borrowed for one step.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/state/restored.h"

namespace ckpt::coordinator::lifecycle {

// ---- facts ----

// Its node has answered the order to start it. An answer that leaves it open is no event.
struct StartAnswered {
  std::optional<Error> error;
};
// Its node reports the instance of the last segment.
struct Reported {
  wire::JobPhase phase = wire::JobPhase::kRunning;
  int exit_code = -1;
  bool ended_on_request = false;
  std::string reason;
};
[[nodiscard]] Reported report_of(const wire::JobInstance& instance);
// Its node lists its instances, and the last segment's is none of them.
struct Missing {};
// Its node reports for some time that it went on elsewhere, and no node has it.
struct LeftBehind {};
// A migration has it run as incarnation `k` of the instance `segment`. `argv`: the program's command there; empty: as
// before.
struct MoveRunsAt {
  Incarnation k = 0;
  Segment segment;
  std::vector<JobRank> ranks;
  std::vector<std::string> argv;
};
// An instance was found that this coordinator's store does not know, or had given up. `known_elsewhere`:
// another node was known to have the job. `name`: its name from now on.
struct FoundRunning {
  MoveRunsAt at;
  std::string name;
  bool known_elsewhere = false;
};
// Its node was removed. `unfenced`: the instance may still run there.
struct NodeRemoved {
  bool unfenced = false;
};
// A node that was removed runs it.
struct RunsUnmanaged {
  std::string node;
  Incarnation incarnation = 0;
};
// The node has answered that nothing of it up to this incarnation lives there.
struct Proven {
  std::string node;
  Incarnation up_to = 0;
};

// ---- orders ----

// Into an image, or out of one. Of the operation the machine fills in what follows from the rank itself.
struct OperationBegun {
  ImageOperation operation;
};
// A parked one stays parked until a user resumes it.
struct StaysParked {};
// Its last snapshot is given up: it runs on.
struct SnapshotGivenUp {
  std::string reason;
};
struct Stop {
  std::int64_t grace_ms = 0;
};
// The operator's word: nothing lives on that node.
struct NodeFenced {
  std::string node;
};
// A job that was found may move by itself again.
struct Confirmed {
  std::string by;
};
// It rests again, since another rank did not go on from its image.
struct RankRests {
  std::string reason;
};

// ---- progress of an operation: facts that wait while the store refuses them ----

// The snapshot was not taken.
struct NotParked {
  Error error;
};
// The rank has ended with its last image. `image`: the newest that is whole; none: there is no newer one.
struct ImageStored {
  std::optional<Image> image;
  std::optional<SnapshotFacts> facts;
};
// Everything that had to end has.
struct InstancesEnded {};
// The next instance runs. `fill_ns`: reading the image into memory; negative: not known.
struct RunsFromImage {
  Restored restored;
  std::int64_t fill_ns = -1;
};
// It does not.
struct NotStarted {
  Error error;
};

using JobEvent =
    std::variant<StartAnswered, Reported, Missing, LeftBehind, MoveRunsAt, FoundRunning, NodeRemoved,
                 RunsUnmanaged, Proven, OperationBegun, StaysParked, SnapshotGivenUp, Stop, NodeFenced,
                 Confirmed, RankRests, NotParked, ImageStored, InstancesEnded, RunsFromImage, NotStarted>;

// ---- actions: performed once the rows are stored ----

struct LogEntry {
  std::string kind;
  std::string text;
  std::string node;
};
// The task of the operation's client.
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
// The node is told to give the snapshot up.
struct SnapshotCancelled {
  std::string node;
  Incarnation incarnation = 0;
};
// Only for the coordinator's own log.
struct Warning {
  std::string text;
};
using JobAction = std::variant<LogEntry, TaskEntered, TaskEnded, SnapshotCancelled, Warning>;

}  // namespace ckpt::coordinator::lifecycle
