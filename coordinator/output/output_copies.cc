// SPDX-License-Identifier: Apache-2.0
#include "coordinator/output/output_copies.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "coordinator/output/line_begin.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/control/offload.h"

namespace ckpt::coordinator {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::string_view kMagic = "GMOUTPT1";
constexpr std::size_t kHeader = 16;
constexpr std::string_view kNew = ".new";

std::uint64_t on_disk(const OutputExtent& extent) {
  constexpr std::uint64_t kBlock = 4096;
  return (kHeader + extent.end - extent.begin + kBlock - 1) / kBlock * kBlock;
}

std::string header_of(std::uint64_t begin) {
  std::string text(kMagic);
  text.resize(kHeader);
  std::memcpy(text.data() + kMagic.size(), &begin, sizeof begin);
  return text;
}

Result<std::string> read_part(int file, const std::string& path, std::uint64_t at, std::size_t limit) {
  std::string bytes(limit, '\0');
  std::size_t filled = 0;
  while (filled < limit) {
    const ssize_t got = ::pread(file, bytes.data() + filled, limit - filled, static_cast<off_t>(at + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Reading " + path);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

Result<OutputExtent> extent_in(int file, const std::string& path) {
  CKPT_TRY(header, read_part(file, path, 0, kHeader));
  struct stat facts {};
  const bool is_one = header.size() == kHeader && header.starts_with(kMagic) && ::fstat(file, &facts) == 0;
  if (!is_one) return Error(ErrorCode::kIo, path + " is not a copy of a log");
  OutputExtent extent;
  std::memcpy(&extent.begin, header.data() + kMagic.size(), sizeof extent.begin);
  extent.end = extent.begin + static_cast<std::uint64_t>(facts.st_size) - kHeader;
  if (extent.end < extent.begin) return Error(ErrorCode::kIo, path + " has an invalid offset");
  return extent;
}

Result<UniqueFd> open_file(const std::string& path, int how) {
  UniqueFd file(::open(path.c_str(), how | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Error::from_errno("Opening " + path);
  return file;
}

Result<OutputExtent> write_fresh(const std::string& path, std::uint64_t begin, std::string_view bytes) {
  const std::string fresh = path + std::string(kNew);
  CKPT_TRY(file, open_file(fresh, O_WRONLY | O_CREAT | O_TRUNC));
  const std::string text = header_of(begin).append(bytes);
  CKPT_TRYV(write_all(file.get(), std::as_bytes(std::span(text.data(), text.size()))));
  if (std::rename(fresh.c_str(), path.c_str()) != 0) return Error::from_errno("Renaming " + fresh);
  return OutputExtent(begin, begin + bytes.size());
}

// Shortens the copy to its last kKeptOutput bytes, beginning at the start of a line.
Result<OutputExtent> shorten(int file, const std::string& path, OutputExtent extent) {
  const std::uint64_t from = extent.end - kKeptOutput;
  CKPT_TRY(bytes, read_part(file, path, kHeader + from - extent.begin, kKeptOutput));
  const std::size_t begin = line_begin(bytes);
  return write_fresh(path, from + begin, std::string_view(bytes).substr(begin));
}

// Writes a part of a copy. The current content of the file decides what is new, because two callers may write
// the same bytes.
Result<OutputExtent> write_copy(const std::string& path, std::uint64_t offset, std::string_view bytes) {
  const auto opened = open_file(path, O_RDWR | O_APPEND);
  if (!opened) return write_fresh(path, offset, bytes);
  const int file = opened->get();
  auto known = extent_in(file, path);
  const bool goes_on = known && known->begin <= offset && offset <= known->end;
  if (!goes_on) return write_fresh(path, offset, bytes);
  const std::uint64_t there = known->end - offset;
  if (there >= bytes.size()) return known;
  bytes.remove_prefix(there);
  CKPT_TRYV(write_all(file, std::as_bytes(std::span(bytes.data(), bytes.size()))));
  const OutputExtent extent(known->begin, known->end + bytes.size());
  if (extent.end - extent.begin <= 2 * kKeptOutput) return extent;
  return shorten(file, path, extent);
}

Result<OutputPart> read_copy(const std::string& path, std::uint64_t offset, std::size_t limit) {
  CKPT_TRY(file, open_file(path, O_RDONLY));
  CKPT_TRY(extent, extent_in(file.get(), path));
  OutputPart part;
  part.offset = std::clamp(offset, extent.begin, extent.end);
  const bool has_before = part.offset > extent.begin;
  const std::uint64_t at = kHeader + part.offset - extent.begin;
  CKPT_TRY(bytes, read_part(file.get(), path, has_before ? at - 1 : at, has_before ? limit + 1 : limit));
  part.begins_line = !has_before || bytes.starts_with('\n');
  part.bytes = has_before ? bytes.substr(std::min<std::size_t>(1, bytes.size())) : std::move(bytes);
  return part;
}

struct Found {
  std::pair<JobId, Incarnation> key;
  OutputExtent extent;
  std::int64_t changed_ns = 0;
};

std::optional<Found> look_at(const std::filesystem::path& path) {
  unsigned long long job = 0;
  unsigned long long incarnation = 0;
  int length = 0;
  const std::string name = path.filename().string();
  const bool is_named = std::sscanf(name.c_str(), "%16llx-%llu%n", &job, &incarnation, &length) == 2 &&
                        static_cast<std::size_t>(length) == name.size();
  const auto file = open_file(path.string(), O_RDONLY);
  if (!is_named || !file) return std::nullopt;
  const auto extent = extent_in(file->get(), path.string());
  struct stat facts {};
  if (!extent || ::fstat(file->get(), &facts) != 0) return std::nullopt;
  Found found;
  found.key = {job, incarnation};
  found.extent = *extent;
  found.changed_ns = std::int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
  return found;
}

}  // namespace

std::string OutputCopies::path_of(const Key& key) const {
  return fmt::format("{}/{:016x}-{}", folder_, key.first, key.second);
}

Result<void> OutputCopies::load() {
  std::error_code code;
  std::filesystem::create_directories(folder_, code);
  if (code) return Error(ErrorCode::kIo, "Making " + folder_ + ": " + code.message());
  if (::chmod(folder_.c_str(), 0700) != 0) return Error::from_errno("Closing " + folder_ + " to others");
  std::vector<Found> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, code)) {
    std::error_code ignored;
    if (auto found = limit_ == 0 ? std::nullopt : look_at(entry.path()))
      all.push_back(*found);
    else
      std::filesystem::remove(entry.path(), ignored);
  }
  if (code) return Error(ErrorCode::kIo, "Reading " + folder_ + ": " + code.message());
  std::sort(all.begin(), all.end(),
            [](const Found& a, const Found& b) { return a.changed_ns < b.changed_ns; });
  for (const Found& found : all) note(found.key, found.extent);
  return ok();
}

std::optional<OutputExtent> OutputCopies::find(JobId job, Incarnation incarnation) const {
  const auto found = copies_.find({job, incarnation});
  return found == copies_.end() ? std::nullopt : std::optional(found->second.extent);
}

void OutputCopies::note(const Key& key, OutputExtent extent) {
  forget(key);
  Copy copy;
  copy.extent = extent;
  copy.grown = ++growths_;
  copies_.emplace(key, copy);
  bytes_ += on_disk(extent);
}

void OutputCopies::forget(const Key& key) {
  const auto found = copies_.find(key);
  if (found == copies_.end()) return;
  bytes_ -= on_disk(found->second.extent);
  copies_.erase(found);
}

control::Task<> OutputCopies::remove(Key key) {
  forget(key);
  const auto unlink = [path = path_of(key)] { return std::remove(path.c_str()); };
  (void)co_await control::offload(disk_, unlink);
}

control::Task<Result<void>> OutputCopies::append(JobId job, Incarnation incarnation, std::uint64_t offset,
                                                 std::string bytes) {
  if (bytes.empty()) co_return ok();
  const Key key(job, incarnation);
  const auto write = [path = path_of(key), offset, text = std::move(bytes)] {
    return write_copy(path, offset, text);
  };
  auto written = co_await control::offload(disk_, write);
  if (!written) {
    co_await remove(key);
    co_return std::move(written).error();
  }
  note(key, *written);
  co_await keep_limit(key);
  co_return ok();
}

control::Task<> OutputCopies::keep_limit(Key newest) {
  while (bytes_ > limit_ && copies_.size() > 1) {
    const auto oldest = std::min_element(copies_.begin(), copies_.end(), [](const auto& a, const auto& b) {
      return a.second.grown < b.second.grown;
    });
    if (oldest->first == newest) co_return;
    co_await remove(oldest->first);
  }
}

control::Task<Result<OutputPart>> OutputCopies::read(JobId job, Incarnation incarnation, std::uint64_t offset,
                                                     std::size_t limit) {
  if (!find(job, incarnation))
    co_return Error(ErrorCode::kNotFound, "The coordinator has no copy of that output");
  const auto read = [path = path_of({job, incarnation}), offset, limit] {
    return read_copy(path, offset, limit);
  };
  co_return co_await control::offload(disk_, read);
}

control::Task<> OutputCopies::retain_only(std::function<bool(JobId)> stays) {
  std::vector<Key> gone;
  for (const auto& [key, copy] : copies_) {
    if (!stays(key.first)) gone.push_back(key);
  }
  for (const Key& key : gone) co_await remove(key);
}

}  // namespace ckpt::coordinator
