// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/send_lane.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "libckpt/base/check.h"
#include "libckpt/datapath/engine/source/source_codec.h"

namespace ckpt::engine {
namespace {

constexpr std::size_t kQueueChunks = 256;  // the capacity of the queue; the scan does not run further ahead
                                           // than the cache can hold
constexpr std::uint64_t kAbortToken = ~std::uint64_t{4};  // differs from the tokens in send_lane_control.cc
constexpr Nanos kSendIdleWait = 1'000'000'000;  // if no work is pending, only an event ends the wait

}  // namespace

Result<std::unique_ptr<SendLane>> SendLane::create(SenderCore& core, WorkPool& workers,
                                                   transport::Transport& transport,
                                                   const std::string& address,
                                                   const transport::SessionToken& token,
                                                   std::vector<StagingSlot> slots) {
  std::unique_ptr<SendLane> lane(new SendLane(core, workers, std::move(slots)));
  CKPT_TRYV(lane->create_device_objects());
  CKPT_TRY(connection, transport.connect(address, token, *lane));
  lane->lane_ = std::move(connection);
  lane->thread_ = std::thread([raw = lane.get()] { raw->run(); });
  return lane;
}

SendLane::SendLane(SenderCore& core, WorkPool& workers, std::vector<StagingSlot> slots)
    : core_(core), workers_(workers), queue_(kQueueChunks) {
  for (StagingSlot& slot : slots) slots_.emplace_back(std::move(slot), core.codec != nullptr);
  resend_.reserve(slots_.size() * kMaxChunks);
}

Result<void> SendLane::create_device_objects() {
  const ContextScope scope(core_.device);
  const DriverApi& api = core_.device.api();
  CKPT_CUDA_TRY(api, cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  for (Slot& slot : slots_)
    CKPT_CUDA_TRY(api, cuEventCreate(&slot.copied, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  return ok();
}

void SendLane::stop() {
  stopping_.store(true);
  if (lane_) lane_->wake();
  if (thread_.joinable()) thread_.join();
}

SendLane::~SendLane() {
  stop();
  const ContextScope scope(core_.device);
  const DriverApi& api = core_.device.api();
  if (stream_ != nullptr) {
    api.cuStreamSynchronize(stream_);
    api.cuStreamDestroy_v2(stream_);
  }
  for (Slot& slot : slots_)
    if (slot.copied != nullptr) api.cuEventDestroy_v2(slot.copied);
}

// ---- functions for the lane's thread

transport::SameHostMemory SendLane::same_host_memory() {
  if (!core_.same_host) return {};
  const StagingSlot& slot = slots_.front().staging;
  const PinnedMemory& memory = slot.pool().memory();
  return {slot.memory(), memory.file(), memory.bytes()};
}

void SendLane::run() {
  const ContextScope scope(core_.device);
  prefer_throughput();
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // by default a sleep is 50 us late, which is a tenth of a message at
                                    // fabric rates
  while (!stopping_.load() && !core_.failed())
    if (!step()) sleep();
  if (const auto error = core_.error();
      error && !lane_->closed()) {  // the other side receives the reason before the lane closes
    LaneBuffer message = abort_message(core_.id, *error);
    (void)lane_->send(message.bytes(), {}, kAbortToken);
    while (!stopping_.load() && !lane_->closed())
      if (!lane_->progress()) lane_->wait(kSendIdleWait);
  }
  lane_->close();
}

bool SendLane::step() {
  bool worked = lane_->progress();
  if (core_.failed()) return true;
  if (has_control_.load(std::memory_order_relaxed)) worked |= send_control();
  if (has_blob_.load(std::memory_order_relaxed)) worked |= send_pieces();
  if (!ping_in_flight_ && pings_.load() != 0) worked |= send_ping();
  if (calibration_left_.load() != 0) worked |= send_calibration();
  worked |= fill_slots();
  worked |= ship_oldest();
  return worked;
}

void SendLane::sleep() {
  Nanos timeout = kSendIdleWait;
  if (wake_at_ != 0) timeout = std::clamp<Nanos>(wake_at_ - now_ns(), 0, kSendIdleWait);
  wake_at_ = 0;
  lane_->wait(timeout);
}

const DirtyChunk* SendLane::next_dirty() {
  return resend_.empty() ? queue_.front() : &resend_.back();
}

void SendLane::pop_dirty() {
  if (!resend_.empty()) {
    resend_.pop_back();
    return;
  }
  queue_.pop();
  if (queue_.size() == queue_.capacity() / 2) core_.notify();  // wakes a scan that found the queue full
}

std::uint64_t SendLane::length_of(const DirtyChunk& chunk) const {
  return chunk_length(chunk.region->get().bytes, core_.chunk_bytes, chunk.chunk);
}

bool SendLane::fill_slots() {
  bool filled = false;
  while (slots_[next_fill_].state.load(std::memory_order_relaxed) == State::kFree) {
    Slot& slot = slots_[next_fill_];
    auto more = fill(slot);
    if (!more) {
      core_.fail(more.error());
      return true;
    }
    if (!*more) break;
    next_fill_ = (next_fill_ + 1) % slots_.size();
    filled = true;
  }
  return filled;
}

// Fills the slot with waiting chunks, as many as fit into one message. Returns false if there were none.
Result<bool> SendLane::fill(Slot& slot) {
  StagedMessage& message = slot.message;
  message.count = 0;
  message.plain_bytes = 0;
  const std::uint64_t limit = core_.limiter.message_bytes(core_.chunk_bytes, core_.message_bytes);
  while (message.count < kMaxChunks) {
    const DirtyChunk* next = next_dirty();
    if (next == nullptr) break;
    if (core_.cut.load(std::memory_order_relaxed) || !next->region->enter()) {
      pop_dirty();
      core_.finish(1);
      continue;
    }
    const std::uint64_t length = next->zero ? 0 : length_of(*next);
    if (message.plain_bytes + length > limit) {
      next->region->leave();
      break;
    }
    message.chunks[message.count++] = *next;
    message.plain_bytes += length;
    pop_dirty();
  }
  if (message.count == 0) return false;
  CKPT_CHECK(message.plain_bytes <= slot.staging.memory().size(), "a message fits its staging slot");
  slot.state.store(State::kCopying, std::memory_order_relaxed);
  slot.sent = slot.acknowledged = slot.calibration = false;
  slot.sequence = ++sequence_;
  auto ordered = enqueue_copies(slot);
  if (!ordered) core_.device.api().cuStreamSynchronize(stream_);
  workers_.submit(*this, next_fill_);  // submitted also after an error, because the worker releases the
                                       // chunks' regions
  CKPT_TRYV(std::move(ordered));
  return true;
}

// Enqueues the copies. Chunks that are adjacent in memory are copied together, but not across regions: one
// copy must stay within one allocation.
Result<void> SendLane::enqueue_copies(Slot& slot) {
  const DriverApi& api = core_.device.api();
  const StagedMessage& message = slot.message;
  std::byte* at = slot.staging.memory().data();
  CUdeviceptr from = 0;
  std::uint64_t bytes = 0;
  const SourceRegion* within = nullptr;
  for (std::uint32_t i = 0; i < message.count; ++i) {
    const DirtyChunk& chunk = message.chunks[i];
    if (chunk.zero) continue;
    const TransferRegion& region = chunk.region->get();
    if (core_.hooks != nullptr) core_.hooks->before_copy({region.id, region.generation, chunk.chunk}, region);
    const CUdeviceptr address = region.address + chunk.chunk * core_.chunk_bytes;
    if (bytes > 0 && (chunk.region != within || address != from + bytes)) {
      CKPT_CUDA_TRY(api, cuMemcpyDtoHAsync_v2(at, from, bytes, stream_));
      at += bytes;
      bytes = 0;
    }
    if (bytes == 0) from = address;
    within = chunk.region;
    bytes += length_of(chunk);
  }
  if (bytes > 0) CKPT_CUDA_TRY(api, cuMemcpyDtoHAsync_v2(at, from, bytes, stream_));
  CKPT_CUDA_TRY(api, cuEventRecord(slot.copied, stream_));
  return ok();
}

// Runs on a coding thread.
void SendLane::work(std::size_t index, std::size_t worker) {
  Slot& slot = slots_[index];
  if (auto staged = stage(slot, worker); !staged) core_.fail(staged.error());
  slot.state.store(State::kStaged, std::memory_order_release);
  lane_->wake();
}

Result<void> SendLane::stage(Slot& slot, std::size_t worker) {
  StagedMessage& message = slot.message;
  const CUresult copied = core_.device.api().cuEventSynchronize(slot.copied);
  for (std::uint32_t i = 0; i < message.count; ++i) message.chunks[i].region->leave();
  if (copied != CUDA_SUCCESS) return cuda_error(core_.device.api(), copied, "cuEventSynchronize");
  std::byte* from = slot.staging.memory().data();
  std::byte* to = from;  // stays behind `from` once a chunk has turned out to be zero
  std::uint32_t marks = 0;
  for (std::uint32_t i = 0; i < message.count; ++i) {
    DirtyChunk& chunk = message.chunks[i];
    const std::uint32_t length = message.length(i, core_.chunk_bytes);
    message.first_mark[i] = marks;
    message.mark_counts[i] = 0;
    const track::Fingerprint zeroes = zero_chunk(length);
    if (!chunk.zero) {
      message.staged[i] = fingerprint(message, i, {from, length});
      chunk.zero = message.staged[i] == zeroes;  // true if the chunk has become zero since the scan, or was
                                                 // not scanned and is zero
      if (!chunk.zero && to != from) std::memmove(to, from, length);
      from += length;
    }
    if (chunk.zero) {
      message.codes[i] = {codec::Encoding::kZero, 0};
      message.staged[i] = zeroes;
      message.mark_counts[i] = 0;
      continue;
    }
    const std::span<std::byte> staged(to, length);
    to += length;
    message.codes[i] = {codec::Encoding::kRaw, length};
    marks += message.mark_counts[i];
    const TransferRegion& region = chunk.region->get();
    if (core_.hooks != nullptr) core_.hooks->on_staged({region.id, region.generation, chunk.chunk}, staged);
  }
  message.plain_bytes = static_cast<std::uint64_t>(to - slot.staging.memory().data());
  message.plain = message.payload = slot.staging.memory().first(message.plain_bytes);
  if (core_.codec) core_.codec->encode(message, worker, core_.round.load(std::memory_order_relaxed));
  return ok();
}

track::Fingerprint SendLane::zero_chunk(std::uint64_t length) const {
  return length == core_.chunk_bytes ? core_.zero_chunk
                                     : track::fingerprint_of_zeroes(core_.kernels->params(), length);
}

track::Fingerprint SendLane::fingerprint(StagedMessage& message, std::uint32_t index,
                                         std::span<const std::byte> plain) const {
  const track::FingerprintParams& params = core_.kernels->params();
  if (!message.chunks[index].region->history().has_marks()) return track::fingerprint(params, plain);
  message.mark_counts[index] = static_cast<std::uint32_t>(track::mark_count(plain.size()));
  return track::fingerprint(
      params, plain, std::span(message.marks).subspan(message.first_mark[index], message.mark_counts[index]));
}

bool SendLane::ship_oldest() {
  Slot& slot = slots_[next_ship_];
  if (slot.state.load(std::memory_order_acquire) != State::kStaged) return false;
  const StagedMessage& message = slot.message;
  if (core_.cut.load(std::memory_order_relaxed)) {
    SourceCodec::unsent(message);
    slot.state.store(State::kFree, std::memory_order_relaxed);
    next_ship_ = (next_ship_ + 1) % slots_.size();
    core_.finish(message.count);
    return true;
  }
  if (!admit(message.payload.size() + sizeof(LaneHeader) + message.count * sizeof(ChunkRecord))) return false;
  if (auto sent = transmit(slot); !sent) core_.fail(sent.error());
  next_ship_ = (next_ship_ + 1) % slots_.size();
  return true;
}

// Returns whether this many bytes may be sent now. If not, the lane wakes when they may be sent.
bool SendLane::admit(std::uint64_t bytes) {
  const Nanos now = now_ns();
  const Nanos at = core_.limiter.admit(bytes, now);
  if (at <= now) return true;
  wake_at_ = wake_at_ == 0 ? at : std::min(wake_at_, at);
  return false;
}

Result<void> SendLane::transmit(Slot& slot) {
  const StagedMessage& message = slot.message;
  LaneBuffer header(LaneMessage::kChunks, core_.id, core_.round.load(std::memory_order_relaxed));
  const auto index = static_cast<std::uint32_t>(next_ship_);
  header.set_slot(index, slot.sequence);
  std::uint64_t plain_bytes = 0;
  for (std::uint32_t i = 0; i < message.count; ++i) {
    const TransferRegion& region = message.chunks[i].region->get();
    ChunkRecord record;
    record.region = region.id;
    record.generation = region.generation;
    record.chunk = message.chunks[i].chunk;
    record.bytes = message.codes[i].bytes;
    record.encoding = static_cast<std::uint8_t>(message.codes[i].encoding);
    header.append(record);
    plain_bytes += message.length(i, core_.chunk_bytes);
  }
  core_.forget({message.chunks.data(), message.count});
  slot.state.store(State::kSent, std::memory_order_relaxed);
  const std::span<const std::byte> bytes = header.bytes();
  CKPT_TRYV(lane_->send(bytes, message.payload, index));
  core_.counters.sent_bytes.fetch_add(plain_bytes, std::memory_order_relaxed);
  core_.counters.wire_bytes.fetch_add(message.payload.size() + bytes.size(), std::memory_order_relaxed);
  return ok();
}

void SendLane::on_message(std::span<const std::byte> header, std::span<const std::byte> /*payload*/) {
  if (auto handled = handle(header); !handled) core_.fail(handled.error());
}

Result<void> SendLane::handle(std::span<const std::byte> bytes) {
  CKPT_TRY(header, parse_lane_header(bytes, core_.id));
  switch (header.type) {
    case LaneMessage::kAck:
    case LaneMessage::kCalibrateAck:
      return handle_ack(header, bytes);
    case LaneMessage::kPong:
      return handle_pong(bytes);
    case LaneMessage::kPlanAnswer:
    case LaneMessage::kVerdict:
      core_.answer(header.type, record_at<VerdictRecord>(bytes), text_of(bytes, header));
      return ok();
    case LaneMessage::kStale:
      for (std::uint32_t i = 0; i < header.count; ++i) {
        CKPT_TRYV(core_.stale(record_at<AckRecord>(bytes, i)));
      }
      return ok();
    case LaneMessage::kScanDone:
      core_.scan_done();
      return ok();
    case LaneMessage::kAbort:
      return abort_error(bytes, header, "The target's mover");
    default:
      return Error(ErrorCode::kProtocol, "The target's mover sent a message that only a source sends");
  }
}

Result<void> SendLane::handle_ack(const LaneHeader& header, std::span<const std::byte> bytes) {
  const bool calibration = header.type == LaneMessage::kCalibrateAck;
  if (header.slot >= slots_.size())
    return Error(ErrorCode::kProtocol, "The target acknowledged a slot that does not exist");
  Slot& slot = slots_[header.slot];
  if (slot.state.load(std::memory_order_acquire) != State::kSent || slot.acknowledged ||
      slot.calibration != calibration || slot.sequence != header.sequence ||
      slot.message.count != header.count)
    return Error(ErrorCode::kProtocol, "The target acknowledged a message that was not sent");
  slot.acknowledged = true;
  if (calibration) {
    core_.calibrated_bytes.fetch_add(core_.message_bytes);
    if (--calibration_in_flight_ == 0 && calibration_left_.load() == 0) core_.calibrated();
  } else {
    for (std::uint32_t i = 0; i < slot.message.count; ++i) {
      const auto record = record_at<AckRecord>(bytes, i);
      const TransferRegion& region = slot.message.chunks[i].region->get();
      if (record.region != region.id || record.generation != region.generation ||
          record.chunk != slot.message.chunks[i].chunk)
        return Error(ErrorCode::kProtocol, "The target acknowledged different chunks than were sent");
      if (record.gone != 0 && !slot.message.chunks[i].region->dropped())
        return Error(ErrorCode::kProtocol, "The target no longer has extent " + std::to_string(region.id));
    }
    evaluate(slot, bytes);
  }
  if (slot.sent) slot.state.store(State::kFree, std::memory_order_relaxed);
  return ok();
}

// Checks the acknowledgement (ENG-1). The fingerprint that the target computed from its own memory must equal
// the sent one. It then describes the target's content.
void SendLane::evaluate(Slot& slot, std::span<const std::byte> bytes) {
  std::uint64_t good_bytes = 0;
  std::uint32_t good = 0;
  {
    const SenderCore::MapLock lock(core_);
    for (std::uint32_t i = 0; i < slot.message.count; ++i) {
      const auto record = record_at<AckRecord>(bytes, i);
      const DirtyChunk& chunk = slot.message.chunks[i];
      if (record.gone == 0 && record.fingerprint != slot.message.staged[i]) continue;
      if (record.gone == 0) {
        core_.acknowledge(chunk, record.fingerprint);
        SourceCodec::acknowledged(slot.message, i);
      }
      good_bytes += length_of(chunk);
      ++good;
    }
  }
  for (std::uint32_t i = 0; i < slot.message.count; ++i) {
    const auto record = record_at<AckRecord>(bytes, i);
    if (record.gone != 0 || record.fingerprint == slot.message.staged[i]) continue;
    const TransferRegion& region = slot.message.chunks[i].region->get();
    SourceCodec::wrong(slot.message.chunks[i]);
    resend_.push_back(slot.message.chunks[i]);
    resend_.back().raw = true;
    core_.mismatch({region.id, region.generation, slot.message.chunks[i].chunk});
  }
  core_.counters.acked_bytes.fetch_add(good_bytes, std::memory_order_relaxed);
  core_.counters.drained_wire_bytes.fetch_add(slot.message.payload.size(), std::memory_order_relaxed);
  core_.finish(good);
}

void SendLane::on_closed(const Error& error) {
  if (stopping_.load()) return;
  core_.fail(Error(ErrorCode::kUnavailable, "The connection to the target's mover is lost").caused_by(error));
}

}  // namespace ckpt::engine
