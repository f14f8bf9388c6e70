// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/mover.h"

#include <poll.h>

#include "agent/mover/heap.h"
#include "agent/mover/migration/source_transfer.h"
#include "agent/mover/migration/target_transfer.h"
#include "agent/mover/session/network_check.h"
#include "agent/mover/snapshots/restore_transfer.h"
#include "agent/mover/snapshots/snapshot_transfer.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/log.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::mover {
namespace {

constexpr int kTickMs = 100;

messages::SessionKey key_of(const messages::Message& message) {
  return std::visit(
      [](const auto& m) {
        if constexpr (requires { m.session; }) {
          return m.session;
        } else {
          return messages::SessionKey();
        }
      },
      message);
}

}  // namespace

Result<void> Mover::run() {
  while (true) {
    CKPT_TRYV(wait_for_packet());
    CKPT_TRY(packet, messages::receive_message(agent_.socket()));
    CKPT_TRYV(dispatch(std::move(packet)));
  }
}

Result<void> Mover::wait_for_packet() {
  while (true) {
    pollfd socket{agent_.socket(), POLLIN, 0};
    const int ready = ::poll(&socket, 1, sessions_.empty() && ending_.empty() ? -1 : kTickMs);
    if (ready < 0 && errno != EINTR) return Error::from_errno("Cannot wait for the agent");
    bury();
    if (ready > 0) return ok();
    for (const auto& [key, session] : sessions_) session->tick();
  }
}

Result<void> Mover::dispatch(messages::Packet packet) {
  if (const auto* request = std::get_if<messages::Configure>(&packet.message)) return configure(*request);
  if (!gpu_) return Error(ErrorCode::kProtocol, "The agent sent a message before Configure");
  if (const auto* open = std::get_if<messages::OpenSession>(&packet.message)) {
    open_session(*open);
  } else if (const auto* end = std::get_if<messages::EndSession>(&packet.message)) {
    end_session(*end);
  } else if (const auto* fill = std::get_if<messages::FillRegions>(&packet.message)) {
    fill_regions(*fill, std::move(packet.fds));
  } else if (const auto* left = std::get_if<messages::JobLeft>(&packet.message)) {
    if (const std::size_t count = last_snapshots_.forget(left->job); count > 0)
      spdlog::info("snapshots forgotten: job {} count {}", wire::job_text(left->job), count);
  } else {
    to_session(packet);
  }
  return ok();
}

Result<void> Mover::configure(const messages::Configure& request) {
  if (gpu_) return Error(ErrorCode::kProtocol, "The agent sent Configure twice");
  set_fault_role("mover." + request.node + "." + std::to_string(request.gpu));
  auto gpu = Gpu::create(request);
  Result<messages::MoverReady> ready = Error(ErrorCode::kInternal, "");
  if (gpu) {
    gpu_ = *std::move(gpu);
    ready = gpu_->describe();
  } else {
    ready = gpu.error();
  }
  if (!ready) {
    messages::MoverFailed failed;
    failed.failure = messages::Failure(ready.error());
    agent_.send(failed);
    return ready.error();
  }
  spdlog::info("ready: gpu {} device \"{}\" staging_bytes {} chunk_bytes {}", request.gpu, ready->device_name,
               request.staging_bytes, gpu_->chunk_bytes);
  agent_.send(*ready);
  return ok();
}

void Mover::open_session(const messages::OpenSession& request) {
  messages::SessionFailed failed;
  failed.session = request.session;
  auto secrets = secrets_of(request);
  if (!secrets) {
    failed.failure = messages::Failure(secrets.error());
    return agent_.send(failed);
  }
  if (sessions_.count(request.session) != 0 || ending_.count(request.session) != 0) {
    failed.failure = messages::Failure(Error(ErrorCode::kInvalidArgument, "The session is open already"));
    return agent_.send(failed);
  }
  sessions_[request.session] = make_session(request, *secrets);
  spdlog::info("session opened: id {} rank {} side {}", wire::migration_text(request.session.migration),
               request.session.rank, wire::to_string(request.side));
}

std::unique_ptr<Session> Mover::make_session(const messages::OpenSession& request,
                                             const SessionSecrets& secrets) {
  if (request.purpose == messages::Purpose::kCheck)
    return std::make_unique<NetworkCheck>(*gpu_, agent_, request, secrets);
  if (request.purpose == messages::Purpose::kSnapshot)
    return std::make_unique<SnapshotTransfer>(*gpu_, agent_, request, secrets, last_snapshots_);
  if (request.purpose == messages::Purpose::kRestore)
    return std::make_unique<RestoreTransfer>(*gpu_, agent_, request, secrets);
  if (request.side == wire::Side::kSource)
    return std::make_unique<SourceTransfer>(*gpu_, agent_, request, secrets);
  if (request.makes_memory) prepare_filler();
  return std::make_unique<TargetTransfer>(*gpu_, agent_, request, secrets);
}

void Mover::end_session(const messages::EndSession& order) {
  const messages::SessionKey& key = order.session;
  if (auto session = sessions_.extract(key); !session.empty()) {
    session.mapped()->ends_because(order.reason);
    session.mapped()->wind_up();
    ending_.insert(std::move(session));
    return bury();
  }
  messages::SessionEnded ended;
  ended.session = key;
  agent_.send(ended);
}

// Destroys ended sessions. Other sessions must not wait for a disk or, in a pause, until memory is freed.
void Mover::bury() {
  bool any_ended = false;
  for (auto it = ending_.begin(); it != ending_.end();) {
    if (!it->second->is_over()) {
      ++it;
      continue;
    }
    messages::SessionEnded ended;
    ended.session = it->first;
    it = ending_.erase(it);
    spdlog::info("session ended: id {} rank {}", wire::migration_text(ended.session.migration),
                 ended.session.rank);
    agent_.send(ended);
    any_ended = true;
  }
  if (any_ended && sessions_.empty() && ending_.empty()) give_back_free_heap();
}

// Loads the kernels that copy memory again while the job waits, if this may be necessary here.
void Mover::prepare_filler() {
  if (filler_) return;
  auto filler = RegionFiller::create(gpu_->device);
  if (filler) {
    filler_ = *std::move(filler);
  } else {
    spdlog::warn("no kernels for filling memory yet: reason {}", filler.error().to_string());
  }
}

void Mover::fill_regions(const messages::FillRegions& request, std::vector<UniqueFd> descriptors) {
  const auto fill = [&]() -> Result<std::uint64_t> {
    if (!filler_) {
      CKPT_TRY(filler, RegionFiller::create(gpu_->device));
      filler_ = std::move(filler);
    }
    return filler_->fill(request.regions, std::move(descriptors));
  };
  const Result<std::uint64_t> bytes = fill();
  if (bytes) {
    fault_point(FaultPoint::kTargetMoverFilled);
    messages::Filled filled;
    filled.session = request.session;
    filled.batch = request.batch;
    filled.bytes = *bytes;
    return agent_.send(filled);
  }
  spdlog::warn("memory not filled: id {} reason {}", wire::migration_text(request.session.migration),
               bytes.error().to_string());
  messages::FillFailed failed;
  failed.session = request.session;
  failed.batch = request.batch;
  failed.failure = messages::Failure(bytes.error());
  agent_.send(failed);
}

void Mover::to_session(messages::Packet& packet) {
  const messages::SessionKey key = key_of(packet.message);
  const auto it = sessions_.find(key);
  if (it == sessions_.end()) {
    if (const auto* drop = std::get_if<messages::DropRegions>(&packet.message)) {
      messages::Dropped dropped;
      dropped.session = key;
      dropped.regions = drop->regions;
      agent_.send(dropped);
    }
    return;
  }
  Session& session = *it->second;
  if (const auto* regions = std::get_if<messages::AttachRegions>(&packet.message)) {
    session.attach_regions(*regions, std::move(packet.fds));
  } else if (const auto* tensors = std::get_if<messages::AttachTensors>(&packet.message)) {
    session.attach_tensors(*tensors);
  } else if (const auto* dropped_tensors = std::get_if<messages::DropTensors>(&packet.message)) {
    session.drop_tensors(*dropped_tensors);
  } else if (const auto* dropped = std::get_if<messages::DropRegions>(&packet.message)) {
    session.drop_regions(*dropped);
  } else if (!session.handle(packet)) {
    session.fail(Error(ErrorCode::kProtocol, std::string("A ") +
                                                 std::string(messages::name_of(packet.message)) +
                                                 " was sent to the wrong side of a migration"));
  }
}

}  // namespace ckpt::mover
