// SPDX-License-Identifier: Apache-2.0
// Images of jobs, the tasks that take them or let jobs go on from them, and protection, as the API shows them
// (docs/api.md). Texts are ids ("j3.v12@node-a"), places ("node-a:0") and times (RFC 3339, UTC); `_ms` are
// milliseconds. An optional member without a value is null.
// Threads: values. Errors: none.
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
  std::optional<std::string> job_name;  // null: the job is not known any more
  std::uint64_t version = 0;
  std::optional<std::uint64_t> sequence;  // higher: newer; null: of an older build
  std::optional<std::uint64_t> set;       // the number of the common barrier of several ranks
  std::optional<std::uint64_t> parent;    // the version that it builds upon
  std::string node;
  std::optional<std::string> folder;  // null: in the node's own vault
  std::string created;
  std::int64_t age_ms = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t new_bytes = 0;  // beyond its parent
  std::optional<double> pause_ms;
  std::string tier;  // disk, memory, memory+disk
  std::uint64_t memory_bytes = 0;
  std::optional<std::uint64_t> disk_bytes;  // null: the vault has no tier in memory
  std::optional<std::string> gpu_model;
  bool damaged = false;
  std::optional<std::string> suspect;  // why its memory may be wrong
  bool readable = false;               // a node that can read it is connected
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
  std::optional<std::uint64_t> version;  // once it is durable
  std::optional<std::uint64_t> parent;
  std::optional<std::int64_t> barrier_ms;  // Unix time of its state
  std::optional<double> pause_ms;
  std::optional<double> total_ms;
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t host_bytes = 0;
  std::uint64_t waited_bytes = 0;  // that staging could not hold: the job waited for them
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

// A job that goes on from an image.
struct Restored {
  std::string image;
  std::string at;  // a place; of a job of several ranks their nodes
  std::uint64_t incarnation = 0;
  std::int64_t lost_ms = 0;            // work that is lost
  std::optional<double> fill_ms;       // reading the image into memory
  std::optional<std::string> suspect;  // why its memory may be wrong
  std::optional<std::string> note;     // why it is not the newest image
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
  std::string verb;  // snapshot, suspend, park, restore, resume
  std::string job;
  std::string job_name;
  bool open = false;
  std::string state;             // copying, writing, ending, starting, done, failed
  std::optional<int> exit_code;  // null while it is open
  std::optional<std::string> error;
  std::optional<std::string> image;
  std::optional<SnapshotReport> report;
  std::optional<Restored> restored;
  std::vector<std::string> images;  // one by rank, for a job of several ranks
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

// The answer of `protect`.
struct Protected {
  std::string job;
  std::int64_t every_ms = 0;
  std::optional<std::string> to;            // a node or a folder; null: where it runs
  std::uint32_t keep = 0;                   // images that stay
  std::optional<double> expected_pause_ms;  // each snapshot's
  std::optional<std::string> note;          // for people: its cost
  bool dry_run = false;
};
template <std::same_as<Protected> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job), record::field("every_ms", &T::every_ms),
                        record::field("to", &T::to), record::field("keep", &T::keep),
                        record::field("expected_pause_ms", &T::expected_pause_ms),
                        record::field("note", &T::note), record::field("dry_run", &T::dry_run));
}

// The answer of `unprotect`.
struct Unprotected {
  std::string job;
};
template <std::same_as<Unprotected> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("job", &T::job));
}

// A restore or resume that was only planned.
struct RestorePlan {
  bool dry_run = true;
  std::string image;
  std::string created;  // the image's time
  std::string to;
  bool runs = false;         // an instance would be ended
  std::int64_t lost_ms = 0;  // work that would be lost
  bool possible = false;
  std::optional<std::string> reason;  // why it is not
  std::string verb;                   // restore, resume
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
