// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/api/host_states.h"

#include <cstring>
#include <memory>
#include <utility>

#include "libckpt/inprocess/local/messages.h"

namespace ckpt::job {
namespace {

constexpr std::size_t kMaxNames = 4096;

thread_local bool callback_runs = false;

class CallbackScope {
 public:
  CallbackScope() { callback_runs = true; }
  ~CallbackScope() { callback_runs = false; }
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
};

Error mismatch(const std::string& name, const std::string& reason) {
  return Error(ErrorCode::kRefused, "Host state '" + name + "' does not match: " + reason);
}

}  // namespace

bool in_callback() noexcept {
  return callback_runs;
}

Result<void> HostStates::check_new(const std::string& name) const {
  if (memory_.contains(name) || callbacks_.contains(name)) {
    return Error(ErrorCode::kInvalidArgument, "Host state named '" + name + "' exists already");
  }
  if (memory_.size() + callbacks_.size() >= kMaxNames) {
    return Error(ErrorCode::kRefused, "At most " + std::to_string(kMaxNames) + " host states can be named");
  }
  return ok();
}

Result<void> HostStates::add_memory(std::string name, void* pointer, std::uint64_t bytes) {
  CKPT_TRYV(check_new(name));
  if (bytes > local::kMaxHostStateBytes / 2 - fixed_bytes_) {
    return Error(ErrorCode::kRefused, "Host state '" + name + "' would exceed " +
                                          std::to_string(local::kMaxHostStateBytes / 2) + " bytes in total");
  }
  fixed_bytes_ += bytes;
  memory_.emplace(std::move(name), Memory{pointer, bytes});
  return ok();
}

Result<void> HostStates::add_callbacks(std::string name, ckpt_save_fn save, ckpt_load_fn load, void* user) {
  CKPT_TRYV(check_new(name));
  callbacks_.emplace(std::move(name), Callbacks{save, load, user});
  return ok();
}

Result<void> HostStates::plan(std::vector<PlannedEntry>& entries) const {
  for (const auto& [name, memory] : memory_) {
    entries.push_back({EntryKind::kBytes, name, memory.bytes,
                       [pointer = memory.pointer](std::span<std::byte> out) -> Result<void> {
                         if (!out.empty()) std::memcpy(out.data(), pointer, out.size());
                         return ok();
                       }});
  }
  for (const auto& [name, callbacks] : callbacks_) {
    const auto writer = std::make_shared<ckpt_writer>();
    ckpt_status status;
    {
      const CallbackScope scope;
      status = callbacks.save(callbacks.user, writer.get());
    }
    if (status != CKPT_OK) {
      return Error(ErrorCode::kAborted,
                   "The save callback of host state '" + name + "' returned " + std::to_string(status));
    }
    entries.push_back({EntryKind::kCallback, name, writer->bytes.size(),
                       [writer](std::span<std::byte> out) -> Result<void> {
                         if (!out.empty()) std::memcpy(out.data(), writer->bytes.data(), out.size());
                         return ok();
                       }});
  }
  return ok();
}

Result<void> HostStates::check(const StateImage& image, const AllowedDifferences& allowed) const {
  for (const auto& [name, memory] : memory_) {
    const StateEntry* entry = image.find(EntryKind::kBytes, name);
    if (entry == nullptr && allowed.is_new) continue;
    if (entry == nullptr) return mismatch(name, "the source has no host state of that name");
    if (entry->data.size() != memory.bytes && !allowed.changed) {
      return mismatch(name, "the source has " + std::to_string(entry->data.size()) +
                                " bytes, but this instance has " + std::to_string(memory.bytes));
    }
  }
  for (const auto& [name, callbacks] : callbacks_) {
    if (image.find(EntryKind::kCallback, name) == nullptr && !allowed.is_new)
      return mismatch(name, "the source has no host state of that name");
  }
  for (const StateEntry& entry : image.entries()) {
    const bool known = entry.kind == EntryKind::kTensor || entry.kind == EntryKind::kBarrier ||
                       (entry.kind == EntryKind::kBytes && memory_.contains(entry.name)) ||
                       (entry.kind == EntryKind::kCallback && callbacks_.contains(entry.name));
    if (!known && !allowed.missing)
      return mismatch(entry.name, "this instance has no host state of that name");
  }
  return ok();
}

Result<void> HostStates::apply(const StateImage& image) const {
  for (const auto& [name, memory] : memory_) {
    const StateEntry* entry = image.find(EntryKind::kBytes, name);
    // Skips the memory, because check() has allowed the difference.
    if (entry == nullptr || entry->data.size() != memory.bytes) continue;
    if (memory.bytes != 0) std::memcpy(memory.pointer, entry->data.data(), memory.bytes);
  }
  for (const auto& [name, callbacks] : callbacks_) {
    const StateEntry* entry = image.find(EntryKind::kCallback, name);
    if (entry == nullptr) continue;
    const CallbackScope scope;
    const ckpt_status status = callbacks.load(callbacks.user, entry->data.data(), entry->data.size());
    if (status != CKPT_OK) return mismatch(name, "its load callback returned " + std::to_string(status));
  }
  return ok();
}

}  // namespace ckpt::job
