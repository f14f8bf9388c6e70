// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/snapshots/snapshot_orders.h"

namespace ckpt::mover {
namespace {

Error given_up() {
  return Error(ErrorCode::kAborted, "The snapshot was canceled");
}

}  // namespace

bool SnapshotOrders::apply(const messages::Message& message, UniqueFd file) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto* order = std::get_if<messages::FinalRound>(&message)) {
      final_ = *order;
    } else if (const auto* host = std::get_if<messages::SnapshotHost>(&message)) {
      host_ = *host;
      host_file_ = std::move(file);
    } else {
      return false;
    }
  }
  ordered_.notify_all();
  return true;
}

void SnapshotOrders::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    if (memory_ != nullptr) memory_->cancel();
  }
  ordered_.notify_all();
}

Result<void> SnapshotOrders::set_memory(SnapshotMemory* memory) {
  const std::lock_guard lock(mutex_);
  if (memory != nullptr && ending_) return given_up();
  memory_ = memory;
  return ok();
}

bool SnapshotOrders::is_ending() {
  const std::lock_guard lock(mutex_);
  return ending_;
}

Result<void> SnapshotOrders::check() {
  if (is_ending()) return given_up();
  return ok();
}

template <class Ready>
Result<void> SnapshotOrders::wait_until(std::unique_lock<std::mutex>& lock, Ready ready) {
  ordered_.wait(lock, [&] { return ready() || ending_; });
  if (!ready()) return given_up();
  return ok();
}

Result<messages::FinalRound> SnapshotOrders::wait_for_final_round() {
  std::unique_lock lock(mutex_);
  CKPT_TRYV(wait_until(lock, [this] { return final_.has_value(); }));
  return *final_;
}

Result<SnapshotOrders::SavedHostState> SnapshotOrders::wait_for_host_state() {
  std::unique_lock lock(mutex_);
  CKPT_TRYV(wait_until(lock, [this] { return host_.has_value(); }));
  return SavedHostState{std::move(host_file_), host_->host_state_bytes};
}

Result<void> SnapshotOrders::pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  if (ordered_.wait_for(lock, time, [this] { return ending_; })) return given_up();
  return ok();
}

}  // namespace ckpt::mover
