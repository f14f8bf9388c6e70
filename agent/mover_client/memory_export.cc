// SPDX-License-Identifier: Apache-2.0
#include "agent/mover_client/memory_export.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>

#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::agent {
namespace {

wire::TensorInfo to_wire(const local::TensorRecord& record) {
  wire::TensorInfo tensor;
  tensor.name = record.name.str();
  tensor.region = record.region;
  tensor.offset = record.offset;
  tensor.bytes = record.bytes;
  tensor.dtype = record.dtype;
  tensor.kind = record.kind;
  tensor.shape.assign(record.shape.begin(), record.shape.begin() + record.dims);
  return tensor;
}

}  // namespace

MemoryExport::MemoryExport(std::shared_ptr<KeeperLink> keeper, std::shared_ptr<MoverSession> session,
                           Settings settings)
    : keeper_(std::move(keeper)), session_(std::move(session)), settings_(std::move(settings)) {}

std::shared_ptr<MemoryExport> MemoryExport::create(std::shared_ptr<KeeperLink> keeper,
                                                   std::shared_ptr<MoverSession> session, Settings settings) {
  return std::shared_ptr<MemoryExport>(
      new MemoryExport(std::move(keeper), std::move(session), std::move(settings)));
}

Task<Result<local::StateSummary>> MemoryExport::run(asio::any_io_executor executor) {
  auto self = shared_from_this();
  exchange_ = keeper_->begin_export();
  while (!complete_) {
    auto message = co_await exchange_->next(settings_.timeout);
    if (!message) co_return std::move(message).error();
    auto handled = co_await handle(*std::move(message));
    if (!handled) co_return std::move(handled).error();
  }
  control::spawn(executor, "memory export", follow());
  co_return summary_;
}

Task<> MemoryExport::follow() {
  auto self = shared_from_this();
  while (!stopped_) {
    auto message = co_await exchange_->next(kNoHurry);
    if (stopped_) break;
    Result<void> handled = ok();
    if (message) {
      handled = co_await handle(*std::move(message));
    } else {
      handled = std::move(message).error();
    }
    if (handled || stopped_) continue;
    stopped_ = true;
    if (settings_.failed) settings_.failed(std::move(handled).error());
  }
  exchange_.reset();
}

Task<> MemoryExport::stop() {
  auto self = shared_from_this();
  if (stopped_ || !exchange_) co_return;
  stopped_ = true;
  exchange_->cancel();
  if (!keeper_->is_open()) co_return;
  auto told = co_await keeper_->stop_export();
  if (!told) spdlog::debug("export not stopped: reason {}", told.error().to_string());
}

Task<Result<void>> MemoryExport::handle(KeeperMessage received) {
  local::Body& body = received.message.body;
  if (auto* batch = std::get_if<local::ExportBatch>(&body)) {
    auto regions = std::move(*batch);
    co_return co_await receive_batch(std::move(regions), std::move(received.descriptors));
  }
  if (const auto* freed = std::get_if<local::RegionFreed>(&body)) {
    const local::RegionFreed which = *freed;
    co_return co_await handle_freed(which);
  }
  if (const auto* tensors = std::get_if<local::Tensors>(&body)) co_return receive_tensors(*tensors);
  if (const auto* dropped = std::get_if<local::TensorDropped>(&body)) {
    co_return session_->drop_tensors({dropped->name.str()});
  }
  if (const auto* end = std::get_if<local::ExportEnd>(&body)) {
    complete_ = true;
    summary_ = end->summary;
    co_return session_->attach_tensors(std::exchange(early_tensors_, {}));
  }
  co_return Error(ErrorCode::kProtocol, "The keeper sent an unexpected message inside an export");
}

Result<void> MemoryExport::receive_tensors(const local::Tensors& tensors) {
  std::vector<wire::TensorInfo> infos;
  for (const local::TensorRecord& record : tensors.records) infos.push_back(to_wire(record));
  if (complete_) return session_->attach_tensors(std::move(infos));
  if (early_tensors_.size() + infos.size() > kMaxTensors) {
    return Error(ErrorCode::kRefused,
                 "The job names more tensors than can be moved (" + std::to_string(kMaxTensors) + ")");
  }
  early_tensors_.insert(early_tensors_.end(), std::make_move_iterator(infos.begin()),
                        std::make_move_iterator(infos.end()));
  return ok();
}

Task<Result<void>> MemoryExport::receive_batch(local::ExportBatch batch, std::vector<UniqueFd> descriptors) {
  if (descriptors.size() != batch.records.size()) {
    co_return Error(ErrorCode::kProtocol, "The keeper sent a batch with a wrong number of descriptors");
  }
  std::vector<mover::RegionInfo> regions;
  for (std::size_t i = 0; i < batch.records.size(); ++i) {
    const local::RegionRecord& record = batch.records[i];
    regions.emplace_back(record.id, record.generation, record.bytes);
    if (!settings_.retain_descriptors) continue;
    UniqueFd copy(::fcntl(descriptors[i].get(), F_DUPFD_CLOEXEC, 3));
    if (!copy) co_return Error::from_errno("Cannot keep a descriptor of the job's memory");
    kept_[record.id] = std::move(copy);
  }
  auto attached = co_await session_->attach_regions(std::move(regions), std::move(descriptors));
  if (!attached) co_return std::move(attached).error();
  local::ExportAck ack;
  ack.sequence = batch.sequence;
  exchange_->send(local::Body(ack));
  co_return ok();
}

Task<Result<void>> MemoryExport::handle_freed(local::RegionFreed freed) {
  kept_.erase(freed.id);
  std::vector<std::uint64_t> ids(1, freed.id);
  auto dropped = co_await session_->drop_regions(std::move(ids));
  if (!dropped) co_return std::move(dropped).error();
  local::RegionFreedAck ack;
  ack.id = freed.id;
  ack.generation = freed.generation;
  exchange_->send(local::Body(ack));
  co_return ok();
}

}  // namespace ckpt::agent
