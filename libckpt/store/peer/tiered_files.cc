// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/peer/tiered_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "libckpt/store/local/version.h"

namespace ckpt::checkpoint_store {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

bool is_missing(const Error& error) {
  return error.code() == ErrorCode::kNotFound;
}

std::string folder_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string base_of(const std::string& name) {
  const std::string suffix = unfinished("");
  return is_unfinished(name) ? name.substr(0, name.size() - suffix.size()) : name;
}

// Tries memory first and the disk second. Only the disk's result must be correct; for memory, a reader needs
// no more than an attempt.
template <class T>
Result<T> either(Result<T> memory, const std::function<Result<T>()>& disk) {
  if (memory || !is_missing(memory.error())) return memory;
  return disk();
}

}  // namespace

// A file that may move to the disk while it is being written.
class TieredFiles::Tiered : public File {
 public:
  Tiered(TieredFiles& tiers, std::string resident, std::unique_ptr<File> file)
      : tiers_(tiers), resident_(std::move(resident)), file_(std::move(file)) {}

  Result<void> write_at(std::uint64_t at, std::span<const std::byte> bytes) override {
    const std::uint64_t end = at + bytes.size();
    if (!moved_ && end > bytes_) {
      CKPT_TRY(fits, tiers_.free_memory(end - bytes_));
      if (!fits) {
        CKPT_TRYV(move_to_disk());
      } else {
        bytes_ = end;
      }
    }
    auto written = file_->write_at(at, bytes);
    if (written || moved_ || written.error().code() != ErrorCode::kRefused) return written;
    // The tmpfs is full before its limit is reached.
    CKPT_TRYV(move_to_disk());
    return file_->write_at(at, bytes);
  }
  Result<std::size_t> read_at(std::uint64_t at, std::span<std::byte> out) const override {
    return file_->read_at(at, out);
  }
  Result<std::uint64_t> size() const override { return file_->size(); }
  Result<void> sync() override { return file_->sync(); }

 private:
  Result<void> move_to_disk() {
    const std::string path = tiers_.on_disk(resident_);
    CKPT_TRY(there, tiers_.files_.create(path));
    CKPT_TRY(size, file_->size());
    std::vector<std::byte> piece(kCopyBytes);
    for (std::uint64_t at = 0; at < size;) {
      CKPT_TRY(count, file_->read_at(at, piece));
      CKPT_TRYV(there->write_at(at, std::span(piece).first(count)));
      at += count;
      if (count == 0) return Error(ErrorCode::kIo, resident_ + " became shorter while it was read");
    }
    file_ = std::move(there);
    moved_ = true;
    const std::lock_guard lock(tiers_.mutex_);
    if (tiers_.used_bytes_) *tiers_.used_bytes_ -= std::min(*tiers_.used_bytes_, bytes_);
    return tiers_.files_.remove(resident_);
  }

  TieredFiles& tiers_;
  const std::string resident_;
  std::unique_ptr<File> file_;
  std::uint64_t bytes_ = 0;  // the bytes that are counted as memory
  bool moved_ = false;
};

TieredFiles::TieredFiles(Tiers tiers, Files& files) : tiers_(std::move(tiers)), files_(files) {}

std::optional<std::string> TieredFiles::in_memory(const std::string& path) const {
  const bool pack = base_of(name_of(path)).ends_with(".pack") && folder_of(path).ends_with("/packs");
  if (!pack || !path.starts_with(tiers_.disk + "/")) return std::nullopt;
  return tiers_.memory + path.substr(tiers_.disk.size());
}

std::string TieredFiles::on_disk(const std::string& in_memory) const {
  return tiers_.disk + in_memory.substr(tiers_.memory.size());
}

Result<std::unique_ptr<File>> TieredFiles::create(const std::string& path) {
  const auto resident = in_memory(path);
  if (!resident || !tiers_.into_memory) return files_.create(path);
  return create_in_memory(path, *resident);
}

Result<std::unique_ptr<File>> TieredFiles::create_in_memory(const std::string& path,
                                                            const std::string& resident) {
  std::string folder = tiers_.memory;
  CKPT_TRYV(files_.make_folder(folder_of(folder)));
  CKPT_TRYV(files_.make_folder(folder));
  const std::string below = folder_of(resident).substr(tiers_.memory.size() + 1);
  for (std::size_t begin = 0; begin < below.size();) {
    const std::size_t end = std::min(below.find('/', begin), below.size());
    folder += "/" + below.substr(begin, end - begin);
    CKPT_TRYV(files_.make_folder(folder));
    begin = end + 1;
  }
  auto file = files_.create(resident);
  // The tmpfs has no space for even an empty file.
  if (!file && file.error().code() == ErrorCode::kRefused) return files_.create(path);
  if (!file) return file;
  return std::unique_ptr<File>(std::make_unique<Tiered>(*this, resident, *std::move(file)));
}

Result<std::unique_ptr<File>> TieredFiles::open(const std::string& path) {
  const auto resident = in_memory(path);
  if (!resident) return files_.open(path);
  // A file that leaves memory between the two attempts is already on the disk.
  return either<std::unique_ptr<File>>(files_.open(*resident), [&] { return files_.open(path); });
}

Result<void> TieredFiles::rename(const std::string& from, const std::string& to) {
  const auto resident = in_memory(from);
  const auto named = in_memory(to);
  if (!resident || !named) return files_.rename(from, to);
  return either<void>(files_.rename(*resident, *named), [&] { return files_.rename(from, to); });
}

Result<void> TieredFiles::remove(const std::string& path) {
  const auto resident = in_memory(path);
  if (!resident) return files_.remove(path);
  std::uint64_t bytes = 0;
  if (auto file = files_.open(*resident)) {
    CKPT_TRY(size, (*file)->size());
    bytes = size;
  }
  // Removes the file from both places, because an interrupted spill leaves it in both.
  auto gone = files_.remove(*resident);
  if (!gone && !is_missing(gone.error())) return gone;
  auto gone_too = files_.remove(path);
  if (!gone_too && !is_missing(gone_too.error())) return gone_too;
  if (!gone && !gone_too) return gone_too;
  const std::lock_guard lock(mutex_);
  if (used_bytes_) *used_bytes_ -= std::min(*used_bytes_, bytes);
  return ok();
}

Result<void> TieredFiles::remove_folder(const std::string& path) {
  if (path.starts_with(tiers_.disk + "/jobs/")) {
    auto gone = files_.remove_folder(tiers_.memory + path.substr(tiers_.disk.size()));
    if (!gone && !is_missing(gone.error())) return gone;
  }
  return files_.remove_folder(path);
}

Result<std::vector<FolderEntry>> TieredFiles::list(const std::string& path) {
  auto disk = files_.list(path);
  if (!path.starts_with(tiers_.disk + "/") || !path.ends_with("/packs")) return disk;
  auto memory = files_.list(tiers_.memory + path.substr(tiers_.disk.size()));
  if (!memory && is_missing(memory.error())) return disk;
  if (!memory) return memory;
  if (!disk && !is_missing(disk.error())) return disk;
  std::vector<FolderEntry> all = *std::move(memory);
  if (disk)
    for (FolderEntry& entry : *disk)
      if (std::none_of(all.begin(), all.end(), [&](const FolderEntry& e) { return e.name == entry.name; }))
        all.push_back(std::move(entry));
  std::sort(all.begin(), all.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return all;
}

Result<std::unique_ptr<FileLock>> TieredFiles::lock(const std::string& path) {
  CKPT_TRY(held, files_.lock(path));
  if (!tiers_.settles.empty()) {
    CKPT_TRYV(spill_job(tiers_.settles));
  }
  return std::move(held);
}

Result<std::set<std::string>> TieredFiles::packs_in_memory(const std::string& job) {
  std::set<std::string> names;
  CKPT_TRY(packs, residents(job));
  for (const Resident& pack : packs) names.insert(name_of(pack.path));
  return names;
}

// ---- the part in memory

Result<std::vector<TieredFiles::Resident>> TieredFiles::residents(const std::string& job) {
  std::vector<Resident> packs;
  const std::string folder = tiers_.memory + "/jobs/" + job + "/packs";
  auto entries = files_.list(folder);
  if (!entries && is_missing(entries.error())) return packs;
  if (!entries) return std::move(entries).error();
  for (const FolderEntry& entry : *entries) {
    if (is_unfinished(entry.name)) continue;
    Resident& pack = packs.emplace_back();
    pack.path = folder + "/" + entry.name;
    pack.bytes = entry.bytes;
    struct stat info {};
    if (::stat(pack.path.c_str(), &info) == 0)
      pack.age_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
  }
  return packs;
}

Result<std::vector<TieredFiles::Resident>> TieredFiles::all_residents() {
  std::vector<Resident> all;
  auto jobs = files_.list(tiers_.memory + "/jobs");
  if (!jobs && is_missing(jobs.error())) return all;
  if (!jobs) return std::move(jobs).error();
  for (const FolderEntry& job : *jobs) {
    if (!job.is_folder || !check_job_name(job.name)) continue;
    CKPT_TRY(packs, residents(job.name));
    all.insert(all.end(), packs.begin(), packs.end());
  }
  std::sort(all.begin(), all.end(), [](const Resident& a, const Resident& b) {
    return std::tie(a.age_ns, a.path) < std::tie(b.age_ns, b.path);
  });
  return all;
}

Result<bool> TieredFiles::free_memory(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!used_bytes_) {
    // Unfinished files do not count. An interrupted writer left them, or they belong to this writer and are
    // still empty.
    used_bytes_ = 0;
    CKPT_TRY(packs, all_residents());
    for (const Resident& pack : packs) *used_bytes_ += pack.bytes;
  }
  if (*used_bytes_ + bytes > tiers_.memory_limit_bytes) {
    CKPT_TRY(packs, all_residents());
    for (const Resident& pack : packs) {
      if (*used_bytes_ + bytes <= tiers_.memory_limit_bytes) break;
      CKPT_TRYV(spill(pack));
      *used_bytes_ -= std::min(*used_bytes_, pack.bytes);
    }
  }
  if (*used_bytes_ + bytes > tiers_.memory_limit_bytes) return false;
  *used_bytes_ += bytes;
  return true;
}

Result<void> TieredFiles::spill_job(const std::string& job) {
  const std::lock_guard lock(mutex_);
  CKPT_TRY(packs, residents(job));
  for (const Resident& pack : packs) {
    CKPT_TRYV(spill(pack));
  }
  return ok();
}

// Moves a pack to the disk. The pack is on the disk before it leaves memory.
Result<void> TieredFiles::spill(const Resident& pack) {
  const std::string path = on_disk(pack.path);
  const std::string next = unfinished(path);
  auto copied = copy(pack.path, next);
  if (copied) copied = files_.rename(next, path);
  if (copied) copied = files_.sync_folder(folder_of(path));
  if (!copied) {
    (void)files_.remove(next);
    return copied;
  }
  return files_.remove(pack.path);
}

Result<void> TieredFiles::copy(const std::string& from, const std::string& to) {
  CKPT_TRY(source, files_.open(from));
  CKPT_TRY(target, files_.create(to));
  std::vector<std::byte> piece(kCopyBytes);
  for (std::uint64_t at = 0;;) {
    CKPT_TRY(count, source->read_at(at, piece));
    if (count == 0) break;
    CKPT_TRYV(target->write_at(at, std::span(piece).first(count)));
    at += count;
  }
  return target->sync();
}

}  // namespace ckpt::checkpoint_store
