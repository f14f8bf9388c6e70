// SPDX-License-Identifier: Apache-2.0
// One job's part of a vault: its key, packs, versions, and where each record is. Readers, the writer and the
// collection of a job share it.
//
// Threads: all functions are thread-safe. A job has one writer or one collection at a time (begin_exclusive),
// and readers beside both. A record that a collection has moved is looked up again, and what a reader has
// open is not collected.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/vault/chunk_index.h"
#include "libckpt/store/vault/files.h"
#include "libckpt/store/vault/pack.h"
#include "libckpt/store/vault/record_coder.h"
#include "libckpt/store/vault/version.h"

namespace ckpt::vault {

// A version whose file cannot be used, and the reason.
struct DamagedVersion {
  std::uint64_t number = 0;
  Error error;
};

class JobStore {
 public:
  // Reads what there is; its bytes are in the budget already. `writable` makes folders and key of a job that
  // is new, and removes what a writer that was cut left.
  static Result<std::shared_ptr<JobStore>> open(Files& files, Budget& budget, const std::string& folder,
                                                const std::string& job, bool writable);

  // Without packs and key: versions() and damaged_versions() are all that it knows.
  static Result<std::shared_ptr<JobStore>> open_versions(Files& files, Budget& budget,
                                                         const std::string& folder, const std::string& job);

  [[nodiscard]] const std::string& job() const noexcept { return job_; }
  [[nodiscard]] const ContentKey& key() const noexcept { return key_; }
  [[nodiscard]] Files& files() const noexcept { return files_; }
  [[nodiscard]] Budget& budget() const noexcept { return budget_; }
  [[nodiscard]] std::string pack_folder() const { return folder_ + "/packs"; }
  [[nodiscard]] std::string version_folder() const { return folder_ + "/versions"; }
  [[nodiscard]] RecordCoders& coders() noexcept { return *coders_; }

  // Oldest first.
  [[nodiscard]] std::vector<std::shared_ptr<const Version>> versions() const;
  [[nodiscard]] std::vector<DamagedVersion> damaged_versions() const;
  [[nodiscard]] std::vector<std::string> damage() const;  // of job record and packs, found while opening
  Result<std::shared_ptr<const Version>> find_version(std::uint64_t number) const;
  [[nodiscard]] std::uint64_t next_version() const;
  [[nodiscard]] std::uint64_t take_pack_number();

  // For writers and collections: kRefused while there is another.
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
  // After an operation with an unknown effect on the disk. Nothing more is written until the vault is opened
  // again.
  void break_off() noexcept { broken_ = true; }

  [[nodiscard]] bool contains(const ContentId& id, RecordKind kind) const;
  [[nodiscard]] std::vector<Place> places(const ContentId& id, RecordKind kind) const;
  // The plain bytes of a record: from any of its places that is intact. kCorrupt: none is.
  Result<void> read_record(RecordCoder& coder, const ContentId& id, RecordKind kind,
                           std::span<std::byte> out);
  Result<std::vector<ContentId>> read_list(RecordCoder& coder, const ChunkList& list, std::uint64_t block);
  Result<std::shared_ptr<const File>> open_pack(std::uint64_t number);

  // Content of which no intact copy is left: it is not kept from version to version, and is stored again when
  // it comes again.
  void note_damaged(const ContentId& id);
  [[nodiscard]] bool is_damaged(const ContentId& id) const;
  [[nodiscard]] bool has_damaged() const;
  void forget_damaged(const ContentId& id);

  // Record the changes of the writer and the collection, once they are on the disk.
  void add_pack(std::uint64_t number, std::uint64_t bytes, std::span<const IndexEntry> index);
  void add_version(std::shared_ptr<const Version> version, std::uint64_t file_bytes);
  // Removes the file; the version's space comes back with a collection.
  Result<void> remove_version(std::uint64_t number);
  // Versions that are kept, and those that readers have open.
  [[nodiscard]] std::vector<std::shared_ptr<const Version>> live_versions() const;
  // Calls `work` with the index under the lock.
  template <class Work>
  auto with_index(Work&& work) {
    const std::lock_guard lock(mutex_);
    return work(index_);
  }
  [[nodiscard]] std::map<std::uint64_t, std::uint64_t> pack_sizes() const;
  // Forgets these packs, then removes their files.
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
  std::map<std::uint64_t, std::uint64_t> packs_;  // number -> bytes
  std::map<std::uint64_t, std::shared_ptr<const File>> open_packs_;
  struct Kept {
    std::shared_ptr<const Version> version;
    std::uint64_t file_bytes = 0;
  };
  std::map<std::uint64_t, Kept> versions_;
  std::map<std::uint64_t, std::uint64_t> damaged_sizes_;
  std::vector<DamagedVersion> damaged_versions_;
  std::vector<std::weak_ptr<const Version>> removed_;  // readers may have them open
  std::set<ContentId> damaged_;
  std::vector<std::string> damage_;
  std::uint64_t last_pack_ = 0;
  std::uint64_t last_version_ = 0;
};

[[nodiscard]] std::string version_name(std::uint64_t number);
[[nodiscard]] std::uint64_t version_number(const std::string& name);  // 0: not a version's

}  // namespace ckpt::vault
