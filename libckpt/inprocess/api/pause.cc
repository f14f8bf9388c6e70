// SPDX-License-Identifier: Apache-2.0
// The calls of a Session in which a rank stops and continues: ready() and barrier().
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/inprocess/api/session.h"

namespace ckpt::job {
namespace {

constexpr const char* kBarrierEntry = "barrier";

}  // namespace

Result<ckpt_start> Session::ready() {
  if (in_callback()) return Error(ErrorCode::kInvalidArgument, "ckpt_ready was called from a callback");
  {
    std::unique_lock lock(mutex_);
    if (ready_) return Error(ErrorCode::kInvalidArgument, "ckpt_ready has been called already");
    CKPT_TRYV(device_.synchronize());
    ready_ = true;
  }
  if (role() == local::Role::kStandby) return wait_as_standby();
  CKPT_TRYV(send(0, local::Ready{}));
  return CKPT_FRESH;
}

Result<ckpt_start> Session::wait_as_standby() {
  {
    std::unique_lock lock(mutex_);
    frozen_ = true;
  }
  CKPT_TRYV(send(0, local::StandbyReady{}));
  fault_point(FaultPoint::kRankStandbyReady);
  const std::optional<ResumeOrder> order = wait_for_order();
  if (!order) return Error(ErrorCode::kAborted, "The standby was ordered to exit");
  Result<void> applied = take_over(*order);
  if (!applied.has_value()) {
    CKPT_TRYV(send(order->request, to_failed(local::MessageType::kResume, applied.error())));
    return std::move(applied).error();
  }
  if (order->resume.into_gate != 0) {
    CKPT_TRYV(send(order->request, local::InGate{order->resume.incarnation}));
  }
  CKPT_TRYV(send_running(*order));
  fault_point(FaultPoint::kRankResumed);
  return CKPT_RESUMED;
}

Result<void> Session::take_over(const ResumeOrder& order) {
  CKPT_TRYV(apply(order));
  return groups_.swap(order.resume.epoch);
}

Result<void> Session::apply(const ResumeOrder& order) {
  if (!order.host_state) {
    return Error(ErrorCode::kInvalidArgument,
                 "A standby was ordered to resume without the source's host state");
  }
  CKPT_TRY(image, StateImage::read(order.host_state.get(), order.resume.host_state_bytes));
  const AllowedDifferences allowed = AllowedDifferences::from_environment();
  CKPT_TRYV(host_.check(image, allowed));
  CKPT_TRYV(device_.check(image, allowed));
  CKPT_TRYV(device_.apply(image));
  CKPT_TRYV(host_.apply(image));
  const StateEntry* barrier = image.find(EntryKind::kBarrier, kBarrierEntry);
  std::uint64_t number = 0;
  if (barrier != nullptr && barrier->data.size() == sizeof number) {
    std::memcpy(&number, barrier->data.data(), sizeof number);
    link_->go_on_from_barrier(number);
  }
  return ok();
}

Result<BarrierEnd> Session::barrier() {
  if (!link_) return BarrierEnd::kGoOn;
  const Nanos entered = now_ns();
  const std::uint64_t barrier = link_->count_barrier();
  const local::ControlPageMapping& page = link_->page();
  if (barrier != 0) page.wait_at(barrier);
  page.wait_for_gate();
  if ((page.page().request.load(std::memory_order_acquire) & local::kPauseAsked) == 0)
    return BarrierEnd::kGoOn;
  const std::uint64_t request = page.page().pause_request.load(std::memory_order_acquire);
  if (page.page().pause_at.load(std::memory_order_acquire) > barrier) return BarrierEnd::kGoOn;
  {
    std::unique_lock lock(mutex_);
    if (request == failed_pause_) return BarrierEnd::kGoOn;
    if (in_callback() || !ready_) {
      return Error(ErrorCode::kInvalidArgument,
                   "ckpt_barrier was called before ckpt_ready or from a callback");
    }
    order_.reset();
    frozen_ = true;
  }
  return pause(request, entered, barrier);
}

Result<BarrierEnd> Session::pause(std::uint64_t request, Nanos entered, std::uint64_t barrier) {
  Result<void> paused = send_paused(request, entered, barrier);
  if (!paused.has_value()) {
    std::unique_lock lock(mutex_);
    frozen_ = false;
    failed_pause_ = request;
    changed_.notify_all();
    CKPT_TRYV(send(request, to_failed(local::MessageType::kPause, paused.error())));
    return std::move(paused).error();
  }
  const std::optional<ResumeOrder> order = wait_for_order();
  if (!order) return BarrierEnd::kMoved;
  CKPT_TRYV(groups_.swap(order->resume.epoch));
  CKPT_TRYV(send_running(*order));
  return BarrierEnd::kGoOn;
}

Result<void> Session::send_paused(std::uint64_t request, Nanos entered, std::uint64_t barrier) {
  CKPT_TRYV(device_.synchronize());
  const Nanos quiesced = now_ns();
  std::vector<PlannedEntry> entries;
  CKPT_TRYV(host_.plan(entries));
  CKPT_TRYV(device_.plan(entries));
  if (barrier != 0)
    entries.push_back({EntryKind::kBarrier, kBarrierEntry, sizeof barrier,
                       [barrier](std::span<std::byte> out) -> Result<void> {
                         std::memcpy(out.data(), &barrier, sizeof barrier);
                         return ok();
                       }});
  CKPT_TRY(file, write_state(entries));
  const int fd = file.fd.get();
  return send(request, local::Paused{entered, quiesced, file.bytes, barrier}, std::span(&fd, 1));
}

// Waits for an order. Returns the order to continue, or nullopt if the job now runs elsewhere.
std::optional<Session::ResumeOrder> Session::wait_for_order() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return order_.has_value() || moved_; });
  if (moved_) {
    frozen_ = false;
    changed_.notify_all();
    return std::nullopt;
  }
  return std::exchange(order_, std::nullopt);
}

Result<void> Session::send_running(const ResumeOrder& order) {
  link_->page().wait_for_gate();
  {
    std::unique_lock lock(mutex_);
    frozen_ = false;
  }
  changed_.notify_all();
  return send(order.request, local::Running{order.resume.incarnation, now_ns(), 1, 0});
}

}  // namespace ckpt::job
