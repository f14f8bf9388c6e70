// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/checkpoint_store.h"

#include <algorithm>

namespace ckpt::checkpoint_store {
namespace {

constexpr const char* kCheckpointStoreFile = "vault";
constexpr const char* kLockFile = "lock";

std::string parent_of(const std::string& folder) {
  const std::size_t slash = folder.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : folder.substr(0, slash);
}

std::string without_slash(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, CheckpointStoreOptions options)
    : folder_(without_slash(std::move(folder))),
      options_(options),
      files_(options.files != nullptr ? *options.files : posix_files()),
      budget_(options.limit_bytes) {}

Result<std::unique_ptr<CheckpointStore>> CheckpointStore::open(const std::string& folder,
                                                               CheckpointStoreOptions options) {
  options.collect.max_pack_bytes = options.max_pack_bytes;
  std::unique_ptr<CheckpointStore> checkpoint_store(new CheckpointStore(folder, options));
  CKPT_TRYV(checkpoint_store->load());
  return checkpoint_store;
}

Result<void> CheckpointStore::load() {
  if (options_.writable) {
    CKPT_TRYV(files_.make_folder(folder_));
    CKPT_TRY(lock, files_.lock(folder_ + "/" + kLockFile));
    lock_ = std::move(lock);
    CKPT_TRYV(files_.make_folder(folder_ + "/jobs"));
  }
  CKPT_TRYV(read_checkpoint_store_file());
  if (options_.writable) {
    CKPT_TRYV(files_.sync_folder(folder_));
    CKPT_TRYV(files_.sync_folder(parent_of(folder_)));
  }
  CKPT_TRY(entries, files_.list(folder_ + "/jobs"));
  for (const FolderEntry& entry : entries) {
    if (!entry.is_folder || !check_job_name(entry.name)) continue;
    CKPT_TRY(bytes, measure(entry.name));
    budget_.take_anyway(bytes);
  }
  return ok();
}

Result<void> CheckpointStore::read_checkpoint_store_file() {
  const std::string path = folder_ + "/" + kCheckpointStoreFile;
  auto bytes = read_whole(files_, path, kMaxSmallFileBytes);
  auto body = bytes ? read_small_file(SmallFile::kCheckpointStore, *bytes)
                    : Result<std::span<const std::byte>>(bytes.error());
  if (body) return ok();
  const ErrorCode code = body.error().code();
  if (code == ErrorCode::kCorrupt) {
    // The file has nothing but the format, which every other file has as well.
    damage_.push_back(path + ": " + body.error().to_string());
  } else if (code != ErrorCode::kNotFound) {
    return std::move(body).error();
  } else if (!options_.writable) {
    return Error(ErrorCode::kNotFound, folder_ + " is not a checkpoint store");
  }
  if (!options_.writable) return ok();
  return write_whole(files_, folder_, kCheckpointStoreFile, make_small_file(SmallFile::kCheckpointStore, {}));
}

Result<std::uint64_t> CheckpointStore::measure(const std::string& job) {
  std::uint64_t bytes = 0;
  for (const char* part : {"/packs", "/versions"}) {
    const std::string folder = job_folder(job) + part;
    auto entries = files_.list(folder);
    if (!entries && entries.error().code() == ErrorCode::kNotFound) continue;
    if (!entries) return std::move(entries).error();
    for (const FolderEntry& entry : *entries) {
      if (!is_unfinished(entry.name)) {
        bytes += entry.bytes;
      } else if (options_.writable) {
        CKPT_TRYV(files_.remove(folder + "/" + entry.name));
      }
    }
  }
  return bytes;
}

Result<void> CheckpointStore::check_writable() const {
  if (options_.writable) return ok();
  return Error(ErrorCode::kRefused, "The checkpoint store " + folder_ + " is open for reading only");
}

Result<std::shared_ptr<JobStore>> CheckpointStore::find_job(const std::string& job, bool make) {
  CKPT_TRYV(check_job_name(job));
  const std::lock_guard lock(mutex_);
  if (const auto found = jobs_.find(job); found != jobs_.end()) return found->second;
  if (!make) {
    CKPT_TRYV(check_exists(job));
  }
  CKPT_TRY(store, JobStore::open(files_, budget_, job_folder(job), job, options_.writable));
  jobs_[job] = store;
  return store;
}

Result<void> CheckpointStore::check_exists(const std::string& job) {
  CKPT_TRY(names, job_names());
  if (std::find(names.begin(), names.end(), job) != names.end()) return ok();
  return Error(ErrorCode::kNotFound, "The checkpoint store " + folder_ + " has no job " + job);
}

Result<std::vector<std::string>> CheckpointStore::job_names() {
  CKPT_TRY(entries, files_.list(folder_ + "/jobs"));
  std::vector<std::string> names;
  for (const FolderEntry& entry : entries)
    if (entry.is_folder && check_job_name(entry.name)) names.push_back(entry.name);
  return names;
}

Result<VersionList> CheckpointStore::list_versions(const std::string& job) {
  CKPT_TRYV(check_job_name(job));
  std::shared_ptr<JobStore> store;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = jobs_.find(job); found != jobs_.end()) store = found->second;
  }
  if (!store) {
    CKPT_TRYV(check_exists(job));
    CKPT_TRY(opened, JobStore::open_versions(files_, budget_, job_folder(job), job));
    store = std::move(opened);
  }
  VersionList list;
  list.versions = store->versions();
  list.damaged = store->damaged_versions();
  return list;
}

Result<std::vector<JobSummary>> CheckpointStore::jobs() {
  CKPT_TRY(entries, files_.list(folder_ + "/jobs"));
  std::vector<JobSummary> all;
  for (const FolderEntry& entry : entries) {
    if (!entry.is_folder || !check_job_name(entry.name)) continue;
    CKPT_TRY(store, find_job(entry.name, false));
    JobSummary summary;
    summary.job = entry.name;
    const auto versions = store->versions();
    summary.versions = versions.size();
    summary.damaged_versions = store->damaged_versions().size();
    if (!versions.empty()) {
      summary.newest = versions.back()->number;
      summary.newest_ms = versions.back()->created_ms;
    }
    for (const auto& [number, bytes] : store->pack_sizes()) summary.stored_bytes += bytes;
    all.push_back(std::move(summary));
  }
  return all;
}

Result<std::vector<std::shared_ptr<const Version>>> CheckpointStore::versions(const std::string& job) {
  CKPT_TRY(store, find_job(job, false));
  return store->versions();
}

Result<std::vector<DamagedVersion>> CheckpointStore::damaged_versions(const std::string& job) {
  CKPT_TRY(store, find_job(job, false));
  return store->damaged_versions();
}

Result<std::unique_ptr<VersionWriter>> CheckpointStore::begin_version(const std::string& job,
                                                                      VersionInput input) {
  CKPT_TRYV(check_writable());
  CKPT_TRY(store, find_job(job, true));
  return VersionWriter::create(store, options_.max_pack_bytes, std::move(input));
}

Result<std::unique_ptr<VersionReader>> CheckpointStore::open_version(const std::string& job,
                                                                     std::optional<std::uint64_t> number) {
  CKPT_TRY(store, find_job(job, false));
  if (!number) {
    const auto versions = store->versions();
    if (versions.empty()) return Error(ErrorCode::kNotFound, "Job " + job + " has no version in " + folder_);
    return std::make_unique<VersionReader>(store, versions.back());
  }
  CKPT_TRY(version, store->find_version(*number));
  return std::make_unique<VersionReader>(store, version);
}

Result<RestoreReport> CheckpointStore::restore(const std::string& job, std::optional<std::uint64_t> number,
                                               RestoreTarget& target, const ReadOptions& options) {
  CKPT_TRY(store, find_job(job, false));
  if (number && !store->find_version(*number) &&
      store->find_version(*number).error().code() == ErrorCode::kNotFound)
    return store->find_version(*number).error();
  std::vector<std::uint64_t> numbers;
  for (const auto& version : store->versions()) numbers.push_back(version->number);
  for (const DamagedVersion& version : store->damaged_versions()) numbers.push_back(version.number);
  if (number) std::erase_if(numbers, [&](std::uint64_t n) { return n > *number; });
  std::sort(numbers.rbegin(), numbers.rend());
  RestoreReport report;
  for (const std::uint64_t candidate : numbers) {
    auto version = restore_one(store, candidate, target, options);
    if (version) {
      report.version = *std::move(version);
      return report;
    }
    const ErrorCode code = version.error().code();
    if (code != ErrorCode::kCorrupt && code != ErrorCode::kNotSupported) return std::move(version).error();
    report.skipped.push_back({candidate, std::move(version).error()});
  }
  if (report.skipped.empty())
    return Error(ErrorCode::kNotFound, "Job " + job + " has no version in " + folder_);
  return Error(ErrorCode::kCorrupt, "All " + std::to_string(report.skipped.size()) + " versions of job " +
                                        job + " that could be restored are damaged; the newest")
      .caused_by(std::move(report.skipped.front().reason));
}

Result<std::shared_ptr<const Version>> CheckpointStore::restore_one(const std::shared_ptr<JobStore>& store,
                                                                    std::uint64_t number,
                                                                    RestoreTarget& target,
                                                                    const ReadOptions& options) {
  CKPT_TRY(version, store->find_version(number));
  VersionReader reader(store, version);
  CKPT_TRYV(target.begin(*version));
  CKPT_TRYV(reader.read_regions(target, options));
  CKPT_TRYV(target.finish(reader));
  return version;
}

Result<void> CheckpointStore::remove_version(const std::string& job, std::uint64_t number) {
  CKPT_TRYV(check_writable());
  CKPT_TRY(store, find_job(job, false));
  return store->remove_version(number);
}

Result<std::vector<std::uint64_t>> CheckpointStore::retain_newest(const std::string& job, std::size_t count) {
  CKPT_TRYV(check_writable());
  CKPT_TRY(store, find_job(job, false));
  const auto versions = store->versions();
  std::vector<std::uint64_t> gone;
  if (versions.size() <= std::max<std::size_t>(count, 1)) return gone;
  const std::uint64_t oldest_kept = versions[versions.size() - std::max<std::size_t>(count, 1)]->number;
  for (const auto& version : versions)
    if (version->number < oldest_kept) gone.push_back(version->number);
  for (const DamagedVersion& version : store->damaged_versions())
    if (version.number < oldest_kept && version.error.code() == ErrorCode::kCorrupt)
      gone.push_back(version.number);
  for (const std::uint64_t number : gone) {
    CKPT_TRYV(store->remove_version(number));
  }
  return gone;
}

Result<CollectReport> CheckpointStore::collect(const std::string& job) {
  CKPT_TRYV(check_writable());
  CKPT_TRY(store, find_job(job, false));
  return checkpoint_store::collect(store, options_.collect);
}

Result<void> CheckpointStore::remove_job(const std::string& job) {
  CKPT_TRYV(check_writable());
  CKPT_TRY(store, find_job(job, false));
  const auto exclusive = JobStore::begin_exclusive(store);
  if (!exclusive) return exclusive.error();
  for (const auto& version : store->versions()) {
    CKPT_TRYV(store->remove_version(version->number));
  }
  for (const DamagedVersion& version : store->damaged_versions()) {
    CKPT_TRYV(store->remove_version(version.number));
  }
  std::set<std::uint64_t> packs;
  for (const auto& [number, bytes] : store->pack_sizes()) packs.insert(number);
  CKPT_TRYV(store->remove_packs(packs));
  const std::string folder = job_folder(job);
  CKPT_TRYV(files_.remove(folder + "/job"));
  for (const char* part : {"/packs", "/versions", ""}) {
    CKPT_TRYV(files_.remove_folder(folder + part));
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.erase(job);
  }
  return files_.sync_folder(folder_ + "/jobs");
}

Result<std::vector<VersionUse>> CheckpointStore::uses(const std::string& job) {
  CKPT_TRY(store, find_job(job, false));
  return uses_of(*store);
}

Result<ScrubReport> CheckpointStore::verify(const std::string& job) {
  CKPT_TRY(store, find_job(job, false));
  return scrub(*store);
}

Result<VersionDiff> CheckpointStore::diff(const std::string& job, std::uint64_t from, std::uint64_t to) {
  CKPT_TRY(store, find_job(job, false));
  CKPT_TRY(first, store->find_version(from));
  CKPT_TRY(second, store->find_version(to));
  return checkpoint_store::diff(*store, *first, *second);
}

namespace {

class CopySink : public ChunkSink {
 public:
  CopySink(VersionWriter& writer, std::vector<std::uint32_t> regions, std::uint64_t chunk_bytes)
      : writer_(writer), regions_(std::move(regions)), zeroes_(chunk_bytes) {}
  Result<void> chunk(std::uint32_t region, std::uint64_t chunk, std::span<const std::byte> bytes) override {
    return writer_.put_chunk(regions_[region], chunk, bytes);
  }
  Result<void> zero_chunk(std::uint32_t region, std::uint64_t chunk, std::uint64_t bytes) override {
    return writer_.put_chunk(regions_[region], chunk, std::span(zeroes_).first(bytes));
  }

 private:
  VersionWriter& writer_;
  const std::vector<std::uint32_t> regions_;
  const std::vector<std::byte> zeroes_;
};

}  // namespace

Result<void> copy_version(VersionReader& reader, VersionWriter& writer, const ReadOptions& options) {
  const Version& version = reader.version();
  std::vector<std::uint32_t> regions;
  for (const Region& region : version.regions) {
    CKPT_TRY(added, writer.add_region(region));
    regions.push_back(added);
  }
  CopySink sink(writer, std::move(regions), version.chunk_bytes);
  CKPT_TRYV(reader.read_regions(sink, options));
  for (const Blob& blob : version.blobs) {
    CKPT_TRY(bytes, reader.read_blob(blob.name, blob.list.bytes));
    CKPT_TRYV(writer.put_blob(blob.name, bytes));
  }
  return ok();
}

}  // namespace ckpt::checkpoint_store
