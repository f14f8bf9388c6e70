// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/peer/quota.h"

#include <algorithm>

#include "libckpt/store/local/checkpoint_store.h"

namespace ckpt::checkpoint_store {
namespace {

constexpr std::size_t kMaxFiles = 100'000;

}  // namespace

Result<void> Quota::begin(Files& files, const std::string& folder) {
  files_.clear();
  used_ = 0;
  const std::string mine = folder.substr(folder.rfind("/jobs/") + 1);
  for (const char* part : {"/packs", "/versions"}) {
    auto entries = files.list(folder + part);
    if (!entries && entries.error().code() == ErrorCode::kNotFound) continue;
    if (!entries) return std::move(entries).error();
    for (const FolderEntry& entry : *entries) {
      auto file = std::make_shared<Extent>();
      file->bytes = entry.bytes;
      used_ += entry.bytes;
      files_[mine + part + "/" + entry.name] = std::move(file);
    }
  }
  hard_limit_ = limit_ + std::min({used_, limit_, CheckpointStoreOptions().max_pack_bytes});
  return ok();
}

Result<Quota::Handle> Quota::create(const std::string& path) {
  if (Handle known = forget(path)) {
    known->bytes = 0;
    files_[path] = known;
    return known;
  }
  if (files_.size() >= kMaxFiles)
    return Error(ErrorCode::kInvalidArgument,
                 "The job has the maximum number of files in the checkpoint store");
  return files_[path] = std::make_shared<Extent>();
}

Result<void> Quota::write(const Handle& file, std::uint64_t at, std::uint64_t bytes) {
  if (at > file->bytes)
    return Error(ErrorCode::kInvalidArgument, "A file of a checkpoint store must not have holes: it has " +
                                                  std::to_string(file->bytes) +
                                                  " bytes, but a write starts at byte " + std::to_string(at));
  const std::uint64_t more = std::max(file->bytes, at + bytes) - file->bytes;
  if (limit_ != 0 && more > 0 && used_ + more > hard_limit_)
    return Error(ErrorCode::kRefused, "The checkpoint store is at its limit: the job has " +
                                          std::to_string(used_) + " of " + std::to_string(limit_) +
                                          " bytes in it and " + std::to_string(more) +
                                          " more must be written: keep fewer versions, or raise the limit");
  file->bytes += more;
  used_ += more;
  return ok();
}

Quota::Handle Quota::forget(const std::string& path) {
  const auto at = files_.find(path);
  if (at == files_.end()) return nullptr;
  Handle file = std::move(at->second);
  files_.erase(at);
  used_ -= file->bytes;
  return file;
}

Quota::Handle Quota::rename(const std::string& from, const std::string& to) {
  if (from == to) return nullptr;
  Handle replaced = forget(to);
  if (const auto at = files_.find(from); at != files_.end()) {
    files_[to] = std::move(at->second);
    files_.erase(from);
  }
  return replaced;
}

Quota::Handle Quota::remove(const std::string& path) {
  return forget(path);
}

}  // namespace ckpt::checkpoint_store
