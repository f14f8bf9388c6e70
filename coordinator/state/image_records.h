// SPDX-License-Identifier: Apache-2.0
// The coordinator's records of a job's images and protection. They are part of the job's own record
// (model.h), and change together with its state in one write. Plain values; coordinator/images changes them.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/protocol/wire/image_messages.h"
#include "libckpt/record/fields.h"
#include "libckpt/record/names.h"

namespace ckpt::coordinator {

// A version of a job in a checkpoint store.
struct Image {
  std::string node;    // the owner of the checkpoint store; for a shared folder the node that wrote the image
  std::string folder;  // the folder; empty: the node's own checkpoint store
  std::string image_job;
  wire::JobId job = 0;
  std::uint64_t version = 0;
  std::uint64_t sequence = 0;  // the coordinator's own count (image_numbers.h); 0: taken by an older build
  std::uint64_t set = 0;  // the set of images of a gang's barrier to which a rank's image belongs; 0: no set
  std::int64_t barrier_ms = 0;  // Unix time of the barrier: later work of the job is not in the image
  std::uint64_t state_bytes = 0;
  std::string gpu_model;
  wire::Incarnation incarnation = 0;  // the job's incarnation when the image was taken; 0: not known
  std::string suspect;  // why the image's memory may be wrong (doubt.h); empty: it is not suspect
};
template <std::same_as<Image> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::field("folder", &T::folder),
                        record::field("vault_job", &T::image_job), record::field("job", &T::job),
                        record::field("version", &T::version), record::later("sequence", &T::sequence),
                        record::later("set", &T::set), record::field("barrier_ms", &T::barrier_ms),
                        record::field("state_bytes", &T::state_bytes),
                        record::field("gpu_model", &T::gpu_model),
                        record::later("incarnation", &T::incarnation), record::later("suspect", &T::suspect));
}

// The request of `protect` and its state.
struct Protection {
  std::int64_t every_ms = 0;
  std::string folder;  // the folder; empty: a node's own checkpoint store
  std::string node;    // the only node whose own checkpoint store is used; empty: the node where the job runs
  std::uint32_t keep = 2;
  std::int64_t begun_ms = 0;  // the begin of the last snapshot; 0: none yet
  unsigned failures = 0;      // the number of consecutive failures
  std::string error;          // the error of the last snapshot; empty: it succeeded
};
template <std::same_as<Protection> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("every_ms", &T::every_ms), record::field("folder", &T::folder),
                        record::field("node", &T::node), record::field("keep", &T::keep),
                        record::field("begun_ms", &T::begun_ms), record::field("failures", &T::failures),
                        record::field("error", &T::error));
}

// The last successful snapshot of a job.
struct SnapshotFacts {
  Image image;
  std::int64_t pause_ns = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t waited_bytes = 0;
};
template <std::same_as<SnapshotFacts> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("image", &T::image), record::field("pause_ns", &T::pause_ns),
                        record::field("written_bytes", &T::written_bytes),
                        record::field("waited_bytes", &T::waited_bytes));
}

enum class OperationGoal : std::uint8_t { kParked = 1, kRunning = 2 };
enum class OperationStage : std::uint8_t {
  kTaking = 1,  // a snapshot is being taken, after which the job ends
  kEnding,      // the instances up to `fenced` are being ended
  kStarting,    // the next instance is being started from the image
};
constexpr auto names_of(record::Of<OperationGoal>) {
  return record::names<OperationGoal>(
      {{OperationGoal::kParked, "parked"}, {OperationGoal::kRunning, "running"}});
}
constexpr auto names_of(record::Of<OperationStage>) {
  return record::names<OperationStage>({{OperationStage::kTaking, "taking"},
                                        {OperationStage::kEnding, "ending"},
                                        {OperationStage::kStarting, "starting"}});
}

// The transition of a job between running and being parked in an image. Each stage is durable before its
// first order is sent, and continues after a restart of the coordinator.
struct ImageOperation {
  OperationGoal goal = OperationGoal::kRunning;
  OperationStage stage = OperationStage::kEnding;
  std::string verb;  // the command that began the operation, for display: suspend, park, restore or resume
  std::string reason;
  bool by_user = false;  // true if a user requested it; a job parked by a user does not resume automatically
  Image image;           // in kTaking the newest existing image, otherwise the image of the operation
  bool instance_ended = false;      // the instance is known to have ended, or the operator has confirmed it
  bool operator_confirmed = false;  // the operator confirmed that the instance has ended
  std::int64_t ended_ms = 0;        // when the instance ended; 0: it has not ended
  wire::Incarnation fenced = 0;     // instances up to this incarnation must end
  std::string to_node;              // the target node, for kRunning
  std::uint32_t to_gpu = 0;
  std::int64_t lost_ms = 0;      // the time of work that is lost, in milliseconds; set in kStarting
  std::int64_t deadline_ms = 0;  // the operation's deadline in Unix milliseconds, for display
  std::string cancelled;         // why the operation is canceled; empty: it is not canceled
  bool stops = false;  // true if the job must be stopped after the operation, however the operation ends
  std::int64_t stop_grace_ms = 0;
};
template <std::same_as<ImageOperation> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("goal", &T::goal), record::field("stage", &T::stage), record::field("verb", &T::verb),
      record::field("why", &T::reason), record::field("by_user", &T::by_user),
      record::field("image", &T::image), record::field("gone", &T::instance_ended),
      record::field("by_word", &T::operator_confirmed), record::field("ended_ms", &T::ended_ms),
      record::field("fenced", &T::fenced), record::field("to_node", &T::to_node),
      record::field("to_gpu", &T::to_gpu), record::field("lost_ms", &T::lost_ms),
      record::later("deadline_ms", &T::deadline_ms), record::later("cancelled", &T::cancelled),
      record::later("stops", &T::stops), record::later("stop_grace_ms", &T::stop_grace_ms));
}

}  // namespace ckpt::coordinator
