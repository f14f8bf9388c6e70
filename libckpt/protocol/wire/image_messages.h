// SPDX-License-Identifier: Apache-2.0
// Images of jobs in vaults (libckpt/store/vault): taking them, starting a job from one, what a vault holds.
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
//     | <------------- VaultOrder       |   list, remove, check; answered with Reply
//     | <------------- GrantVault       |   to the node whose vault another one is about to read or write;
//                                           answered with VaultGrant
//     | <------------- ReadImage        |   the record of a job in an image; answered with ImageFacts
//     | VaultContents   ------------->  |   behind the agent's hello and at every change: what this node's
//                                           vault has
//
// A vault is a folder. The path is the node's own name for it. An empty `folder` is the node's own vault
// (agent.toml `vault_dir`, by default HOME/vault). A shared folder has the same path on every node. Fields
// are only ever appended. Times are Unix milliseconds, spans nanoseconds, sizes bytes. Decoding bounds sizes
// and enums; everything else is checked by its user.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/record/names.h"

namespace ckpt::wire {

// Another node's vault, by what it has granted. An empty address: the vault is here.
struct VaultPeer {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string node;
  std::string address;
  std::vector<std::byte> token;
  std::uint64_t limit_bytes = 0;  // of what is written; 0: none
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
  std::string folder;      // of the vault; empty: the node's own
  std::string vault_job;   // the job's name in the vault: letters, digits, '.', '_', '-'
  std::uint32_t keep = 2;  // versions that stay
  JobSpec spec;            // goes into the image: how to start the job again
  bool end_after =
      false;  // `suspend`: the job does not go on after the barrier once the image is durable; it goes on if it fails
  VaultPeer peer;  // with an empty folder: in that node's own vault
  // The coordinator's own count of images: a later one has a higher number, whatever the nodes' clocks show.
  // 0: from a coordinator without one, which also does not know VaultContents::vault_job.
  std::uint64_t sequence = 0;
  // Gives up a snapshot that is under way (job and incarnation count, and nothing else); answered once the
  // job runs on without it. kNotFound: there is none. kRefused: too late, the job has left for its image.
  bool cancel = false;
  // The image's number is at least this one: beyond those of the job's images elsewhere.
  std::uint64_t first_version = 0;
  // The number of the set that a gang's image belongs to. Its rank is held by GatherRank only, and the image
  // is of the barrier that all have agreed on.
  std::uint64_t set = 0;
  bool holds_after =
      false;  // with `set`: the rank stays paused behind its durable image, until GatherRank or its end
  bool full = false;  // with `set`: nothing is taken over from older images
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job, incarnation, folder, vault_job, keep, spec, end_after, peer, sequence, cancel,
             first_version, set, holds_after, full);
  }
};

enum class GatherAct : std::uint8_t {
  kInvalid = 0,
  kReady = 1,    // answered once what the pause need not wait for is done
  kStopAt = 2,   // the rank waits at that barrier, or at its next one (GANG-1)
  kPauseAt = 3,  // the image is of that barrier; answered at once
  kGoOn = 4,     // the set is given up: answered once the rank runs
};
[[nodiscard]] constexpr bool is_known(GatherAct a) {
  return a >= GatherAct::kReady && a <= GatherAct::kGoOn;
}

// To the node of a rank whose snapshot with this `set` is under way, or which takes part in a move of ranks. Answered with RankGathered, or with a Reply that has
// the reason. kNotFound: there is no such snapshot.
struct GatherRank {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kGatherRank;
  std::uint64_t request_id = 0;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::uint64_t set = 0;
  GatherAct act = GatherAct::kReady;
  std::uint64_t barrier = 0;
  MigrationId migration =
      0;  // for this move of ranks; then `set` is the number of the attempt. 0: for images
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, job, incarnation, set, act, barrier, migration);
  }
};

// With kStopAt: where the rank will stop, and how many barriers it had reached when that was in force.
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
  std::string vault_job;
  std::uint64_t version = 0;    // once durable
  std::uint64_t parent = 0;     // 0: a full one
  std::int64_t barrier_ms = 0;  // Unix time of the barrier: the state is of that moment
  std::int64_t pause_ns = 0;    // the job stood still
  std::int64_t total_ns = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t dirty_bytes = 0;    // of chunks that differ from the parent
  std::uint64_t written_bytes = 0;  // to the vault
  std::uint64_t host_bytes = 0;
  std::uint64_t waited_bytes = 0;  // that staging could not hold: the job waited for them
  std::string error;
  // As in TakeSnapshot. Such a report is repeated behind the agent's hello for as long as the rank waits for orders.
  std::uint64_t set = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, incarnation, phase, folder, vault_job, version, parent, barrier_ms, pause_ns, total_ns,
             state_bytes, dirty_bytes, written_bytes, host_bytes, waited_bytes, error, set);
  }
};

struct RestoreImage {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kRestoreImage;
  std::uint64_t request_id = 0;
  JobSpec spec;  // id, the new incarnation, ranks with their GPUs; command and environment as submitted
  std::string folder;
  std::string vault_job;
  std::uint64_t version =
      0;           // 0: the newest that is whole. A damaged one falls back to an older one, and reports it
  VaultPeer peer;  // as in TakeSnapshot
  // Nothing is started: the instance runs or has run (ok), its restore is under way (kUnavailable), or
  // neither (kNotFound).
  bool asks_only = false;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, spec, folder, vault_job, version, peer, asks_only);
  }
};

// The image that an instance was started from: not always the one that the order named, which may have been
// damaged.
struct RestoreReport {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kRestoreReport;
  JobId job = 0;
  Incarnation incarnation = 0;
  std::string folder;
  std::string vault_job;
  std::uint64_t version = 0;
  std::int64_t barrier_ms = 0;  // Unix time: what the job did since is lost
  std::string skipped;          // newer versions, and why each was not used; empty: none was
  std::int64_t fill_ns = 0;     // reading it into memory took so long
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, incarnation, folder, vault_job, version, barrier_ms, skipped, fill_ns);
  }
};

struct ImageRow {
  static constexpr std::uint8_t kVersion = 4, kCompat = 1;
  std::string vault_job;
  JobId job = 0;
  std::uint64_t version = 0;
  std::uint64_t parent = 0;
  std::int64_t created_ms = 0;  // of its barrier
  Incarnation incarnation = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t written_bytes = 0;
  bool damaged = false;
  std::string gpu_model;  // where it was taken; a transparent job's image needs the same
  // The image's bytes in each tier, where the vault has one in memory; both 0: all on the disk. Chunks that
  // versions share count for each.
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::uint64_t sequence = 0;  // of the order that it was taken by; 0: of an older build
  std::uint64_t set = 0;       // as in TakeSnapshot
};
template <std::same_as<ImageRow> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("vault_job", &T::vault_job), record::field("job", &T::job),
      record::field("version", &T::version), record::field("parent", &T::parent),
      record::field("created_ms", &T::created_ms), record::field("incarnation", &T::incarnation),
      record::field("state_bytes", &T::state_bytes), record::field("written_bytes", &T::written_bytes),
      record::field("damaged", &T::damaged), record::field("gpu_model", &T::gpu_model),
      record::later("memory_bytes", &T::memory_bytes), record::later("disk_bytes", &T::disk_bytes),
      record::later("sequence", &T::sequence), record::later("set", &T::set));
}

struct VaultContents {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kVaultContents;
  std::string folder;  // as in TakeSnapshot
  std::uint64_t used_bytes = 0;
  std::uint64_t limit_bytes = 0;  // 0: none
  std::vector<ImageRow> images;   // all of the folder, or of vault_job
  std::string vault_job;          // not empty: only of this job; what is known of others stays
  // A list that one frame does not hold comes in parts, one behind the other: the first has part 0, all but
  // the last have `more`.
  std::uint32_t part = 0;
  bool more = false;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(folder, used_bytes, limit_bytes, images, vault_job, part, more);
  }
};

enum class VaultAct : std::uint8_t {
  kInvalid = 0,
  kList = 1,
  kRemoveVersion = 2,
  kRemoveJob = 3,
  kCheck = 4,  // whether the node could write there; changes nothing
};
[[nodiscard]] constexpr bool is_known(VaultAct a) {
  return a >= VaultAct::kList && a <= VaultAct::kCheck;
}

// Answered with Reply; VaultContents, sent before it, has the contents after that.
struct VaultOrder {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kVaultOrder;
  std::uint64_t request_id = 0;
  VaultAct act = VaultAct::kList;
  std::string folder;
  std::string vault_job;
  std::uint64_t version = 0;
  bool of_job = false;  // the contents are of vault_job alone
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, act, folder, vault_job, version, of_job);
  }
};

// Lets a holder of the token use the node's own vault, for one job. Answered with VaultGrant, or with a Reply
// that has the reason. With a token to revoke nothing is granted, and a Reply is the answer.
struct GrantVault {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kGrantVault;
  std::uint64_t request_id = 0;
  std::string vault_job;
  bool writes = false;
  bool durable = false;  // what is written outlives the node's power: not in its memory
  std::uint64_t lasts_ms = 0;
  std::vector<std::byte> revoke;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, vault_job, writes, durable, lasts_ms, revoke);
  }
};

struct VaultGrant {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kVaultGrant;
  std::uint64_t request_id = 0;
  std::string address;
  std::vector<std::byte> token;
  std::uint64_t limit_bytes = 0;  // what the job may take there; 0: no limit
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, address, token, limit_bytes);
  }
};

// How the job of an image was started. Answered with ImageFacts, or with a Reply that has the reason.
struct ReadImage {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kReadImage;
  std::uint64_t request_id = 0;
  std::string folder;
  std::string vault_job;
  std::uint64_t version = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(request_id, folder, vault_job, version);
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
