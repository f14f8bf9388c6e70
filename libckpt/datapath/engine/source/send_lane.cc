// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/send_lane.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "libckpt/base/check.h"
#include "libckpt/datapath/engine/source/source_codec.h"

namespace ckpt::engine {
namespace {

constexpr std::size_t kQueueChunks = 256;  // the scan does not run further ahead than the cache can hold
constexpr std::uint64_t kControlToken = ~std::uint64_t{0};
constexpr std::uint64_t kPieceToken = ~std::uint64_t{1};
constexpr std::uint64_t kHostPieceToken = ~std::uint64_t{2};
constexpr std::uint64_t kPingToken = ~std::uint64_t{3};
constexpr std::uint64_t kAbortToken = ~std::uint64_t{4};
constexpr std::uint32_t kPiecesInFlight = 4;  // the limit for each of two blobs
// The maximum number of posted messages in flight. A job may free any number of regions at once, and the lane
// also needs places for chunks.
constexpr std::size_t kControlInFlight = transport::kMaxInFlight / 4;
static_assert(kDefaultWindow + 2 * kPiecesInFlight + kControlInFlight + 2 <= transport::kMaxInFlight);
constexpr std::uint32_t kPings = 16;
constexpr Nanos kCalibrationTime = 50'000'000;  // on a slow link, fewer bytes are enough
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

// ---- functions for any thread

void SendLane::post(const LaneBuffer& message) {
  {
    const std::lock_guard lock(post_mutex_);
    posted_.push_back(message);
    has_control_.store(true);
  }
  lane_->wake();
}

void SendLane::send_blob(const Blob& blob) {
  {
    const std::lock_guard lock(post_mutex_);
    if (blob.type == LaneMessage::kHostState) {
      host_state_.blob = blob;
    } else {
      blob_copy_.assign(blob.bytes.begin(), blob.bytes.end());
      blob_.blob = blob;
      blob_.blob.bytes = blob_copy_;
    }
    has_blob_.store(true);
  }
  lane_->wake();
}

void SendLane::host_state_grew(std::span<const std::byte> bytes, bool is_whole) {
  {
    const std::lock_guard lock(post_mutex_);
    host_state_.blob.bytes = bytes;
    if (is_whole) host_state_.blob.limit = 0;
  }
  lane_->wake();
}

void SendLane::measure_clock() {
  pings_.store(kPings);
  lane_->wake();
}

void SendLane::calibrate(std::uint32_t messages) {
  calibration_end_.store(now_ns() + kCalibrationTime);
  calibration_left_.store(messages);
  lane_->wake();
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
  worked |= send_control();
  worked |= send_pieces();
  worked |= send_ping();
  worked |= send_calibration();
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
  if (queue_.size() == queue_.capacity() / 2) core_.notify();  // a scan that found the queue full continues
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
      chunk.zero = message.staged[i] == zeroes;  // the chunk was not scanned, or has become zero since
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

// Sends posted messages, at most kControlInFlight at a time. The rest wait for an on_sent.
bool SendLane::send_control() {
  if (!has_control_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(post_mutex_);
  bool any = false;
  while (!posted_.empty() && control_in_flight_ < kControlInFlight) {
    if (auto sent = lane_->send(posted_.front().bytes(), {}, kControlToken); !sent) {
      core_.fail(sent.error());
      return true;
    }
    posted_.pop_front();
    ++control_in_flight_;
    any = true;
  }
  has_control_.store(!posted_.empty());
  return any;
}

bool SendLane::send_pieces() {
  if (!has_blob_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(post_mutex_);
  if (!posted_.empty()) return false;  // a manifest comes after the drops on which it depends
  // A plan does not wait for the host state.
  return send_piece(blob_) || send_piece(host_state_);
}

bool SendLane::send_piece(Outgoing& outgoing) {
  const Blob& blob = outgoing.blob;
  if (blob.type == LaneMessage::kInvalid || outgoing.in_flight >= kPiecesInFlight ||
      (blob.limit == 0 && outgoing.offset >= std::max<std::uint64_t>(blob.bytes.size(), 1)))
    return false;
  const std::uint64_t limit = core_.limiter.message_bytes(core_.chunk_bytes, core_.message_bytes);
  const bool grows = blob.limit != 0;
  if (grows && blob.bytes.size() - outgoing.offset <= limit)
    return false;  // the last piece must know that it is the last
  const std::span<const std::byte> piece =
      blob.bytes.subspan(outgoing.offset, std::min<std::size_t>(limit, blob.bytes.size() - outgoing.offset));
  if (!admit(piece.size() + sizeof(LaneHeader) + sizeof(BlobRecord))) return false;
  LaneBuffer header(blob.type, core_.id, core_.round.load());
  BlobRecord record;
  record.total = grows ? blob.limit : blob.bytes.size();
  record.offset = outgoing.offset;
  record.root = blob.root;
  header.append(record);
  const std::span<const std::byte> bytes = header.bytes();
  const bool is_host_state = blob.type == LaneMessage::kHostState;
  if (auto sent = lane_->send(bytes, piece, is_host_state ? kHostPieceToken : kPieceToken); !sent) {
    core_.fail(sent.error());
    return true;
  }
  core_.counters.wire_bytes.fetch_add(piece.size() + bytes.size(), std::memory_order_relaxed);
  outgoing.offset += std::max<std::size_t>(piece.size(), 1);
  if (is_host_state) host_given_.store(outgoing.offset);
  ++outgoing.in_flight;
  return true;
}

// Handles a sent piece. Returns whether it was the last piece of the blob.
bool SendLane::piece_sent(Outgoing& outgoing) {
  const Blob& blob = outgoing.blob;
  CKPT_CHECK(outgoing.in_flight > 0, "a lane sends no more pieces of a blob than it was given");
  if (--outgoing.in_flight > 0 || blob.limit != 0 ||
      outgoing.offset < std::max<std::uint64_t>(blob.bytes.size(), 1))
    return false;
  outgoing = {};
  has_blob_.store(blob_.blob.type != LaneMessage::kInvalid || host_state_.blob.type != LaneMessage::kInvalid);
  return true;
}

bool SendLane::send_ping() {
  if (ping_in_flight_ || pings_.load() == 0) return false;
  LaneBuffer header(LaneMessage::kPing, core_.id, core_.round.load());
  ping_sent_ = now_ns();
  header.append(ClockRecord{ping_sent_});
  ping_in_flight_ = true;
  if (auto sent = lane_->send(header.bytes(), {}, kPingToken); !sent) core_.fail(sent.error());
  return true;
}

bool SendLane::send_calibration() {
  Slot& slot = slots_[next_fill_];
  if (calibration_left_.load() == 0 || slot.state.load(std::memory_order_relaxed) != State::kFree)
    return false;
  if (calibration_in_flight_ > 0 && now_ns() > calibration_end_.load()) {
    calibration_left_.store(0);
    return false;
  }
  slot.state.store(State::kSent, std::memory_order_relaxed);
  slot.message.count = 0;
  slot.calibration = true;
  slot.sent = slot.acknowledged = false;
  slot.sequence = ++sequence_;
  const auto index = static_cast<std::uint32_t>(next_fill_);
  next_fill_ = next_ship_ = (next_fill_ + 1) % slots_.size();
  calibration_left_.fetch_sub(1);
  ++calibration_in_flight_;
  LaneBuffer header(LaneMessage::kCalibrate, core_.id, 0);
  header.set_slot(index, slot.sequence);
  if (auto sent = lane_->send(header.bytes(), slot.staging.memory().first(core_.message_bytes), index); !sent)
    core_.fail(sent.error());
  return true;
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
        return Error(ErrorCode::kProtocol, "The target acknowledged other chunks than were sent");
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

Result<void> SendLane::handle_pong(std::span<const std::byte> bytes) {
  if (!ping_in_flight_) return Error(ErrorCode::kProtocol, "The target sent a pong without a ping");
  ping_in_flight_ = false;
  const Nanos received = now_ns();
  const Nanos theirs = record_at<ClockRecord>(bytes).time_ns;
  const Nanos half = (received - ping_sent_) / 2;
  if (!has_clock_ || half < best_clock_.uncertainty) best_clock_ = {theirs - (ping_sent_ + half), half};
  has_clock_ = true;
  if (pings_.fetch_sub(1) == 1) {
    has_clock_ = false;
    core_.clock_measured(best_clock_);
  }
  return ok();
}

void SendLane::on_sent(std::uint64_t token) {
  if (token < slots_.size()) {
    slots_[token].sent = true;
    if (slots_[token].acknowledged) slots_[token].state.store(State::kFree, std::memory_order_relaxed);
  } else if (token == kControlToken) {
    --control_in_flight_;
  } else if (token == kPieceToken) {
    const std::lock_guard lock(post_mutex_);
    if (piece_sent(blob_)) core_.blob_sent();
  } else if (token == kHostPieceToken) {
    const std::lock_guard lock(post_mutex_);
    if (piece_sent(host_state_)) core_.host_state_sent();
  }
}

void SendLane::on_closed(const Error& error) {
  if (stopping_.load()) return;
  core_.fail(Error(ErrorCode::kUnavailable, "The connection to the target's mover is lost").caused_by(error));
}

}  // namespace ckpt::engine
