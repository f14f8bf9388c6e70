// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/target/receive_lane.h"

#include <algorithm>
#include <cstring>

#include "libckpt/base/check.h"
#include "libckpt/datapath/codec/blocks.h"

namespace ckpt::engine {
namespace {

constexpr Nanos kIdleWait = 1'000'000'000;
constexpr std::uint64_t kAnswerToken = 0;
constexpr std::uint64_t kPostedToken = 1;
// The maximum number of posted messages in flight. A scan may find any number of stale chunks, and the lane
// also needs places for acknowledgements.
constexpr std::size_t kPostedInFlight = transport::kMaxInFlight / 4;

}  // namespace

Result<std::unique_ptr<ReceiveLane>> ReceiveLane::create(
    Place place, ReceiverCore& core, WorkPool& workers, transport::Transport& transport,
    const transport::SessionToken& token, std::shared_ptr<const track::TrackKernels> kernels,
    std::vector<StagingSlot> slots, std::span<const std::unique_ptr<Decoder>> decoders,
    std::function<Result<void>(std::uint32_t)> on_verify) {
  std::unique_ptr<ReceiveLane> lane(new ReceiveLane(place, core, workers, decoders, std::move(on_verify)));
  for (StagingSlot& slot : slots) {
    CKPT_TRY(batch, track::FingerprintBatch::create(kernels, kMaxChunks));
    lane->free_.push_back(lane->slots_.size());
    lane->slots_.emplace_back(std::move(slot), std::move(batch));
  }
  lane->busy_.reserve(lane->slots_.size());
  {
    const ContextScope scope(core.device);
    CKPT_CUDA_TRY(core.device.api(), cuStreamCreate(&lane->stream_, CU_STREAM_NON_BLOCKING));
  }
  CKPT_TRY(connection, transport.listen(token, *lane));
  lane->lane_ = std::move(connection);
  lane->thread_ = std::thread([raw = lane.get()] { raw->run(); });
  return lane;
}

void ReceiveLane::stop() {
  stopping_.store(true);
  if (lane_) lane_->wake();
  if (thread_.joinable()) thread_.join();
}

ReceiveLane::~ReceiveLane() {
  stop();
  if (stream_ == nullptr) return;
  const ContextScope scope(core_.device);
  core_.device.api().cuStreamSynchronize(stream_);
  core_.device.api().cuStreamDestroy_v2(stream_);
}

void ReceiveLane::post(const LaneBuffer& message) {
  {
    const std::lock_guard lock(post_mutex_);
    posted_.push_back(message);
    has_posted_.store(true);
  }
  lane_->wake();
}

void ReceiveLane::run() {
  const ContextScope scope(core_.device);
  prefer_throughput();
  while (!stopping_.load() && !core_.failed() && !lane_->closed())
    if (!step()) lane_->wait(kIdleWait);
  core_.device.api().cuStreamSynchronize(stream_);
  if (const auto error = core_.error();
      error && !lane_->closed()) {  // the source receives the reason before the lane closes
    send_posted();
    LaneBuffer message = abort_message(core_.id, *error);
    (void)lane_->send(message.bytes(), {}, kAnswerToken);
    while (!stopping_.load() && !lane_->closed())
      if (!lane_->progress()) lane_->wait(kIdleWait);
  }
  lane_->close();
}

bool ReceiveLane::step() {
  bool worked = lane_->progress();
  if (core_.failed() || lane_->closed()) return true;
  worked |= send_posted();
  worked |= finish_done();
  return worked;
}

// Sends posted messages, at most kPostedInFlight at a time. The rest wait for an on_sent.
bool ReceiveLane::send_posted() {
  if (!has_posted_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(post_mutex_);
  bool any = false;
  while (!posted_.empty() && posted_in_flight_ < kPostedInFlight) {
    if (auto sent = lane_->send(posted_.front().bytes(), {}, kPostedToken); !sent) {
      core_.fail(sent.error());
      return true;
    }
    posted_.pop_front();
    ++posted_in_flight_;
    any = true;
  }
  has_posted_.store(!posted_.empty());
  return any;
}

void ReceiveLane::on_sent(std::uint64_t token) {
  if (token == kPostedToken) --posted_in_flight_;
}

// Maps the source's staging memory. Without that memory, payloads are read into the slots.
std::span<const std::byte> ReceiveLane::map_same_host(UniqueFd file, std::size_t bytes) {
  if (auto pinned = core_.pin_source_memory(std::move(file), bytes)) source_memory_ = *pinned;
  return source_memory_;
}

std::span<std::byte> ReceiveLane::staged_by_source(std::span<const std::byte> payload) const noexcept {
  const auto offset = reinterpret_cast<std::uintptr_t>(payload.data()) -
                      reinterpret_cast<std::uintptr_t>(source_memory_.data());
  if (payload.empty() || offset >= source_memory_.size()) return {};
  return source_memory_.subspan(offset, payload.size());
}

std::span<std::byte> ReceiveLane::on_payload_begin(std::span<const std::byte> bytes,
                                                   std::size_t payload_bytes) {
  auto header = parse(bytes);
  if (!header) return {};
  switch (header->type) {
    case LaneMessage::kChunks:
    case LaneMessage::kCalibrate: {
      if (free_.empty() || payload_bytes > kSlotBytes) return {};
      const std::size_t index = free_.back();
      free_.pop_back();
      return slots_[index].staging.memory().first(payload_bytes);
    }
    case LaneMessage::kPlan:
    case LaneMessage::kHostState:
    case LaneMessage::kManifest:
      return core_.blob_destination(*header, record_at<BlobRecord>(bytes), payload_bytes);
    default:
      return {};
  }
}

void ReceiveLane::on_message(std::span<const std::byte> header, std::span<const std::byte> payload) {
  if (core_.failed()) return;
  if (auto handled = handle(header, payload); !handled) core_.fail(handled.error());
}

void ReceiveLane::on_closed(const Error& error) {
  if (stopping_.load() || core_.is_verified()) return;
  core_.fail(Error(ErrorCode::kUnavailable, "The connection to the source's mover is lost").caused_by(error));
}

Result<LaneHeader> ReceiveLane::parse(std::span<const std::byte> bytes) const {
  CKPT_TRY(header, parse_lane_header(bytes, core_.id));
  const bool any_lane = header.type == LaneMessage::kChunks || header.type == LaneMessage::kCalibrate ||
                        header.type == LaneMessage::kAbort;
  if (place_ != Place::kFirst && !any_lane)
    return Error(ErrorCode::kProtocol,
                 "The source's mover sent a message on another lane that belongs on the first lane");
  return header;
}

Result<void> ReceiveLane::handle(std::span<const std::byte> bytes, std::span<const std::byte> payload) {
  CKPT_TRY(header, parse(bytes));
  // Only a message of chunks has a slot. Payloads of other messages have a different destination, which
  // on_payload_begin() would have returned.
  if (!staged_by_source(payload).empty() && header.type != LaneMessage::kChunks &&
      header.type != LaneMessage::kCalibrate)
    return Error(ErrorCode::kProtocol,
                 "The source's mover sent, in its staging memory, a message that contains no chunks");
  switch (header.type) {
    case LaneMessage::kChunks:
      return handle_chunks(header, bytes, payload);
    case LaneMessage::kCalibrate: {
      CKPT_TRY(index, slot_of(payload));
      // The rate of the link is the rate at which bytes arrive here. If they stay at the source, it is the
      // rate at which they are read.
      if (!staged_by_source(payload).empty() && payload.size() <= kSlotBytes)
        std::memcpy(slots_[index].staging.memory().data(), payload.data(), payload.size());
      free_.push_back(index);
      LaneBuffer reply(LaneMessage::kCalibrateAck, core_.id, 0);
      reply.set_slot(header.slot, header.sequence);
      return lane_->send(reply.bytes(), {}, kAnswerToken);
    }
    case LaneMessage::kPing: {
      LaneBuffer reply(LaneMessage::kPong, core_.id, 0);
      reply.append(ClockRecord{now_ns()});
      return lane_->send(reply.bytes(), {}, kAnswerToken);
    }
    case LaneMessage::kDrop:
      core_.drop(record_at<DropRecord>(bytes));
      return ok();
    case LaneMessage::kVerify:
      return on_verify_(header.round);
    case LaneMessage::kHostMemory:
      return core_.reserve_host_memory(record_at<HostMemoryRecord>(bytes));
    case LaneMessage::kFinal: {
      CKPT_TRYV(core_.begin_final(header.round));
      core_.delegate.on_final();
      return ok();
    }
    case LaneMessage::kPlan:
    case LaneMessage::kHostState:
    case LaneMessage::kManifest:
      return handle_blob(header, bytes, payload.size());
    case LaneMessage::kAbort:
      if (core_.is_verified()) return ok();  // the image is complete; the agents decide about its use
      return abort_error(bytes, header, "The source's mover");
    default:
      return Error(ErrorCode::kProtocol, "The source's mover sent a message that only a target sends");
  }
}

// Returns the slot of a payload. A message without a payload here (only zero orders, or staged by the source)
// takes a free slot.
Result<std::size_t> ReceiveLane::slot_of(std::span<const std::byte> payload) {
  if (payload.empty() || !staged_by_source(payload).empty()) {
    if (free_.empty())
      return Error(ErrorCode::kProtocol, "The source sent more messages than the window allows");
    const std::size_t index = free_.back();
    free_.pop_back();
    return index;
  }
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].staging.memory().data() == payload.data()) return i;
  return Error(ErrorCode::kInternal, "A payload lies outside the staging memory");
}

Result<void> ReceiveLane::handle_chunks(const LaneHeader& header, std::span<const std::byte> bytes,
                                        std::span<const std::byte> payload) {
  CKPT_TRY(index, slot_of(payload));
  Slot& slot = slots_[index];
  CKPT_TRYV(core_.place(header, bytes, payload.size(), slot.places));
  slot.header = header;
  for (std::uint32_t i = 0; i < header.count; ++i) slot.records[i] = record_at<ChunkRecord>(bytes, i);
  slot.done.store(false, std::memory_order_relaxed);
  slot.has_batch = false;
  slot.payload = staged_by_source(payload);
  const bool in_place = !slot.payload.empty();
  if (!in_place) slot.payload = slot.staging.memory().first(payload.size());
  slot.decode = std::any_of(slot.places.begin(), slot.places.begin() + header.count, [](const auto& placed) {
    return placed.region && needs_decoder(placed.encoding);
  });
  const bool plain = std::all_of(slot.places.begin(), slot.places.begin() + header.count,
                                 [](const ReceiverCore::Placed& placed) {
                                   return !placed.region || placed.encoding == codec::Encoding::kRaw ||
                                          placed.encoding == codec::Encoding::kZero;
                                 });
  if (in_place && !plain)
    return Error(ErrorCode::kProtocol,
                 "The source's mover encoded chunks in memory that it may change while they are decoded");
  if (!slot.decode) {
    CKPT_TRYV(scatter(slot, stream_, nullptr));
  }
  busy_.push_back(index);
  workers_.submit(*this, index);
  return ok();
}

namespace {

// Enqueues copies to the device, with adjacent chunks in one copy. Call flush() between regions: one copy
// must stay within one allocation.
class Writes {
 public:
  Writes(const DriverApi& api, CUstream stream) : api_(api), stream_(stream) {}
  Result<void> add(CUdeviceptr to, std::span<const std::byte> from) {
    if (to != to_ + bytes_ || from.data() != from_ + bytes_) {
      CKPT_TRYV(flush());
    }
    if (bytes_ == 0) {
      to_ = to;
      from_ = from.data();
    }
    bytes_ += from.size();
    return ok();
  }
  Result<void> flush() {
    if (bytes_ > 0) CKPT_CUDA_TRY(api_, cuMemcpyHtoDAsync_v2(to_, from_, bytes_, stream_));
    bytes_ = 0;
    return ok();
  }

 private:
  const DriverApi& api_;
  CUstream stream_;
  CUdeviceptr to_ = 0;
  const std::byte* from_ = nullptr;
  std::uint64_t bytes_ = 0;
};

Result<void> add_changed(Writes& writes, const ReceiverCore::Placed& placed,
                         std::span<const std::byte> encoded) {
  auto patch = codec::parse_blocks(encoded, placed.bytes);
  if (!patch) return ok();  // skips a patch that cannot be decoded; the chunk's fingerprint will differ
  for (const codec::Piece& piece : *patch) {
    CKPT_TRYV(writes.add(placed.address + piece.offset, piece.bytes));
  }
  return ok();
}

}  // namespace

// Writes the received data, then fingerprints all chunks in device memory.
Result<void> ReceiveLane::scatter(Slot& slot, CUstream stream, Decoder* decoder) {
  std::array<track::ChunkRange, kMaxChunks> ranges;
  std::uint32_t written = 0;
  std::span<std::byte> rest = slot.payload;
  Writes writes(core_.device.api(), stream);
  const TargetRegion* within = nullptr;
  for (std::uint32_t i = 0; i < slot.header.count; ++i) {
    const ChunkRecord& record = slot.records[i];
    const ReceiverCore::Placed& placed = slot.places[i];
    const std::span<std::byte> came = rest.first(record.bytes);
    rest = rest.subspan(record.bytes);
    if (!placed.region) continue;
    if (placed.region.get() != within) {
      CKPT_TRYV(writes.flush());
    }
    within = placed.region.get();
    ranges[written++] = {placed.address, placed.bytes};
    if (placed.encoding == codec::Encoding::kZero) {
#if CKPT_WITHOUT_RULE != 6
      CKPT_CUDA_TRY(core_.device.api(), cuMemsetD8Async(placed.address, 0, placed.bytes, stream));
#endif
      continue;
    }
    if (core_.hooks != nullptr)
      core_.hooks->on_received({record.region, record.generation, record.chunk}, came);
    if (placed.encoding == codec::Encoding::kRaw) {
      CKPT_TRYV(writes.add(placed.address, came));
    } else if (placed.encoding == codec::Encoding::kBlocks) {
      CKPT_TRYV(add_changed(writes, placed, came));
    } else if (const auto chunk = decoder->decode(placed, came); !chunk.empty()) {
      CKPT_TRYV(writes.add(placed.address, chunk));
    }
  }
  CKPT_TRYV(writes.flush());
  if (core_.hooks != nullptr) {
    CKPT_TRYV(report_scattered(slot, stream));
  }
  slot.has_batch = written > 0;
  if (!slot.has_batch) return ok();
  return slot.batch->launch(stream, {ranges.data(), written});
}

Result<void> ReceiveLane::report_scattered(Slot& slot, CUstream stream) {
  CKPT_CUDA_TRY(core_.device.api(), cuStreamSynchronize(stream));
  for (std::uint32_t i = 0; i < slot.header.count; ++i)
    if (const auto& placed = slot.places[i]; placed.region)
      core_.hooks->on_scattered({slot.records[i].region, slot.records[i].generation, slot.records[i].chunk},
                                placed.address, placed.bytes);
  return ok();
}

// Decodes the slot's chunks if necessary, and waits until the device has fingerprinted them. Runs on a coding
// thread.
Result<void> ReceiveLane::decode_and_wait(Slot& slot, Decoder& decoder) {
  if (slot.decode) {
    CKPT_TRYV(decoder.begin({slot.places.data(), slot.header.count}));
    CKPT_TRYV(scatter(slot, decoder.stream(), &decoder));
  }
  if (!slot.has_batch) return ok();
  return slot.batch->wait();
}

// Finishes the work on a slot's chunks, and then wakes the lane. Runs on a coding thread.
void ReceiveLane::work(std::size_t index, std::size_t worker) {
  Slot& slot = slots_[index];
  if (auto done = decode_and_wait(slot, *decoders_[worker]); !done) core_.fail(done.error());
  slot.done.store(true, std::memory_order_release);
  lane_->wake();
}

bool ReceiveLane::finish_done() {
  bool any = false;
  for (std::size_t i = 0; i < busy_.size();) {
    const std::size_t index = busy_[i];
    if (!slots_[index].done.load(std::memory_order_acquire)) {
      ++i;
      continue;
    }
    busy_.erase(busy_.begin() + static_cast<std::ptrdiff_t>(i));
    free_.push_back(index);
    any = true;
    if (core_.failed()) break;
    if (auto finished = finish(slots_[index]); !finished) core_.fail(finished.error());
  }
  return any;
}

Result<void> ReceiveLane::finish(Slot& slot) {
  const std::span<const track::Fingerprint> results =
      slot.has_batch ? slot.batch->results() : std::span<const track::Fingerprint>{};
  const auto placed =
      std::count_if(slot.places.begin(), slot.places.begin() + slot.header.count,
                    [](const ReceiverCore::Placed& place) { return place.region != nullptr; });
  CKPT_CHECK(results.size() == static_cast<std::size_t>(placed),
             "ENG-1: every chunk that was written has a fingerprint");
  LaneBuffer reply(LaneMessage::kAck, core_.id, slot.header.round);
  reply.set_slot(slot.header.slot, slot.header.sequence);
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < slot.header.count; ++i) {
    AckRecord record;
    record.region = slot.records[i].region;
    record.generation = slot.records[i].generation;
    record.chunk = slot.records[i].chunk;
    if (slot.places[i].region)
      record.fingerprint = slot.fingerprints[i] = results[next++];
    else
      record.gone = 1;
    reply.append(record);
  }
  core_.arrived(slot.header, {slot.records.data(), slot.header.count},
                {slot.places.data(), slot.header.count}, {slot.fingerprints.data(), slot.header.count});
  for (std::uint32_t i = 0; i < slot.header.count; ++i) slot.places[i].region.reset();
  return lane_->send(reply.bytes(), {}, kAnswerToken);
}

Result<void> ReceiveLane::handle_blob(const LaneHeader& header, std::span<const std::byte> bytes,
                                      std::size_t payload_bytes) {
  const auto record = record_at<BlobRecord>(bytes);
  CKPT_TRY(complete, core_.blob_received(header, record, payload_bytes));
  if (header.type == LaneMessage::kHostState) core_.report_host_state();
  if (!complete || header.type == LaneMessage::kHostState) return ok();
  if (header.type == LaneMessage::kPlan) {
    auto accepted = core_.accept_plan();
    VerdictRecord verdict;
    verdict.time_ns = now_ns();
    if (accepted) return answer(LaneMessage::kPlanAnswer, verdict, {});
    verdict.code = static_cast<std::uint32_t>(accepted.error().code());
    CKPT_TRYV(answer(LaneMessage::kPlanAnswer, verdict, accepted.error().to_string()));
    return accepted;
  }
  const ReceiverCore::Answer verdict = core_.verify(record.root);
  CKPT_TRYV(answer(LaneMessage::kVerdict, verdict.record, verdict.text));
  core_.verified();
  return ok();
}

Result<void> ReceiveLane::answer(LaneMessage type, const VerdictRecord& record, std::string_view text) {
  LaneBuffer reply(type, core_.id, 0);
  reply.append(record);
  reply.append_text(text);
  return lane_->send(reply.bytes(), {}, kAnswerToken);
}

}  // namespace ckpt::engine
