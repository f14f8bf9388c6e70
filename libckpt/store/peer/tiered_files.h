// SPDX-License-Identifier: Apache-2.0
// A vault with packs in memory up to a limit, and on the disk beyond that. Everything else of
// a vault (its lock, keys, versions: a few hundred bytes each, without which nothing is found) is on the disk
// always.
//
//   memory/jobs/JOB/packs/7.pack      a tmpfs; written to first, where that is wished
//   disk/jobs/JOB/packs/3.pack        what was written here, or had to leave memory
//
// Before the packs in memory exceed the limit the oldest whole ones go to the disk. A pack that is still
// being written goes there itself if there is no other, and also where the tmpfs is full. A pack is in both
// places for a moment, never in neither; readers look in both, so they may be at work meanwhile. Packs in
// memory are gone when the machine starts again: the versions that need them are damaged then, the others are
// not.
//
// Threads: as files.h. One TieredFiles at a time writes into a vault (its lock); that one counts what memory
// holds. Errors: as files.h.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "libckpt/store/vault/files.h"

namespace ckpt::vault {

struct Tiers {
  std::string disk;    // the vault's folder
  std::string memory;  // a folder of a tmpfs, this vault's alone; made when it is needed
  std::uint64_t memory_limit_bytes = 0;
  bool into_memory = false;  // new packs go there; else onto the disk
  // The job whose packs in memory go to the disk once the vault is locked: its next version is to outlive the
  // machine's power.
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

  // Names of the job's packs that lie in memory.
  Result<std::set<std::string>> packs_in_memory(const std::string& job);

 private:
  class Tiered;
  friend class Tiered;
  struct Resident {
    std::string path;  // in memory
    std::uint64_t bytes = 0;
    std::int64_t age_ns = 0;  // when it was written
  };
  // Where a pack of this path is in memory; nullopt: it is no pack.
  [[nodiscard]] std::optional<std::string> in_memory(const std::string& path) const;
  [[nodiscard]] std::string on_disk(const std::string& in_memory) const;
  Result<std::unique_ptr<File>> create_in_memory(const std::string& path, const std::string& resident);
  Result<std::vector<Resident>> residents(const std::string& job);
  Result<std::vector<Resident>> all_residents();
  // Frees memory for so many bytes more; false: there is none, even with all whole packs gone.
  Result<bool> free_memory(std::uint64_t bytes);
  Result<void> spill(const Resident& pack);
  Result<void> spill_job(const std::string& job);
  Result<void> copy(const std::string& from, const std::string& to);

  const Tiers tiers_;
  Files& files_;
  std::mutex mutex_;  // of what memory holds
  std::optional<std::uint64_t> used_bytes_;
};

}  // namespace ckpt::vault
