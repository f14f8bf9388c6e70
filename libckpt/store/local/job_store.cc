// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/job_store.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace ckpt::checkpoint_store {
namespace {

constexpr std::string_view kVersionSuffix = ".version";
constexpr std::size_t kMaxOpenPacks = 64;
constexpr const char* kJobFile = "job";

std::string in_job(const std::string& job) {
  return " of job " + job;
}

}  // namespace

std::string version_name(std::uint64_t number) {
  char text[40];
  std::snprintf(text, sizeof text, "%010lu", static_cast<unsigned long>(number));
  return text + std::string(kVersionSuffix);
}

std::uint64_t version_number(const std::string& name) {
  if (!name.ends_with(kVersionSuffix)) return 0;
  std::uint64_t number = 0;
  const char* end = name.data() + name.size() - kVersionSuffix.size();
  const auto [rest, failure] = std::from_chars(name.data(), end, number);
  return failure == std::errc{} && rest == end && version_name(number) == name ? number : 0;
}

Result<std::shared_ptr<JobStore>> JobStore::open(Files& files, Budget& budget, const std::string& folder,
                                                 const std::string& job, bool writable) {
  std::shared_ptr<JobStore> store(new JobStore(files, budget, folder, job));
  if (writable) {
    CKPT_TRYV(store->prepare());
  }
  CKPT_TRYV(store->load_versions(writable));
  CKPT_TRYV(store->load_packs(writable));
  CKPT_TRYV(store->load_key(writable));
  store->coders_ = std::make_unique<RecordCoders>(store->key_);
  return store;
}

Result<std::shared_ptr<JobStore>> JobStore::open_versions(Files& files, Budget& budget,
                                                          const std::string& folder, const std::string& job) {
  std::shared_ptr<JobStore> store(new JobStore(files, budget, folder, job));
  CKPT_TRYV(store->load_versions(false));
  return store;
}

Result<void> JobStore::prepare() {
  CKPT_TRYV(files_.make_folder(folder_));
  CKPT_TRYV(files_.make_folder(pack_folder()));
  CKPT_TRYV(files_.make_folder(version_folder()));
  // Files that an earlier writer could read, and that this writer builds on, may not be on the disk yet.
  CKPT_TRYV(files_.sync_folder(pack_folder()));
  CKPT_TRYV(files_.sync_folder(version_folder()));
  CKPT_TRYV(files_.sync_folder(folder_));
  return files_.sync_folder(folder_.substr(0, folder_.rfind('/')));
}

// Lists a folder without the files that an interrupted writer left: they never became part of the checkpoint
// store.
Result<std::vector<FolderEntry>> JobStore::list_folder(const std::string& path, bool writable) {
  auto entries = files_.list(path);
  if (!entries) {
    if (entries.error().code() == ErrorCode::kNotFound) return std::vector<FolderEntry>{};
    return entries;
  }
  std::vector<FolderEntry> whole;
  for (FolderEntry& entry : *entries) {
    if (!is_unfinished(entry.name)) {
      whole.push_back(std::move(entry));
    } else if (writable) {
      CKPT_TRYV(files_.remove(path + "/" + entry.name));
    }
  }
  return whole;
}

Result<void> JobStore::load_versions(bool writable) {
  CKPT_TRY(entries, list_folder(version_folder(), writable));
  for (const FolderEntry& entry : entries) {
    const std::uint64_t number = version_number(entry.name);
    if (number == 0) continue;
    last_version_ = std::max(last_version_, number);
    const std::string path = version_folder() + "/" + entry.name;
    auto bytes = read_whole(files_, path, kMaxSmallFileBytes);
    auto version = bytes ? decode_version(*bytes) : Result<Version>(bytes.error());
    if (version && (version->number != number || version->job != job_))
      version = Error(ErrorCode::kCorrupt, "The file contains a different version or a different job");
    if (version) {
      versions_[number] = {std::make_shared<const Version>(*std::move(version)), entry.bytes};
      continue;
    }
    damaged_sizes_[number] = entry.bytes;
    const Error& reason = version.error();
    damaged_versions_.push_back(
        {number, Error(reason.code(), "Version " + std::to_string(number) + in_job(job_) + " cannot be read")
                     .caused_by(reason)});
  }
  return ok();
}

Result<void> JobStore::load_packs(bool writable) {
  CKPT_TRY(entries, list_folder(pack_folder(), writable));
  for (const FolderEntry& entry : entries) {
    const std::uint64_t number = pack_number(entry.name);
    if (number == 0 || number >= ChunkIndex::kMaxPacks) continue;
    last_pack_ = std::max(last_pack_, number);
    auto loaded = load_pack(files_, pack_folder(), number);
    if (!loaded) {
      // The pack was collected meanwhile.
      if (!writable && loaded.error().code() == ErrorCode::kNotFound) continue;
      return std::move(loaded).error();
    }
    const LoadedPack& pack = *loaded;
    for (const std::string& what : pack.damage)
      damage_.push_back("Pack " + entry.name + in_job(job_) + ": " + what);
    add_pack(number, pack.bytes, pack.index);
  }
  return ok();
}

Result<void> JobStore::load_key(bool writable) {
  const std::string path = folder_ + "/" + kJobFile;
  auto bytes = read_whole(files_, path, kMaxSmallFileBytes);
  auto record = bytes ? decode_job(*bytes) : Result<JobRecord>(bytes.error());
  if (record && record->job != job_) record = Error(ErrorCode::kCorrupt, "The file belongs to another job");
  if (record) {
    std::copy_n(record->content_key.begin(), key_.size(), key_.begin());
    return ok();
  }
  const ErrorCode code = record.error().code();
  if (code != ErrorCode::kNotFound && code != ErrorCode::kCorrupt) return std::move(record).error();
  if (code == ErrorCode::kCorrupt)
    damage_.push_back("Record" + in_job(job_) + ": " + record.error().to_string());
  if (!versions_.empty()) {
    key_ = versions_.rbegin()->second.version->key();
  } else if (writable) {
    CKPT_TRY(fresh, make_content_key());
    key_ = fresh;
  }
  if (!writable) return ok();
  JobRecord made;
  made.job = job_;
  made.content_key.assign(key_.begin(), key_.end());
  return write_whole(files_, folder_, kJobFile, encode_job(made));
}

std::vector<std::shared_ptr<const Version>> JobStore::versions() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Version>> all;
  for (const auto& [number, stored] : versions_) all.push_back(stored.version);
  return all;
}

std::vector<DamagedVersion> JobStore::damaged_versions() const {
  const std::lock_guard lock(mutex_);
  return damaged_versions_;
}

std::vector<std::string> JobStore::damage() const {
  const std::lock_guard lock(mutex_);
  return damage_;
}

Result<std::shared_ptr<const Version>> JobStore::find_version(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = versions_.find(number); found != versions_.end()) return found->second.version;
  for (const DamagedVersion& damaged : damaged_versions_)
    if (damaged.number == number) return damaged.error;
  return Error(ErrorCode::kNotFound, "Job " + job_ + " has no version " + std::to_string(number));
}

std::uint64_t JobStore::next_version() const {
  const std::lock_guard lock(mutex_);
  return last_version_ + 1;
}

std::uint64_t JobStore::allocate_pack_number() {
  const std::lock_guard lock(mutex_);
  return ++last_pack_;
}

Result<JobStore::Exclusive> JobStore::begin_exclusive(const std::shared_ptr<JobStore>& store) {
  if (store->broken_)
    return Error(ErrorCode::kIo, "The last write for job " + store->job_ +
                                     " may or may not be on the disk: open the checkpoint store again");
  if (store->busy_.exchange(true))
    return Error(ErrorCode::kRefused,
                 "A version of job " + store->job_ + " is being written, or unused data is being removed");
  return Exclusive(store);
}

bool JobStore::contains(const ContentId& id, RecordKind kind) const {
  const std::lock_guard lock(mutex_);
  return index_.contains(id, kind) && !damaged_.contains(id);
}

std::vector<Place> JobStore::places(const ContentId& id, RecordKind kind) const {
  const std::lock_guard lock(mutex_);
  std::vector<Place> found;
  index_.find(id, kind, [&](const Place& place) {
    found.push_back(place);
    return false;
  });
  return found;
}

Result<std::shared_ptr<const File>> JobStore::open_pack(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (const auto found = open_packs_.find(number); found != open_packs_.end()) return found->second;
  CKPT_TRY(file, files_.open(pack_folder() + "/" + pack_name(number)));
  if (open_packs_.size() >= kMaxOpenPacks) open_packs_.erase(open_packs_.begin());
  std::shared_ptr<const File> shared(std::move(file));
  open_packs_[number] = shared;
  return shared;
}

Result<void> JobStore::read_at(RecordCoder& coder, const Place& place, const ContentId& id, RecordKind kind,
                               std::span<std::byte> out) {
  CKPT_TRY(file, open_pack(place.pack));
  std::vector<std::byte> bytes(record_bytes(place.stored_bytes));
  CKPT_TRY(count, file->read_at(place.offset, bytes));
  bytes.resize(count);
  CKPT_TRY(head, read_record_head(bytes));
  if (head.id != id || head.kind != kind)
    return Error(ErrorCode::kCorrupt, "A different record is at this position");
  return coder.open(head, bytes, out);
}

Result<void> JobStore::read_record(RecordCoder& coder, const ContentId& id, RecordKind kind,
                                   std::span<std::byte> out) {
  Error last(ErrorCode::kCorrupt, "The record was not found in any pack");
  // A collection may move the record between lookup and read, but not twice: the record's new pack is not
  // collected meanwhile.
  for (int attempt = 0; attempt < 2; ++attempt) {
    bool moved = false;
    for (const Place& place : places(id, kind)) {
      auto read = read_at(coder, place, id, kind, out);
      if (read) return ok();
      last = std::move(read).error();
      moved = moved || last.code() == ErrorCode::kNotFound;
      if (last.code() != ErrorCode::kCorrupt && last.code() != ErrorCode::kNotFound) return last;
    }
    if (!moved) break;
  }
  if (last.code() == ErrorCode::kCorrupt) note_damaged(id);
  return Error(last.code(), "Record " + to_hex(id) + in_job(job_) + " is damaged").caused_by(last);
}

Result<std::vector<ContentId>> JobStore::read_list(RecordCoder& coder, const ChunkList& list,
                                                   std::uint64_t block) {
  const std::uint64_t chunks = list.chunks_of_block(block);
  std::vector<std::byte> plain(chunks * sizeof(ContentId));
  CKPT_TRYV(read_record(coder, list.block(block), RecordKind::kList, plain));
  return decode_list(plain, chunks);
}

void JobStore::note_damaged(const ContentId& id) {
  const std::lock_guard lock(mutex_);
  damaged_.insert(id);
}
bool JobStore::is_damaged(const ContentId& id) const {
  const std::lock_guard lock(mutex_);
  return damaged_.contains(id);
}
bool JobStore::has_damaged() const {
  const std::lock_guard lock(mutex_);
  return !damaged_.empty();
}
void JobStore::erase_damaged(const ContentId& id) {
  const std::lock_guard lock(mutex_);
  damaged_.erase(id);
}

void JobStore::add_pack(std::uint64_t number, std::uint64_t bytes, std::span<const IndexEntry> index) {
  const std::lock_guard lock(mutex_);
  packs_[number] = bytes;
  for (const IndexEntry& entry : index)
    index_.add(entry.id, entry.kind, {number, entry.offset, entry.stored_bytes});
}

void JobStore::add_version(std::shared_ptr<const Version> version, std::uint64_t file_bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = version->number;
  last_version_ = std::max(last_version_, number);
  versions_[number] = {std::move(version), file_bytes};
}

Result<void> JobStore::remove_version(std::uint64_t number) {
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    if (const auto stored = versions_.find(number); stored != versions_.end()) {
      bytes = stored->second.file_bytes;
    } else if (const auto damaged = damaged_sizes_.find(number); damaged != damaged_sizes_.end()) {
      bytes = damaged->second;
    } else {
      return Error(ErrorCode::kNotFound, "Job " + job_ + " has no version " + std::to_string(number));
    }
  }
  auto removed = files_.remove(version_folder() + "/" + version_name(number));
  if (!removed && removed.error().code() != ErrorCode::kNotFound) return removed;
  // None of the version's records may be removed before the removal of the version is on the disk.
  if (auto synced = files_.sync_folder(version_folder()); !synced) {
    break_off();
    return synced;
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(removed_, [](const auto& version) { return version.expired(); });
  if (const auto stored = versions_.find(number); stored != versions_.end()) {
    removed_.push_back(stored->second.version);
    versions_.erase(stored);
  }
  damaged_sizes_.erase(number);
  std::erase_if(damaged_versions_, [number](const DamagedVersion& v) { return v.number == number; });
  budget_.give_back(bytes);
  return ok();
}

std::vector<std::shared_ptr<const Version>> JobStore::live_versions() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Version>> live;
  for (const auto& [number, stored] : versions_) live.push_back(stored.version);
  for (const auto& removed : removed_)
    if (auto open = removed.lock()) live.push_back(std::move(open));
  return live;
}

std::map<std::uint64_t, std::uint64_t> JobStore::pack_sizes() const {
  const std::lock_guard lock(mutex_);
  return packs_;
}

Result<void> JobStore::remove_packs(const std::set<std::uint64_t>& numbers) {
  if (numbers.empty()) return ok();
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    index_.remove_if([&numbers](const Place& place) { return numbers.contains(place.pack); });
    for (const std::uint64_t number : numbers) {
      open_packs_.erase(number);
      const auto pack = packs_.find(number);
      if (pack == packs_.end()) continue;
      bytes += pack->second;
      packs_.erase(pack);
    }
  }
  for (const std::uint64_t number : numbers) {
    CKPT_TRYV(files_.remove(pack_folder() + "/" + pack_name(number)));
  }
  budget_.give_back(bytes);
  return files_.sync_folder(pack_folder());
}

}  // namespace ckpt::checkpoint_store
