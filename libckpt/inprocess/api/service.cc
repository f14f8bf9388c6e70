// SPDX-License-Identifier: Apache-2.0
// The service thread of a Session. It answers requests of keeper and agent while the program runs.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "libckpt/inprocess/api/session.h"
#include "libckpt/inprocess/local/batches.h"

namespace ckpt::job {

void Session::serve() {
  pollfd watched[2] = {{link_->fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  for (;;) {
    if (::poll(watched, 2, -1) < 0) {
      if (errno == EINTR) continue;
      die_without_keeper("poll failed");
    }
    if (watched[1].revents != 0) return;
    Result<local::Received> received = link_->receive();
    if (!received.has_value()) die_without_keeper(received.error().to_string());
    if (received->transfer == local::Transfer::kClosed) die_without_keeper("it closed the connection");
    if (received->transfer == local::Transfer::kDone) handle(*std::move(received));
  }
}

void Session::die_without_keeper(const std::string& reason) {
  std::fprintf(stderr, "ckpt: lost the keeper of this job (%s); exiting\n", reason.c_str());
  ::kill(::getpid(), SIGKILL);
  std::abort();
}

void Session::handle(local::Received received) {
  const std::uint64_t request = received.message.request;
  local::Body& body = received.message.body;
  const std::lock_guard lock(mutex_);
  Result<void> done = ok();
  if (std::holds_alternative<local::Describe>(body)) {
    done = describe(request);
  } else if (std::holds_alternative<local::Export>(body)) {
    done = start_export(request);
  } else if (const auto* ack = std::get_if<local::ExportAck>(&body)) {
    exports_.acknowledged(ack->sequence);
    done = pump_exports();
  } else if (const auto* freed = std::get_if<local::RegionFreedAck>(&body)) {
    exports_.free_acknowledged(freed->id, freed->generation);
  } else if (std::holds_alternative<local::StopExport>(body)) {
    exports_.stop();
  } else if (const auto* resume = std::get_if<local::Resume>(&body)) {
    UniqueFd host_state = received.descriptors.empty() ? UniqueFd() : std::move(received.descriptors.front());
    order_ = ResumeOrder{request, *resume, std::move(host_state)};
  } else if (const auto* ask = std::get_if<local::AskGroups>(&body)) {
    groups_.ask(request, *ask);
  } else if (auto* join = std::get_if<local::JoinGroups>(&body)) {
    groups_.join(request, std::move(*join));
  } else if (const auto* discard = std::get_if<local::DiscardGroups>(&body)) {
    groups_.discard(discard->epoch);
  } else if (std::holds_alternative<local::Moved>(body)) {
    if (!return_moved_) ::_exit(0);
    moved_ = true;
  }
  changed_.notify_all();
  if (!done.has_value()) die_without_keeper(done.error().to_string());
}

Result<void> Session::send_tables(std::uint64_t request, bool with_regions) {
  const auto send_one = [&](local::Body body) { return send(request, std::move(body)); };
  CKPT_TRYV(local::in_batches<local::Tensors>(device_.tensor_records(), send_one));
  if (with_regions) {
    CKPT_TRYV(local::in_batches<local::Regions>(device_.region_records(), send_one));
  }
  return ok();
}

local::StateSummary Session::summary() const {
  local::StateSummary summary = device_.summary();
  summary.ready = ready_ ? 1 : 0;
  summary.host_state_bytes = host_.fixed_bytes();
  return summary;
}

Result<void> Session::describe(std::uint64_t request) {
  CKPT_TRYV(send_tables(request, true));
  return send(request, local::DescribeEnd{summary()});
}

Result<void> Session::start_export(std::uint64_t request) {
  std::vector<std::uint64_t> ids;
  for (const local::RegionRecord& region : device_.region_records()) ids.push_back(region.id);
  exports_.start(request, ids);
  CKPT_TRYV(send_tables(request, false));
  return pump_exports();
}

// Sends the batches that can be sent now. A region that cannot be exported terminates the export, not the
// program.
Result<void> Session::pump_exports() {
  while (const std::optional<local::ExportStream::Batch> batch = exports_.next_batch()) {
    CKPT_TRYV(send_batch(*batch));
  }
  if (exports_.consume_initial_end()) {
    CKPT_TRYV(send(exports_.request(), local::ExportEnd{summary()}));
  }
  return ok();
}

Result<void> Session::send_batch(const local::ExportStream::Batch& batch) {
  local::ExportBatch message{batch.sequence, {}};
  std::vector<UniqueFd> owned;
  std::vector<int> descriptors;
  for (std::uint64_t id : batch.regions) {
    Result<UniqueFd> fd = device_.export_region(id);
    if (!fd.has_value()) {
      const std::uint64_t request = exports_.request();
      exports_.stop();
      return send(request, to_failed(local::MessageType::kExport, fd.error()));
    }
    owned.push_back(*std::move(fd));
    descriptors.push_back(owned.back().get());
    message.records.push_back(device_.record_of(*device_.find_region(id)));
  }
  return send(exports_.request(), std::move(message), descriptors);
}

}  // namespace ckpt::job
