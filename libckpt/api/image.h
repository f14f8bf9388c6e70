// SPDX-License-Identifier: Apache-2.0
// Images of jobs, the tasks that take images or start jobs from them, and protection, as the API shows them
// (docs/api.md). Texts are ids ("j3.v12@node-a"), places ("node-a:0") and times (RFC 3339, UTC); `_ms` are
// milliseconds. An optional member without a value is null.
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/record/fields.h"

namespace ckpt::api {

struct Image {
  std::string id;
  std::string job;
  std::optional<std::string> job_name;  // the name of the job; null if the job is no longer known
  std::uint64_t version = 0;
  std::optional<std::uint64_t> sequence;  // a number that is higher for newer images; null for an image from
                                          // an older build
  std::optional<std::uint64_t> set;     // for a job of several ranks: the number of the ranks' common barrier
  std::optional<std::uint64_t> parent;  // the version on which this image builds
  std::string node;
  std::optional<std::string> folder;  // the folder of the checkpoint store; null if the image is in the
                                      // node's own checkpoint store
  std::string created;
  std::int64_t age_ms = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t new_bytes = 0;  // the bytes of this image that its parent does not have
  std::optional<double> pause_ms;
  std::string tier;  // the tier of the image: disk, memory, or memory+disk
  std::uint64_t memory_bytes = 0;
  std::optional<std::uint64_t> disk_bytes;  // the bytes of the image on disk; null if the checkpoint store
                                            // has no memory tier
  std::optional<std::string> gpu_model;
  bool damaged = false;
  std::optional<std::string> suspect;  // the reason why the memory in the image may be wrong
  bool readable = false;               // whether a connected node can read the image
};
template <std::same_as<Image> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("id", &T::id), record::field("job", &T::job), record::field("job_name", &T::job_name),
      record::field("version", &T::version), record::field("sequence", &T::sequence),
      record::field("set", &T::set), record::field("parent", &T::parent), record::field("node", &T::node),
      record::field("folder", &T::folder), record::field("created", &T::created),
      record::field("age_ms", &T::age_ms), record::field("incarnation", &T::incarnation),
      record::field("state_bytes", &T::state_bytes), record::field("new_bytes", &T::new_bytes),
      record::field("pause_ms", &T::pause_ms), record::field("tier", &T::tier),
      record::field("memory_bytes", &T::memory_bytes), record::field("disk_bytes", &T::disk_bytes),
      record::field("gpu_model", &T::gpu_model), record::field("damaged", &T::damaged),
      record::field("suspect", &T::suspect), record::field("readable", &T::readable));
}

// The measurements of a snapshot.
struct SnapshotReport {
  std::optional<std::uint64_t> version;  // the number of the version; set once the version is durable
  std::optional<std::uint64_t> parent;
  std::optional<std::int64_t> barrier_ms;  // the Unix time of the barrier
  std::optional<double> pause_ms;
  std::optional<double> total_ms;
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t host_bytes = 0;
  std::uint64_t waited_bytes = 0;  // the bytes that did not fit into staging memory, so that the job waited
                                   // for them
};
template <std::same_as<SnapshotReport> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("version", &T::version), record::field("parent", &T::parent),
      record::field("barrier_ms", &T::barrier_ms), record::field("pause_ms", &T::pause_ms),
      record::field("total_ms", &T::total_ms), record::field("state_bytes", &T::state_bytes),
      record::field("dirty_bytes", &T::dirty_bytes), record::field("written_bytes", &T::written_bytes),
      record::field("host_bytes", &T::host_bytes), record::field("waited_bytes", &T::waited_bytes));
}

// A job that continues from an image.
struct Restored {
  std::string image;
  std::string at;  // the place of the job; for a job of several ranks, the nodes of the ranks
  std::uint64_t incarnation = 0;
  std::int64_t lost_ms = 0;            // the duration of the work that was lost
  std::optional<double> fill_ms;       // the duration of reading the image into memory
  std::optional<std::string> suspect;  // the reason why the memory in the image may be wrong
  std::optional<std::string> note;     // the reason why this is not the newest image
};
template <std::same_as<Restored> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("image", &T::image), record::field("at", &T::at),
                        record::field("incarnation", &T::incarnation), record::field("lost_ms", &T::lost_ms),
                        record::field("fill_ms", &T::fill_ms), record::field("suspect", &T::suspect),
                        record::field("note", &T::note));
}

struct ImageTask {
  std::string id;
  std::string verb;  // the requested command: snapshot, suspend, park, restore or resume
  std::string job;
  std::string job_name;
  bool open = false;
  std::string state;             // the state of the task: copying, writing, ending, starting, done or failed
  std::optional<int> exit_code;  // the exit code of the task; null while the task is open
  std::optional<std::string> error;
  std::optional<std::string> image;
  std::optional<SnapshotReport> report;
  std::optional<Restored> restored;
  std::vector<std::string> images;  // one image per rank, for a job of several ranks
};
template <std::same_as<ImageTask> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("id", &T::id), record::field("verb", &T::verb),
                        record::field("job", &T::job), record::field("job_name", &T::job_name),
                        record::field("open", &T::open), record::field("state", &T::state),
                        record::field("exit_code", &T::exit_code), record::field("error", &T::error),
                        record::field("image", &T::image), record::field("report", &T::report),
                        record::field("restored", &T::restored), record::field("images", &T::images));
}

// The answer to `protect`.
struct Protected {
  std::string job;
  std::int64_t every_ms = 0;
  std::optional<std::string> to;            // the node or folder that stores the images; null for the node on
                                            // which the job runs
  std::uint32_t keep = 0;                   // the number of images that are retained
  std::optional<double> expected_pause_ms;  // the expected pause of each snapshot
  std::optional<std::string> note;          // a text that describes the cost of protection, for people
  bool dry_run = false;
};
template <std::same_as<Protected> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job), record::field("every_ms", &T::every_ms),
                        record::field("to", &T::to), record::field("keep", &T::keep),
                        record::field("expected_pause_ms", &T::expected_pause_ms),
                        record::field("note", &T::note), record::field("dry_run", &T::dry_run));
}

// The answer to `unprotect`.
struct Unprotected {
  std::string job;
};
template <std::same_as<Unprotected> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job));
}

// A restore or resume that was only planned. Nothing was changed.
struct RestorePlan {
  bool dry_run = true;
  std::string image;
  std::string created;  // the time at which the image was taken
  std::string to;
  bool runs = false;         // whether an instance of the job runs, which the restore would end
  std::int64_t lost_ms = 0;  // the duration of the work that would be lost
  bool possible = false;
  std::optional<std::string> reason;  // the reason why the restore is not possible; null if it is possible
  std::string verb;                   // the planned command: restore or resume
  std::string job;
  std::optional<std::string> job_name;
};
template <std::same_as<RestorePlan> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("dry_run", &T::dry_run), record::field("image", &T::image),
                        record::field("created", &T::created), record::field("to", &T::to),
                        record::field("runs", &T::runs), record::field("lost_ms", &T::lost_ms),
                        record::field("possible", &T::possible), record::field("reason", &T::reason),
                        record::field("verb", &T::verb), record::field("job", &T::job),
                        record::field("job_name", &T::job_name));
}

}  // namespace ckpt::api
