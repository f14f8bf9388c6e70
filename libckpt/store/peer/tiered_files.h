// SPDX-License-Identifier: Apache-2.0
// A checkpoint store with packs in memory up to a limit, and on the disk beyond that limit. All other files
// of a checkpoint store are always on the disk. These are its lock, keys and versions: a few hundred bytes
// each, without which nothing can be found.
//
//   memory/jobs/JOB/packs/7.pack      a tmpfs; written to first, where that is wished
//   disk/jobs/JOB/packs/3.pack        what was written here, or had to leave memory
//
// Before the packs in memory exceed the limit, the oldest complete packs move to the disk. A pack that is
// still being written moves to the disk itself if there is no other, or if the tmpfs is full. A pack is
// briefly in both places, never in neither. Readers check both places, so they may run during a move. Packs
// in memory are lost when the machine restarts: only the versions that need them are damaged then.
//
// Threads: as files.h. One TieredFiles at a time writes into a checkpoint store (its lock) and counts the
// bytes in memory. Errors: as files.h.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "libckpt/store/local/files.h"

namespace ckpt::checkpoint_store {

struct Tiers {
  std::string disk;    // the folder of the checkpoint store
  std::string memory;  // a folder of a tmpfs for this checkpoint store alone; created when needed
  std::uint64_t memory_limit_bytes = 0;
  bool into_memory = false;  // whether new packs are stored in memory; if false, they are stored on the disk
  // The job whose packs in memory move to the disk once the checkpoint store is locked. The job's next
  // version must survive a power failure of the machine.
  std::string settles;
};

class TieredFiles : public Files {
 public:
  explicit TieredFiles(Tiers tiers, Files& files = posix_files());

  Result<std::unique_ptr<File>> create(const std::string& path) override;
  Result<std::unique_ptr<File>> open(const std::string& path) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<void> make_folder(const std::string& path) override { return files_.make_folder(path); }
  Result<void> remove_folder(const std::string& path) override;
  Result<std::vector<FolderEntry>> list(const std::string& path) override;
  Result<void> sync_folder(const std::string& path) override { return files_.sync_folder(path); }
  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override;

  // Returns the names of the job's packs that are in memory.
  Result<std::set<std::string>> packs_in_memory(const std::string& job);

 private:
  class Tiered;
  friend class Tiered;
  struct Resident {
    std::string path;  // the path in memory
    std::uint64_t bytes = 0;
    std::int64_t age_ns = 0;  // the Unix time at which the pack was last written
  };
  // Returns the path in memory for a pack of this path. Returns nullopt if the path is not a pack.
  [[nodiscard]] std::optional<std::string> in_memory(const std::string& path) const;
  [[nodiscard]] std::string on_disk(const std::string& in_memory) const;
  Result<std::unique_ptr<File>> create_in_memory(const std::string& path, const std::string& resident);
  Result<std::vector<Resident>> residents(const std::string& job);
  Result<std::vector<Resident>> all_residents();
  // Frees memory for `bytes` more. Returns false if that is impossible even without any complete packs.
  Result<bool> free_memory(std::uint64_t bytes);
  Result<void> spill(const Resident& pack);
  Result<void> spill_job(const std::string& job);
  Result<void> copy(const std::string& from, const std::string& to);

  const Tiers tiers_;
  Files& files_;
  std::mutex mutex_;  // guards the list of packs in memory
  std::optional<std::uint64_t> used_bytes_;
};

}  // namespace ckpt::checkpoint_store
