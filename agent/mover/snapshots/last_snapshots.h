// SPDX-License-Identifier: Apache-2.0
// The fingerprints of each job's memory in its last version, of snapshots that this mover has taken. So the
// next snapshot copies and writes only chunks that differ. Fingerprints are under a key of the job's own that
// never leaves this process. A mover that is started again knows nothing. The next snapshot copies everything,
// and content that the vault has already is not written again (it compares names). What is known of a job
// goes when the job leaves the GPU. Scans hold streams and pinned memory: only the jobs that were snapshot
// last keep theirs.
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
#include "libckpt/protocol/wire/switch_messages.h"

namespace ckpt::mover {

// A run of a job's memory, as long as it is the same.
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
  std::unique_ptr<WideScan> scan;  // null after a long rest

  // Nothing is known, under a new key.
  static Result<std::unique_ptr<LastSnapshot>> create(const Device& device);
  // There is a scan after it, under the key as before.
  Result<void> prepare_scan(const Device& device);
  void forget() {
    version = 0;
    extents.clear();
  }
};

class LastSnapshots {
 public:
  using Key = std::pair<std::string, std::string>;  // folder of the vault, name of the job in it
  // Null: none, or another session has it.
  std::unique_ptr<LastSnapshot> take(const Key& key);
  // Beyond the limits the oldest records are dropped.
  void put(const Key& key, std::unique_ptr<LastSnapshot> last);
  // The job has left this GPU. Returns the number of versions released.
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
