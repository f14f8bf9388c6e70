// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/memory/memory_bank.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

namespace ckpt::keeper {
namespace {

// The number of descriptors that stay free for connections of peers, and for the descriptors of messages in
// transit (64 each).
constexpr rlim_t kReserve = 256;

Result<UniqueFd> duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return Error::from_errno("Cannot keep a descriptor of the job's device memory");
  return copy;
}

Result<void> check_room(std::uint64_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return Error::from_errno("Cannot read the descriptor limit");
  if (wanted + kReserve <= limit.rlim_cur) return ok();
  return Error(ErrorCode::kRefused, "The keeper may open at most " + std::to_string(limit.rlim_cur) +
                                        " descriptors, too few for " + std::to_string(wanted) +
                                        " regions: raise the hard limit of RLIMIT_NOFILE for the agent");
}

}  // namespace

Result<void> MemoryBank::add(std::span<const local::RegionRecord> records,
                             std::span<const UniqueFd> descriptors) {
  const auto fail = [this](Error error) {
    missing_ = error.to_string();
    return error;
  };
  if (Result<void> room = check_room(size() + records.size()); !room.has_value())
    return fail(std::move(room).error());
  std::vector<UniqueFd> copies;
  for (const UniqueFd& fd : descriptors) {
    Result<UniqueFd> copy = duplicate(fd.get());
    if (!copy.has_value()) return fail(std::move(copy).error());
    copies.push_back(*std::move(copy));
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    entries_.insert_or_assign(records[i].id, Entry{records[i], std::move(copies[i])});
  }
  return ok();
}

Result<void> MemoryBank::replace(std::span<const local::RegionRecord> records,
                                 std::span<const UniqueFd> descriptors) {
  std::vector<UniqueFd> copies;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto found = entries_.find(records[i].id);
    if (found == entries_.end())
      return Error(ErrorCode::kNotFound, "The keeper holds no region " + std::to_string(records[i].id));
    if (found->second.record.bytes != records[i].bytes)
      return Error(ErrorCode::kInvalidArgument, "Region " + std::to_string(records[i].id) +
                                                    " does not have " + std::to_string(records[i].bytes) +
                                                    " bytes");
    CKPT_TRY(copy, duplicate(descriptors[i].get()));
    copies.push_back(std::move(copy));
  }
  for (std::size_t i = 0; i < records.size(); ++i)
    entries_.at(records[i].id).descriptor = std::move(copies[i]);
  return ok();
}

void MemoryBank::drop(std::uint64_t id, std::uint64_t generation) {
  const auto found = entries_.find(id);
  if (found != entries_.end() && found->second.record.generation == generation) entries_.erase(found);
}

void MemoryBank::clear() {
  entries_.clear();
  missing_.clear();
}

std::uint64_t MemoryBank::digest() const {
  std::uint64_t sum = 0;
  for (const auto& [id, entry] : entries_) sum += local::region_digest(id, entry.record.generation);
  return sum;
}

Result<MemoryBank::Batch> MemoryBank::batch_after(std::uint64_t last) const {
  Batch batch;
  for (auto entry = entries_.upper_bound(last);
       entry != entries_.end() && batch.records.size() < local::kMaxRecords; ++entry) {
    CKPT_TRY(copy, duplicate(entry->second.descriptor.get()));
    batch.records.push_back(entry->second.record);
    batch.descriptors.push_back(std::move(copy));
  }
  return batch;
}

std::vector<std::uint64_t> MemoryBank::by_size() const {
  std::vector<std::uint64_t> ids;
  ids.reserve(entries_.size());
  for (const auto& [id, entry] : entries_) ids.push_back(id);
  std::stable_sort(ids.begin(), ids.end(),
                   [this](std::uint64_t a, std::uint64_t b) { return bytes_of(a) > bytes_of(b); });
  return ids;
}

Result<MemoryBank::Batch> MemoryBank::batch_of(std::span<const std::uint64_t> ids, std::size_t max_records,
                                               std::uint64_t bytes, std::size_t& used) const {
  Batch batch;
  std::uint64_t sum = 0;
  for (used = 0; used < ids.size() && batch.records.size() < max_records; ++used) {
    const auto found = entries_.find(ids[used]);
    if (found == entries_.end()) continue;
    const local::RegionRecord& record = found->second.record;
    if (!batch.records.empty() && record.bytes > bytes - std::min(sum, bytes)) break;
    sum += record.bytes;
    CKPT_TRY(copy, duplicate(found->second.descriptor.get()));
    batch.records.push_back(record);
    batch.descriptors.push_back(std::move(copy));
  }
  return batch;
}

std::uint64_t MemoryBank::bytes_of(std::uint64_t id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? 0 : found->second.record.bytes;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace ckpt::keeper
