// SPDX-License-Identifier: Apache-2.0
// The checkpoint store: the place of images outside the GPUs. It is a folder with versions of jobs. Each
// version restores a job as it was at one barrier, all ranks together. A version uses space only for changes
// since the version before. Chunks are stored once by content, shared by all versions and ranks of a job. The
// lists that name chunks are shared in the same way (docs/image-format.md).
//
//   CKPT_TRY(store, CheckpointStore::open("/srv/vault", {.limit_bytes = std::uint64_t{1} << 40}));
//   CKPT_TRY(writer, store->begin_version("job-7", {}));          // version_writer.h
//   ...
//   CKPT_TRYV(store->retain_newest("job-7", 5));                    // older versions go,
//   CKPT_TRY(report, store->collect("job-7"));                    // and their space comes back
//   CKPT_TRY(restored, store->restore("job-7", std::nullopt, target, {}));   // the newest that is whole
//
// The following holds after any failure (a power failure at any point, torn and reordered writes, flipped
// bits). A version whose commit() returned restores byte-equal until it is removed, or its damage is found
// and reported. A version whose commit() did not return is complete or absent. The newest complete version is
// always found.
//
// The memory tier is a checkpoint store on a tmpfs; copy_version() moves a version between tiers.
// Threads: all functions from any thread. Each folder has one CheckpointStore that writes; another process
// gets kRefused. Readers in other processes need no lock. They get kNotFound if their data was collected, and
// must then open the checkpoint store again. Errors: kRefused: no space, at the limit, or busy; kNotFound;
// kCorrupt: damaged; kNotSupported: written by a newer build; kIo.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/local/collector.h"
#include "libckpt/store/local/diff.h"
#include "libckpt/store/local/files.h"
#include "libckpt/store/local/job_store.h"
#include "libckpt/store/local/scrub.h"
#include "libckpt/store/local/usage.h"
#include "libckpt/store/local/version_reader.h"
#include "libckpt/store/local/version_writer.h"

namespace ckpt::checkpoint_store {

struct CheckpointStoreOptions {
  bool writable = true;  // whether to open for writing, which makes the folder, locks it, and removes the
                         // files of an interrupted writer
  std::uint64_t limit_bytes =
      0;  // the limit of all files together; 0 for none; a collection may briefly exceed it by one pack
  std::uint64_t max_pack_bytes = std::uint64_t{256} << 20;
  CollectOptions collect = {};
  Files* files = nullptr;  // the file operations to use; null for the operating system's files
};

struct JobSummary {
  std::string job;
  std::uint64_t versions = 0;
  std::uint64_t damaged_versions = 0;
  std::uint64_t newest = 0;
  std::int64_t newest_ms = 0;      // the Unix time of the newest version
  std::uint64_t stored_bytes = 0;  // the bytes of packs
};

struct VersionList {
  std::vector<std::shared_ptr<const Version>> versions;  // the versions, oldest first
  std::vector<DamagedVersion> damaged;
};

// The target of a restore, which receives the chunks of a version.
class RestoreTarget : public ChunkSink {
 public:
  // Prepares memory for this version's regions. It is called again with an older version if the delivered
  // data turns out to be damaged.
  virtual Result<void> begin(const Version& version) = 0;
  // Runs after all chunks were delivered, to read blobs.
  virtual Result<void> finish(VersionReader& reader) = 0;
};

struct SkippedVersion {
  std::uint64_t number = 0;
  Error reason;
};

struct RestoreReport {
  std::shared_ptr<const Version> version;
  std::vector<SkippedVersion> skipped;  // newer versions that are damaged, newest first
};

class CheckpointStore {
 public:
  static Result<std::unique_ptr<CheckpointStore>> open(const std::string& folder,
                                                       CheckpointStoreOptions options);

  Result<std::vector<JobSummary>> jobs();
  // Returns data for lists, which need no pack: the jobs' names, and the results of versions() and
  // damaged_versions(). Only the versions' files are read.
  Result<std::vector<std::string>> job_names();
  Result<VersionList> list_versions(const std::string& job);
  // Returns the versions, oldest first.
  Result<std::vector<std::shared_ptr<const Version>>> versions(const std::string& job);
  Result<std::vector<DamagedVersion>> damaged_versions(const std::string& job);

  // Begins a version. Returns kRefused while another version of the job is written, or the job is collected.
  Result<std::unique_ptr<VersionWriter>> begin_version(const std::string& job, VersionInput input);
  // Opens a version. Without a number, it opens the newest version with an intact file.
  Result<std::unique_ptr<VersionReader>> open_version(const std::string& job,
                                                      std::optional<std::uint64_t> number = std::nullopt);
  // Restores the version or, if it is damaged, the newest intact older version. kNotFound: the job has no
  // versions; kCorrupt: all of them are damaged.
  Result<RestoreReport> restore(const std::string& job, std::optional<std::uint64_t> number,
                                RestoreTarget& target, const ReadOptions& options);

  // Removes a version at once. collect() frees its space.
  Result<void> remove_version(const std::string& job, std::uint64_t number);
  // Removes all but the newest `count` (at least 1) versions with intact files. Older damaged versions are
  // removed, too. Returns the removed numbers.
  Result<std::vector<std::uint64_t>> retain_newest(const std::string& job, std::size_t count);
  Result<CollectReport> collect(const std::string& job);
  Result<void> remove_job(const std::string& job);

  // Returns the packs that each of the job's versions needs.
  Result<std::vector<VersionUse>> uses(const std::string& job);
  Result<ScrubReport> verify(const std::string& job);
  Result<VersionDiff> diff(const std::string& job, std::uint64_t from, std::uint64_t to);

  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return budget_.used(); }
  [[nodiscard]] std::uint64_t limit_bytes() const noexcept { return budget_.limit(); }
  [[nodiscard]] const std::vector<std::string>& damage() const noexcept {
    return damage_;
  }  // the damage of the checkpoint store's own file, found when the checkpoint store was opened

 private:
  CheckpointStore(std::string folder, CheckpointStoreOptions options);
  Result<void> load();
  Result<void> read_checkpoint_store_file();
  Result<std::uint64_t> measure(const std::string& job);
  [[nodiscard]] std::string job_folder(const std::string& job) const { return folder_ + "/jobs/" + job; }
  Result<std::shared_ptr<JobStore>> find_job(const std::string& job, bool make);
  Result<void> check_exists(const std::string& job);
  Result<void> check_writable() const;
  static Result<std::shared_ptr<const Version>> restore_one(const std::shared_ptr<JobStore>& store,
                                                            std::uint64_t number, RestoreTarget& target,
                                                            const ReadOptions& options);

  const std::string folder_;
  const CheckpointStoreOptions options_;
  Files& files_;
  Budget budget_;
  std::unique_ptr<FileLock> lock_;
  std::vector<std::string> damage_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<JobStore>> jobs_;
};

// Copies all content of the reader's version into the writer's version, which may be in another checkpoint
// store. The caller commits.
Result<void> copy_version(VersionReader& reader, VersionWriter& writer, const ReadOptions& options);

}  // namespace ckpt::checkpoint_store
