// SPDX-License-Identifier: Apache-2.0
// The fingerprints of each job's memory in its last version, of snapshots that this mover has taken. So the
// next snapshot copies and writes only chunks that differ. Fingerprints are under a key of the job's own that
// never leaves this process. A mover that is started again knows nothing. The next snapshot copies
// everything, and content that the vault has already is not written again (it compares names). The records of
// a job are dropped when it leaves the GPU. Scans hold streams and pinned memory, so only the jobs with the
// newest snapshots keep theirs.
// Threads: all calls from any; a record that was taken belongs to its taker. Ownership: the Device outlives
// it. Errors: the driver's.
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

// A stretch of a job's memory, for as long as it is the same.
struct MemoryPlace {
  std::uint64_t region = 0;
  std::uint64_t generation = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend auto operator<=>(const MemoryPlace&, const MemoryPlace&) = default;
};

struct KnownExtent {
  std::uint64_t id = 0;  // in the vault
  std::vector<track::Fingerprint> fingerprints;
};

struct LastSnapshot {
  wire::JobId job = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t version = 0;  // 0: nothing is known
  std::uint64_t next_id = 1;
  std::map<MemoryPlace, KnownExtent> extents;
  std::shared_ptr<const track::FingerprintParams> params;
  std::unique_ptr<WideScan> scan;  // null if it was not used for long

  // Forgets everything, and makes a new key.
  static Result<std::unique_ptr<LastSnapshot>> create(const Device& device);
  // Makes a scan if there is none, under the same key.
  Result<void> prepare_scan(const Device& device);
  void forget() {
    version = 0;
    extents.clear();
  }
};

class LastSnapshots {
 public:
  using Key = std::pair<std::string, std::string>;  // folder of the vault, name of the job in it
  // Takes a record. Null: there is none, or another session has it.
  std::unique_ptr<LastSnapshot> take(const Key& key);
  // Keeps a record, and drops the oldest beyond the limits.
  void put(const Key& key, std::unique_ptr<LastSnapshot> last);
  // Forgets a job that has left this GPU. Returns the number of versions released.
  std::size_t forget(wire::JobId job);

 private:
  struct Kept {
    Key key;
    std::unique_ptr<LastSnapshot> last;
  };
  std::mutex mutex_;
  std::list<Kept> all_;  // oldest first
};

}  // namespace ckpt::mover
