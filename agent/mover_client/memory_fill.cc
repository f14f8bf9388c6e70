// SPDX-License-Identifier: Apache-2.0
#include "agent/mover_client/memory_fill.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <optional>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/protocol/wire/mover_messages.h"

namespace ckpt::agent {
namespace {

// Sends FillRegions to the mover, one at a time, and waits for its answers.
class FillSession {
 public:
  FillSession(const asio::any_io_executor& executor, std::shared_ptr<MoverProcess> process)
      : process_(std::move(process)), key_(next_number(), mover::kFillRank), answered_(executor) {
    MoverProcess::Subscriber subscriber;
    subscriber.message = [this](mover::Packet packet) { on_message(packet.message); };
    subscriber.died = [this](Error error) {
      answer_.emplace(std::move(error));
      answered_.notify();
    };
    process_->subscribe(key_, std::move(subscriber));
  }
  ~FillSession() { process_->unsubscribe(key_); }
  FillSession(const FillSession&) = delete;
  FillSession& operator=(const FillSession&) = delete;

  Task<Result<std::uint64_t>> fill(std::vector<mover::RegionInfo> regions, std::vector<UniqueFd> descriptors,
                                   Milliseconds timeout) {
    mover::FillRegions message;
    message.session = key_;
    message.batch = ++batch_;
    message.regions = std::move(regions);
    CKPT_CO_TRYV(process_->send(message, std::move(descriptors)));
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (!answer_) {
      if (!co_await answered_.wait(until) && !answer_)
        co_return Error(ErrorCode::kTimedOut, "The mover did not fill the rank's memory within " +
                                                  std::to_string(timeout.count()) + " ms");
    }
    Result<std::uint64_t> answer = std::move(*answer_);
    answer_.reset();
    co_return answer;
  }

 private:
  static std::uint64_t next_number() {
    static std::uint64_t number = 0;  // number of the last session; used on the event loop only
    return ++number;
  }
  void on_message(const mover::Message& message) {
    if (const auto* filled = std::get_if<mover::Filled>(&message)) {
      if (filled->batch == batch_) answer_.emplace(filled->bytes);
    } else if (const auto* failed = std::get_if<mover::FillFailed>(&message)) {
      if (failed->batch == batch_) answer_.emplace(failed->failure.to_error());
    }
    answered_.notify();
  }

  std::shared_ptr<MoverProcess> process_;
  mover::SessionKey key_;
  AsyncEvent answered_;
  std::uint64_t batch_ = 0;
  std::optional<Result<std::uint64_t>> answer_;
};

local::Make make_order(const HeldRegions& held) {
  local::Make order;
  order.sequence = held.next;
  for (const local::RegionRecord& record : held.records)
    order.records.push_back({record.id, record.generation});
  return order;
}

// Pairs the descriptors. Each memory with content is followed by the memory to fill.
Result<std::vector<UniqueFd>> pair_up(std::vector<UniqueFd> from, const std::vector<UniqueFd>& to) {
  std::vector<UniqueFd> pairs;
  for (std::size_t i = 0; i < from.size(); ++i) {
    pairs.push_back(std::move(from[i]));
    UniqueFd copy(::fcntl(to[i].get(), F_DUPFD_CLOEXEC, 3));
    if (!copy) return Error::from_errno("Cannot duplicate a descriptor of the rank's memory");
    pairs.push_back(std::move(copy));
  }
  return pairs;
}

Task<Result<void>> fill_batch(FillSession& session, const FillOrder& order, HeldRegions held) {
  local::Make wanted = make_order(held);
  CKPT_CO_TRY(made, co_await order.keeper->make(std::move(wanted), order.timeout));
  fault_point(FaultPoint::kTargetRegionsMade);
  CKPT_CO_TRY(descriptors, pair_up(std::move(held.descriptors), made));
  std::vector<mover::RegionInfo> regions;
  for (const local::RegionRecord& record : held.records)
    regions.emplace_back(record.id, record.generation, record.bytes);
  CKPT_CO_TRYV(co_await session.fill(std::move(regions), std::move(descriptors), order.timeout));
  fault_point(FaultPoint::kTargetRegionsFilled);
  CKPT_CO_TRYV(co_await order.keeper->replace(order.migration, std::move(held.records), std::move(made)));
  fault_point(FaultPoint::kTargetRegionsKept);
  co_return ok();
}

}  // namespace

Task<Result<void>> fill_memory(asio::any_io_executor executor, FillOrder order) {
  const Nanos began = now_ns();
  std::uint64_t bytes = 0;
  std::uint64_t regions = 0;
  std::uint64_t from = 0;
  CKPT_CO_TRYV(co_await order.mover->ready(order.timeout));
  FillSession session(executor, order.mover);
  for (;;) {
    CKPT_CO_TRY(held, co_await order.keeper->fetch(order.set, order.migration, from));
    if (held.records.empty()) break;
    from = held.next;
    regions += held.records.size();
    for (const local::RegionRecord& record : held.records) bytes += record.bytes;
    CKPT_CO_TRYV(co_await fill_batch(session, order, std::move(held)));
  }
  spdlog::info("memory filled: regions {} bytes {} took_ms {:.1f}", regions, bytes,
               static_cast<double>(now_ns() - began) / 1e6);
  co_return ok();
}

}  // namespace ckpt::agent
