// SPDX-License-Identifier: Apache-2.0
// The coordinator's records of a job's images and protection. They are part of the job's own record (model.h)
// and change with its state in one write. Plain values; coordinator/images changes them.
#pragma once

#include <cstdint>
#include <string>

#include "libckpt/protocol/wire/image_messages.h"
#include "libckpt/record/fields.h"
#include "libckpt/record/names.h"

namespace ckpt::coordinator {

// A version of a job in a vault.
struct Image {
  std::string node;    // whose vault; for a shared folder the node that wrote it
  std::string folder;  // empty: the node's own
  std::string vault_job;
  wire::JobId job = 0;
  std::uint64_t version = 0;
  std::uint64_t sequence = 0;   // the coordinator's own count (image_numbers.h); 0: of an older build
  std::uint64_t set = 0;        // of a rank: that of its gang's images of one barrier; 0: it is of none
  std::int64_t barrier_ms = 0;  // Unix time: later work of the job is not in it
  std::uint64_t state_bytes = 0;
  std::string gpu_model;
  wire::Incarnation incarnation = 0;  // of the job when it was taken; 0: not known
  std::string suspect;                // why its memory may be wrong (doubt.h); empty: it is not
};
template <std::same_as<Image> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::field("folder", &T::folder),
                        record::field("vault_job", &T::vault_job), record::field("job", &T::job),
                        record::field("version", &T::version), record::later("sequence", &T::sequence),
                        record::later("set", &T::set), record::field("barrier_ms", &T::barrier_ms),
                        record::field("state_bytes", &T::state_bytes),
                        record::field("gpu_model", &T::gpu_model),
                        record::later("incarnation", &T::incarnation), record::later("suspect", &T::suspect));
}

// `protect`: the request and its state.
struct Protection {
  std::int64_t every_ms = 0;
  std::string folder;  // empty: the own vault of the node where the job runs
  std::string node;    // only in this node's own vault; empty: wherever the job runs
  std::uint32_t keep = 2;
  std::int64_t begun_ms = 0;  // the last snapshot; 0: none yet
  unsigned failures = 0;      // in a row
  std::string error;          // of the last one; empty if it was good
};
template <std::same_as<Protection> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("every_ms", &T::every_ms), record::field("folder", &T::folder),
                        record::field("node", &T::node), record::field("keep", &T::keep),
                        record::field("begun_ms", &T::begun_ms), record::field("failures", &T::failures),
                        record::field("error", &T::error));
}

// The last good snapshot of a job.
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
  kTaking = 1,  // a snapshot that the job does not go on after
  kEnding,      // the instances up to `fenced` end
  kStarting,    // the next instance starts from the image
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

// A job on its way between running and resting in an image. Each stage is durable before its first order is
// sent, and is carried on after a restart of the coordinator.
struct ImageOperation {
  OperationGoal goal = OperationGoal::kRunning;
  OperationStage stage = OperationStage::kEnding;
  std::string verb;  // suspend, park, restore, resume: for people
  std::string reason;
  bool by_user = false;             // a job that a user has parked does not resume by itself
  Image image;                      // kTaking: the newest one before it; else the one that counts
  bool instance_ended = false;      // the instance is known to have ended, or the operator has confirmed it
  bool operator_confirmed = false;  // the latter
  std::int64_t ended_ms = 0;        // when; 0: it has not
  wire::Incarnation fenced = 0;     // instances up to this one must end
  std::string to_node;              // kRunning
  std::uint32_t to_gpu = 0;
  std::int64_t lost_ms = 0;      // kStarting: of work
  std::int64_t deadline_ms = 0;  // for people: Unix time at which it is given up
  std::string cancelled;         // why it is given up; empty: it is not
  bool stops = false;            // for the job's stop: however it ends, the job is stopped then
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
