// SPDX-License-Identifier: Apache-2.0
// Messages about images of jobs in checkpoint stores (libckpt/store/local): taking an image, starting a job
// from an image, and the contents of a checkpoint store.
//
//   agent                          coordinator
//     | <------------- TakeSnapshot     |   to the node where the job runs
//     | <------------- GatherRank       |   to the node of each rank of a gang whose images are taken together;
//                                           answered with RankGathered
//     | SnapshotReport  ------------->  |   while it is taken, and once it is durable (or has failed); then
//                                           Reply
//     | <------------- RestoreImage     |   to the node where it shall run; answered with Reply once it runs
//                                           (then JobChange as always)
//     | RestoreReport   ------------->  |   before that Reply, and behind the agent's hello of every instance
//                                           that lives: what it runs from
//     | <--- CheckpointStoreOrder        |   list, remove, check; answered with Reply
//     | <--- GrantCheckpointStore        |   to the node whose checkpoint store another one is about to read
//                                           or write; answered with CheckpointStoreGrant
//     | <------------- ReadImage        |   the record of a job in an image; answered with ImageFacts
//     | CheckpointStoreContents  ----->  |   behind the agent's hello and at every change: what this node's
//                                           checkpoint store has
//
// A checkpoint store is a folder. The path is the node's own name for it. An empty `folder` is the node's own
// checkpoint store (agent.toml `checkpoint_store_dir`, by default HOME/vault). A shared folder has the same
// path on every node. Fields are only ever appended. Times are Unix milliseconds, durations nanoseconds, and
// sizes bytes. Decoding checks sizes and enums; users of a message check everything else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/record/names.h"

namespace ckpt::wire {

// Another node's checkpoint store and the access that the node granted. With an empty address, the checkpoint
// store is on this node.
struct CheckpointStorePeer {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string node;
  std::string address;
  std::vector<std::byte> token;
  std::uint64_t limit_bytes = 0;  // the limit on the job's size in that checkpoint store; 0 if there is none
  template <class A>
  decltype(auto) fields(A& a) {
    return a(node, address, token, limit_bytes);
  }
};

struct TakeSnapshot {
  static constexpr std::uint8_t kVersion = 5, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kTakeSnapshot;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::string folder;      // the folder of the checkpoint store; if empty, the node's own checkpoint store
  std::string image_job;   // the job's name in the checkpoint store, made of letters, digits, '.', '_', '-'
  std::uint32_t keep = 2;  // the number of versions that are retained
  JobSpec spec;            // the description for starting the job again, which is stored in the image
  bool end_after =
      false;  // `suspend`: once the image is durable, the job does not continue after the barrier; if the
              // image fails, it continues
  CheckpointStorePeer peer;  // the access to the checkpoint store; with an empty folder, the access to that
                             // node's own checkpoint store
  // The coordinator's own count of images: a later image has a higher number, whatever the nodes' clocks
  // show. It is 0 from a coordinator without such a count, which also does not know
  // CheckpointStoreContents::image_job.
  std::uint64_t sequence = 0;
  // Whether the order cancels a running snapshot. Only job and incarnation are used. The answer is sent once
  // the job runs without the snapshot. kNotFound: there is no such snapshot. kRefused: it is too late,
  // because the job has left for its image.
  bool cancel = false;
  // The least number of the image: it must be above the numbers of the job's images elsewhere.
  std::uint64_t first_version = 0;
  // The number of the set that a gang's image belongs to. Only GatherRank holds the image's rank, and the
  // image is of the barrier that all ranks agreed on.
  std::uint64_t set = 0;
  // With `set`: whether the rank stays paused after its image is durable. GatherAct::kGoOn, a cancellation,
  // the end of the time limit for orders, or the rank's exit ends the pause.
  bool holds_after = false;
  bool full = false;  // with `set`: whether reusing data from older images is forbidden
  // Returns whether the order fits the job. Ranks with peers are only stored together, as a set.
  [[nodiscard]] bool fits(const JobSpec& stored) const noexcept {
    return set != 0 || !stored.gang.has_peers();
  }
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job, incarnation, folder, image_job, keep, spec, end_after, peer, sequence, cancel,
             first_version, set, holds_after, full);
  }
};

enum class GatherAct : std::uint8_t {
  kInvalid = 0,
  kReady = 1,    // an order that is answered once the work that can precede the pause is done
  kStopAt = 2,   // the rank waits at that barrier, or at its next barrier (GANG-1)
  kPauseAt = 3,  // the image is of that barrier; the answer is sent at once
  kGoOn = 4,     // the set is canceled; the answer is sent once the rank runs
};
[[nodiscard]] constexpr bool is_known(GatherAct a) {
  return a >= GatherAct::kReady && a <= GatherAct::kGoOn;
}

// An order to the node of a rank. The rank has a running snapshot with this `set`, or takes part in a move of
// ranks. The answer is RankGathered, or a Reply with the reason. kNotFound: there is no such snapshot.
struct GatherRank {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kGatherRank;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::uint64_t set = 0;
  GatherAct act = GatherAct::kReady;
  std::uint64_t barrier = 0;
  MigrationId migration = 0;  // the move of ranks, whose attempt number is then `set`; 0 for images
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job, incarnation, set, act, barrier, migration);
  }
};

// The answer to GatherRank. With kStopAt, it has the barrier where the rank will stop. It also has the number
// of barriers that the rank had reached when the order took effect.
struct RankGathered {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kRankGathered;
  std::uint64_t request_id = 0;
  std::uint64_t stop_at = 0;
  std::uint64_t barriers = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, stop_at, barriers);
  }
};

enum class SnapshotPhase : std::uint8_t { kInvalid = 0, kCopying = 1, kWriting = 2, kDone = 3, kFailed = 4 };
[[nodiscard]] constexpr bool is_known(SnapshotPhase p) {
  return p >= SnapshotPhase::kCopying && p <= SnapshotPhase::kFailed;
}

struct SnapshotReport {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kSnapshotReport;
  JobId job = 0;
  Incarnation incarnation = 0;
  SnapshotPhase phase = SnapshotPhase::kCopying;
  std::string folder;
  std::string image_job;
  std::uint64_t version = 0;    // the number of the version; set once the image is durable
  std::uint64_t parent = 0;     // the number of the parent version; 0 for a full image
  std::int64_t barrier_ms = 0;  // the Unix time of the barrier, whose state the image has
  std::int64_t pause_ns = 0;    // the duration of the job's pause
  std::int64_t total_ns = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;    // the bytes of chunks that differ from the parent
  std::uint64_t written_bytes = 0;  // the bytes written to the checkpoint store
  std::uint64_t host_bytes = 0;
  std::uint64_t waited_bytes = 0;  // the bytes that did not fit into staging memory, so that the job waited
                                   // for them
  std::string error;
  // The number of the set, as in TakeSnapshot. Such a report is repeated after the agent's hello for as long
  // as the rank waits for orders.
  std::uint64_t set = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, incarnation, phase, folder, image_job, version, parent, barrier_ms, pause_ns, total_ns,
             state_bytes, dirty_bytes, written_bytes, host_bytes, waited_bytes, error, set);
  }
};

struct RestoreImage {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kRestoreImage;
  std::uint64_t request_id = 0;
  JobSpec spec;  // id, new incarnation, and ranks with their GPUs; command and environment are as submitted
  std::string folder;
  std::string image_job;
  std::uint64_t version =
      0;  // the version to restore; 0: the newest intact version; a damaged version is replaced by an older
          // one, which is reported
  CheckpointStorePeer peer;  // the access to the checkpoint store, as in TakeSnapshot
  // Whether the order only queries the restore and starts nothing. The answer is ok if the instance runs or
  // has run, kUnavailable if its restore is running, and kNotFound otherwise.
  bool asks_only = false;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, spec, folder, image_job, version, peer, asks_only);
  }
};

// The image from which an instance was started. It may differ from the image in the order, which may have
// been damaged.
struct RestoreReport {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kRestoreReport;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::string folder;
  std::string image_job;
  std::uint64_t version = 0;
  std::int64_t barrier_ms = 0;  // the Unix time of the image's barrier; the job's work since then is lost
  std::string skipped;          // the newer versions, each with the reason why it was not used; empty if
                                // there were none
  std::int64_t fill_ns = 0;     // the duration of reading the image into memory
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, incarnation, folder, image_job, version, barrier_ms, skipped, fill_ns);
  }
};

struct ImageRow {
  static constexpr std::uint8_t kVersion = 4, kCompat = 1;
  std::string image_job;
  JobId job = 0;
  std::uint64_t version = 0;
  std::uint64_t parent = 0;
  std::int64_t created_ms = 0;  // the time of the image's barrier
  Incarnation incarnation = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t written_bytes = 0;
  bool damaged = false;
  std::string gpu_model;  // the GPU model where the image was taken; a transparent job's image needs the same
                          // model
  // The image's bytes in each tier, if the checkpoint store has a tier in memory. Both are 0 if all bytes are
  // on disk. Chunks that versions share count for each version.
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::uint64_t sequence = 0;  // the sequence number of the order that took the image; 0 from an older build
  std::uint64_t set = 0;       // the number of the set, as in TakeSnapshot
};
template <std::same_as<ImageRow> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("vault_job", &T::image_job), record::field("job", &T::job),
      record::field("version", &T::version), record::field("parent", &T::parent),
      record::field("created_ms", &T::created_ms), record::field("incarnation", &T::incarnation),
      record::field("state_bytes", &T::state_bytes), record::field("written_bytes", &T::written_bytes),
      record::field("damaged", &T::damaged), record::field("gpu_model", &T::gpu_model),
      record::later("memory_bytes", &T::memory_bytes), record::later("disk_bytes", &T::disk_bytes),
      record::later("sequence", &T::sequence), record::later("set", &T::set));
}

struct CheckpointStoreContents {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kCheckpointStoreContents;
  std::string folder;  // the folder of the checkpoint store, as in TakeSnapshot
  std::uint64_t used_bytes = 0;
  std::uint64_t limit_bytes = 0;  // the limit on the checkpoint store's size; 0 if there is none
  std::vector<ImageRow> images;   // all images in the folder or, if image_job is set, all images of that job
  std::string image_job;          // if not empty: the list has only this job's images, and known images of
                                  // other jobs stay
  // A list that one frame cannot hold is sent in consecutive parts. The first has part 0, and all but the
  // last have `more`.
  std::uint32_t part = 0;
  bool more = false;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(folder, used_bytes, limit_bytes, images, image_job, part, more);
  }
};

enum class CheckpointStoreAct : std::uint8_t {
  kInvalid = 0,
  kList = 1,
  kRemoveVersion = 2,
  kRemoveJob = 3,
  kCheck = 4,  // checks whether the node could write to the folder; changes nothing
};
[[nodiscard]] constexpr bool is_known(CheckpointStoreAct a) {
  return a >= CheckpointStoreAct::kList && a <= CheckpointStoreAct::kCheck;
}

// An order about a checkpoint store. The answer is Reply. CheckpointStoreContents is sent before the Reply
// and has the contents after the order.
struct CheckpointStoreOrder {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kCheckpointStoreOrder;
  std::uint64_t request_id = 0;
  CheckpointStoreAct act = CheckpointStoreAct::kList;
  std::string folder;
  std::string image_job;
  std::uint64_t version = 0;
  bool of_job = false;  // whether the contents before the Reply are only those of image_job
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, act, folder, image_job, version, of_job);
  }
};

// Lets a holder of the token use the node's own checkpoint store for one job. The answer is
// CheckpointStoreGrant, or a Reply with the reason. If the message names a token to revoke, nothing is
// granted and the answer is a Reply.
struct GrantCheckpointStore {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kGrantCheckpointStore;
  std::uint64_t request_id = 0;
  std::string image_job;
  bool writes = false;
  bool durable = false;  // whether the written data survives a power failure of the node, which excludes the
                         // node's memory
  std::uint64_t lasts_ms = 0;
  std::vector<std::byte> revoke;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, image_job, writes, durable, lasts_ms, revoke);
  }
};

struct CheckpointStoreGrant {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kCheckpointStoreGrant;
  std::uint64_t request_id = 0;
  std::string address;
  std::vector<std::byte> token;
  std::uint64_t limit_bytes = 0;  // the limit on the job's size in this checkpoint store; 0 if there is none
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, address, token, limit_bytes);
  }
};

// A query: how was the job of an image started? The answer is ImageFacts, or a Reply with the reason.
struct ReadImage {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kReadImage;
  std::uint64_t request_id = 0;
  std::string folder;
  std::string image_job;
  std::uint64_t version = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, folder, image_job, version);
  }
};

struct ImageFacts {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kImageFacts;
  std::uint64_t request_id = 0;
  JobSpec spec;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, spec);
  }
};

}  // namespace ckpt::wire
