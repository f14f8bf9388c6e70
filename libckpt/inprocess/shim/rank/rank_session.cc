// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/rank/rank_session.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "libckpt/base/fault.h"
#include "libckpt/include/ckpt/ckpt.h"
#include "libckpt/inprocess/local/batches.h"
#include "libckpt/inprocess/local/reattach.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim {
namespace {

[[noreturn]] void die_without_keeper(const std::string& cause) {
  std::fprintf(stderr, "gpumigrate: lost the keeper of this job (%s); exiting\n", cause.c_str());
  ::kill(::getpid(), SIGKILL);
  std::abort();
}

// Returns the UUIDs of all devices. The driver is queried only once, because it may be locked later.
std::vector<std::array<std::uint8_t, 16>> ask_uuids() {
  int count = 0;
  if (real().cuDeviceGetCount == nullptr || real().cuDeviceGetCount(&count) != CUDA_SUCCESS) return {};
  const auto ask = real().cuDeviceGetUuid_v2 != nullptr ? real().cuDeviceGetUuid_v2 : real().cuDeviceGetUuid;
  std::vector<std::array<std::uint8_t, 16>> uuids(static_cast<std::size_t>(count));
  for (int device = 0; device < count; ++device) {
    CUuuid uuid{};
    if (ask != nullptr && ask(&uuid, device) == CUDA_SUCCESS)
      std::memcpy(uuids[static_cast<std::size_t>(device)].data(), uuid.bytes, sizeof uuid.bytes);
  }
  return uuids;
}

// Declares that this thread's driver calls do not affect captures. Without this declaration, other threads
// may not make some driver calls while the program captures a stream, and would end the capture with them.
void stand_beside_captures() {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (real().cuThreadExchangeStreamCaptureMode != nullptr) real().cuThreadExchangeStreamCaptureMode(&mode);
}

}  // namespace

RankSession::RankSession(std::unique_ptr<local::KeeperLink> link)
    : link_(std::move(link)), uuids_(ask_uuids()) {}

Result<std::unique_ptr<RankSession>> RankSession::create(const std::string& socket_path) {
  CKPT_TRY(link, local::KeeperLink::connect(socket_path, MigrationMode::kTransparent));
  // The role has no tag of the job's id, because a test names its crash points before the tag is drawn.
  const std::string job = link->welcome().job.str();
  set_fault_role("rank." + job.substr(0, job.find('-', 2)) + ".fresh");
  return std::unique_ptr<RankSession>(new RankSession(std::move(link)));
}

Result<void> RankSession::start() {
  listen();
  sigset_t all;
  sigset_t former;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &former);
  std::thread service([this] {
    ::pthread_setname_np(::pthread_self(), local::kServiceThreadName);
    stand_beside_captures();
    serve();
  });
  ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  service.detach();
  return ok();
}

void RankSession::forget_in_child() noexcept {
  if (left_) return;
  ::close(link_->fd());
  if (closing_.done) ::close(closing_.done.get());
}

void RankSession::serve() {
  for (;;) {
    if (left_) wait_to_be_called();
    pollfd watched[2] = {{link_->fd(), POLLIN, 0}, {closing_.done ? closing_.done.get() : -1, POLLIN, 0}};
    if (::poll(watched, 2, -1) < 0) {
      if (errno == EINTR) continue;
      die_without_keeper("poll failed");
    }
    if (watched[1].revents != 0) {
      const std::lock_guard lock(mutex_);
      if (Result<void> done = gate_closed(); !done.has_value()) die_without_keeper(done.error().to_string());
    }
    if (watched[0].revents == 0) continue;
    Result<local::Received> received = link_->receive();
    if (!received.has_value()) die_without_keeper(received.error().to_string());
    if (received->transfer == local::Transfer::kClosed) die_without_keeper("it closed the connection");
    if (received->transfer == local::Transfer::kDone) handle(*std::move(received));
  }
}

void RankSession::handle(local::Received received) {
  const std::lock_guard lock(mutex_);
  Result<void> done = handle_message(received.message.request, received);
  if (done.has_value() && !left_) done = send_paused_if_drained();
  if (!done.has_value()) die_without_keeper(done.error().to_string());
}

Result<void> RankSession::handle_message(std::uint64_t request, local::Received& received) {
  const local::Body& body = received.message.body;
  if (std::holds_alternative<local::Describe>(body)) return describe(request);
  if (std::holds_alternative<local::Export>(body)) return start_export(request);
  if (const auto* ack = std::get_if<local::ExportAck>(&body)) {
    exports_.acknowledged(ack->sequence);
    return pump_exports();
  }
  if (const auto* freed = std::get_if<local::RegionFreedAck>(&body)) {
    exports_.free_acknowledged(freed->id, freed->generation);
    ++frees_answered_;
    freed_.notify_all();
    return ok();
  }
  if (std::holds_alternative<local::StopExport>(body)) {
    exports_.stop();
    announced_.clear();
    freed_.notify_all();
    return ok();
  }
  if (std::holds_alternative<local::Pause>(body)) return begin_pause(request);
  if (const auto* resume = std::get_if<local::Resume>(&body)) return end_pause(*resume, request);
  if (std::holds_alternative<local::RankStopped>(body)) return lease_ended();
  if (std::holds_alternative<local::RankContinued>(body)) return lease_came_back();
  if (const auto* held = std::get_if<local::Release>(&body)) return release(request, *held);
  if (const auto* batch = std::get_if<local::MapBatch>(&body))
    return map_batch(request, *batch, received.descriptors);
  if (const auto* map = std::get_if<local::Map>(&body)) return map_end(request, *map);
  if (const auto* order = std::get_if<local::Make>(&body)) return make(request, *order);
  if (std::holds_alternative<local::PrepareDump>(body)) return leave_for_dump(request);
  return ok();
}

Result<void> RankSession::send(std::uint64_t request, local::Body body, std::span<const int> descriptors) {
  return link_->send(request, std::move(body), descriptors);
}

Result<void> RankSession::refuse(std::uint64_t request, local::MessageType type, const Error& error) {
  return send(request, to_failed(type, error));
}

local::RegionRecord RankSession::record_of(const RegionInfo& region) const {
  const auto device = static_cast<std::size_t>(region.device);
  return {region.id, region.generation, region.bytes, device < uuids_.size() ? uuids_[device] : Uuid{}};
}

local::TensorRecord RankSession::tensor_of(const RegionInfo& region) {
  local::TensorRecord tensor;
  tensor.name.assign("region:" + std::to_string(region.id));
  tensor.region = region.id;
  tensor.bytes = region.bytes;
  tensor.dtype = CKPT_U8;
  tensor.kind = CKPT_BUFFER;
  tensor.dims = 1;
  tensor.shape[0] = region.bytes;
  return tensor;
}

local::StateSummary RankSession::summary() const {
  local::StateSummary summary;
  for (const RegionInfo& region : shim_memory().regions()) {
    ++summary.regions;
    summary.region_bytes += region.bytes;
  }
  summary.tensors = summary.regions;
  summary.state_bytes = summary.region_bytes;
  summary.host_state_bytes = bytes_devices_may_write();
  summary.ready = 1;
  const std::optional<const char*> used = reason();
  summary.movable = used ? 0 : 1;
  if (used) summary.reason.assign("The program uses " + std::string(*used) + ", which cannot be moved");
  return summary;
}

Result<void> RankSession::describe(std::uint64_t request) {
  std::vector<local::TensorRecord> tensors;
  std::vector<local::RegionRecord> regions;
  for (const RegionInfo& region : shim_memory().regions()) {
    tensors.push_back(tensor_of(region));
    regions.push_back(record_of(region));
  }
  const auto send_one = [&](local::Body body) { return send(request, std::move(body)); };
  CKPT_TRYV(local::in_batches<local::Tensors>(tensors, send_one));
  CKPT_TRYV(local::in_batches<local::Regions>(regions, send_one));
  return send(request, local::DescribeEnd{summary()});
}

// Drops the parts that the image of the process must not contain: the socket and the control page. The
// program's threads wait at the gate. Threads that do not use the GPU run until they are stopped.
Result<void> RankSession::leave_for_dump(std::uint64_t request) {
  if (state_ != State::kPaused) {
    return refuse(request, local::MessageType::kPrepareDump,
                  Error(ErrorCode::kRefused, "The rank is not paused"));
  }
  exports_.stop();
  announced_.clear();
  left_ = true;
  return link_->leave(request, local::DumpReady{});
}

void RankSession::wait_to_be_called() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, local::reattach_signal());
  siginfo_t info{};
  // A stop, a dump or a restore makes sigwaitinfo() return early.
  while (::sigwaitinfo(&wanted, &info) < 0 || info.si_code != SI_QUEUE) {
  }
  const auto token = reinterpret_cast<std::uint64_t>(info.si_value.sival_ptr);
  Result<std::unique_ptr<local::KeeperLink>> link =
      local::KeeperLink::connect(local::reattach_address(token), MigrationMode::kTransparent, true);
  if (!link.has_value()) die_without_keeper(link.error().to_string());
  const std::lock_guard lock(mutex_);
  link_ = *std::move(link);
  left_ = false;
}

}  // namespace ckpt::shim
