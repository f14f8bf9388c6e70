// SPDX-License-Identifier: Apache-2.0
#include "keeper/memory_bank.h"

#include <fcntl.h>
#include <sys/resource.h>

namespace ckpt::keeper {
namespace {

// Left free for everything else: peers, and the descriptors of messages under way (64 each).
constexpr rlim_t kReserve = 256;

Result<UniqueFd> duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return Error::from_errno("Keeping a descriptor of the job's device memory");
  return copy;
}

Result<void> check_room(std::uint64_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return Error::from_errno("Asking for the descriptor limit");
  if (wanted + kReserve <= limit.rlim_cur) return ok();
  return Error(ErrorCode::kRefused, "The keeper may have " + std::to_string(limit.rlim_cur) +
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
    return fail(std::move(room).assume_error());
  std::vector<UniqueFd> copies;
  for (const UniqueFd& fd : descriptors) {
    Result<UniqueFd> copy = duplicate(fd.get());
    if (!copy.has_value()) return fail(std::move(copy).assume_error());
    copies.push_back(std::move(copy).assume_value());
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    entries_.insert_or_assign(records[i].id, Entry{records[i], std::move(copies[i])});
  }
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

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace ckpt::keeper
