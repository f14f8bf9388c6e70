// SPDX-License-Identifier: Apache-2.0
// One job's part of a checkpoint store: its key, packs and versions, and the place of each record. Readers,
// the writer and the collection of a job share it.
//
// Threads: all functions are thread-safe. A job has one writer or one collection at a time (begin_exclusive),
// and any number of readers. A reader looks up a record again after a collection has moved it. Versions that
// a reader has open are not collected.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/local/chunk_index.h"
#include "libckpt/store/local/files.h"
#include "libckpt/store/local/pack.h"
#include "libckpt/store/local/record_coder.h"
#include "libckpt/store/local/version.h"

namespace ckpt::checkpoint_store {

// A version with an unusable file, and the reason.
struct DamagedVersion {
  std::uint64_t number = 0;
  Error error;
};

class JobStore {
 public:
  // Reads the existing files, whose bytes are already in the budget. With `writable`, it makes folders and
  // key of a new job, and removes the files of an interrupted writer.
  static Result<std::shared_ptr<JobStore>> open(Files& files, Budget& budget, const std::string& folder,
                                                const std::string& job, bool writable);

  // Opens the job without packs and key. Only versions() and damaged_versions() are available.
  static Result<std::shared_ptr<JobStore>> open_versions(Files& files, Budget& budget,
                                                         const std::string& folder, const std::string& job);

  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  [[nodiscard]] const ContentKey& key() const noexcept { return key_; }
  [[nodiscard]] Files& files() const noexcept { return files_; }
  [[nodiscard]] Budget& budget() const noexcept { return budget_; }
  [[nodiscard]] std::string pack_folder() const { return folder_ + "/packs"; }
  [[nodiscard]] std::string version_folder() const { return folder_ + "/versions"; }
  [[nodiscard]] RecordCoders& coders() noexcept { return *coders_; }

  // Returns the versions, oldest first.
  [[nodiscard]] std::vector<std::shared_ptr<const Version>> versions() const;
  [[nodiscard]] std::vector<DamagedVersion> damaged_versions() const;
  [[nodiscard]] std::vector<std::string> damage() const;  // returns the damage of the job record and packs
                                                          // that was found while opening
  Result<std::shared_ptr<const Version>> find_version(std::uint64_t number) const;
  [[nodiscard]] std::uint64_t next_version() const;
  [[nodiscard]] std::uint64_t allocate_pack_number();

  // The exclusive right of a writer or a collection. begin_exclusive() returns kRefused while another exists.
  class Exclusive {
   public:
    explicit Exclusive(std::shared_ptr<JobStore> store) : store_(std::move(store)) {}
    ~Exclusive() {
      if (store_) store_->busy_ = false;
    }
    Exclusive(Exclusive&&) = default;
    Exclusive& operator=(Exclusive&&) = delete;

   private:
    std::shared_ptr<JobStore> store_;
  };
  static Result<Exclusive> begin_exclusive(const std::shared_ptr<JobStore>& store);
  // Stops all writing until the checkpoint store is opened again, after an operation with an unknown effect
  // on the disk.
  void break_off() noexcept { broken_ = true; }

  [[nodiscard]] bool contains(const ContentId& id, RecordKind kind) const;
  [[nodiscard]] std::vector<Place> places(const ContentId& id, RecordKind kind) const;
  // Reads the plain bytes of a record from any of its intact places. Returns kCorrupt if no place is intact.
  Result<void> read_record(RecordCoder& coder, const ContentId& id, RecordKind kind,
                           std::span<std::byte> out);
  Result<std::vector<ContentId>> read_list(RecordCoder& coder, const ChunkList& list, std::uint64_t block);
  Result<std::shared_ptr<const File>> open_pack(std::uint64_t number);

  // Notes content without an intact copy. It is not carried over to new versions, and is stored again when it
  // is put again.
  void note_damaged(const ContentId& id);
  [[nodiscard]] bool is_damaged(const ContentId& id) const;
  [[nodiscard]] bool has_damaged() const;
  void erase_damaged(const ContentId& id);

  // Records the changes of the writer and the collection, once the changes are on the disk.
  void add_pack(std::uint64_t number, std::uint64_t bytes, std::span<const IndexEntry> index);
  void add_version(std::shared_ptr<const Version> version, std::uint64_t file_bytes);
  // Removes the file of a version. A collection frees its space.
  Result<void> remove_version(std::uint64_t number);
  // Returns the retained versions, and the versions that readers have open.
  [[nodiscard]] std::vector<std::shared_ptr<const Version>> live_versions() const;
  // Calls `work` with the index under the lock.
  template <class Work>
  auto with_index(Work&& work) {
    const std::lock_guard lock(mutex_);
    return work(index_);
  }
  [[nodiscard]] std::map<std::uint64_t, std::uint64_t> pack_sizes() const;
  // Removes these packs from the index, and then removes their files.
  Result<void> remove_packs(const std::set<std::uint64_t>& numbers);

 private:
  JobStore(Files& files, Budget& budget, std::string folder, std::string job)
      : files_(files), budget_(budget), folder_(std::move(folder)), job_(std::move(job)) {}
  Result<void> prepare();
  Result<void> load_versions(bool writable);
  Result<void> load_packs(bool writable);
  Result<void> load_key(bool writable);
  Result<std::vector<FolderEntry>> list_folder(const std::string& path, bool writable);
  Result<void> read_at(RecordCoder& coder, const Place& place, const ContentId& id, RecordKind kind,
                       std::span<std::byte> out);

  Files& files_;
  Budget& budget_;
  const std::string folder_;
  const std::string job_;
  ContentKey key_{};
  std::unique_ptr<RecordCoders> coders_;
  std::atomic<bool> busy_{false}, broken_{false};

  mutable std::mutex mutex_;
  ChunkIndex index_;
  std::map<std::uint64_t, std::uint64_t> packs_;  // the bytes of each pack, by number
  std::map<std::uint64_t, std::shared_ptr<const File>> open_packs_;
  struct Kept {
    std::shared_ptr<const Version> version;
    std::uint64_t file_bytes = 0;
  };
  std::map<std::uint64_t, Kept> versions_;
  std::map<std::uint64_t, std::uint64_t> damaged_sizes_;
  std::vector<DamagedVersion> damaged_versions_;
  std::vector<std::weak_ptr<const Version>> removed_;  // removed versions that readers may have open
  std::set<ContentId> damaged_;
  std::vector<std::string> damage_;
  std::uint64_t last_pack_ = 0;
  std::uint64_t last_version_ = 0;
};

[[nodiscard]] std::string version_name(std::uint64_t number);
// Returns the number of the version with this file name. Returns 0 for a name that is not a version's.
[[nodiscard]] std::uint64_t version_number(const std::string& name);

}  // namespace ckpt::checkpoint_store
