// SPDX-License-Identifier: Apache-2.0
// The fingerprints of each job's memory in the last version, from snapshots that this mover has taken.
// Therefore the next snapshot copies and writes only chunks that differ. Fingerprints use a key of the job
// that never leaves this process. A restarted mover has no fingerprints. The next snapshot then copies
// everything, but does not write content again that the checkpoint store already has (the store compares
// names). The records of a job are dropped when it leaves the GPU. Scans hold streams and pinned memory, so
// only the jobs with the newest snapshots keep theirs.
// Threads: any thread may make all calls. A record from extract() belongs to the caller. Ownership: the
// Device outlives it. Errors: the driver's errors.
#pragma once

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "agent/mover/snapshots/wide_scan.h"
#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::mover {

// A part of a job's memory, valid as long as the memory is the same.
struct MemoryPlace {
  std::uint64_t region = 0;
  std::uint64_t generation = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend auto operator<=>(const MemoryPlace&, const MemoryPlace&) = default;
};

struct KnownExtent {
  std::uint64_t id = 0;  // id in the checkpoint store
  std::vector<track::Fingerprint> fingerprints;
};

struct LastSnapshot {
  wire::JobId job = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t version = 0;  // version in the checkpoint store; 0 if nothing is known
  std::uint64_t next_id = 1;
  std::map<MemoryPlace, KnownExtent> extents;
  std::shared_ptr<const track::FingerprintParams> params;
  std::unique_ptr<WideScan> scan;  // null if it was unused for a long time

  // Creates an empty record with a new key.
  static Result<std::unique_ptr<LastSnapshot>> create(const Device& device);
  // Creates a scan if there is none, under the same key.
  Result<void> prepare_scan(const Device& device);
  void forget() {
    version = 0;
    extents.clear();
  }
};

class LastSnapshots {
 public:
  using Key = std::pair<std::string, std::string>;  // folder of the checkpoint store, and name of the job in
                                                    // that store
  // Takes a record. Returns null if there is none, or if another session has it.
  std::unique_ptr<LastSnapshot> extract(const Key& key);
  // Stores a record, and drops the oldest records beyond the limits.
  void put(const Key& key, std::unique_ptr<LastSnapshot> last);
  // Removes the records of a job that has left this GPU. Returns the number of released versions.
  std::size_t forget(wire::JobId job);

 private:
  struct Kept {
    Key key;
    std::unique_ptr<LastSnapshot> last;
  };
  std::mutex mutex_;
  std::list<Kept> all_;  // stored records, oldest first
};

}  // namespace ckpt::mover
