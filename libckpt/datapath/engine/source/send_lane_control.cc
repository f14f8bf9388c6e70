// SPDX-License-Identifier: Apache-2.0
// Sends what a lane sends beside chunks: posted messages, the pieces of plans, manifests and host state,
// pings for the clock, and calibration.
#include <algorithm>

#include "libckpt/base/check.h"
#include "libckpt/datapath/engine/source/send_lane.h"

namespace ckpt::engine {
namespace {

constexpr std::uint64_t kControlToken = ~std::uint64_t{0};
constexpr std::uint64_t kPieceToken = ~std::uint64_t{1};
constexpr std::uint64_t kHostPieceToken = ~std::uint64_t{2};
constexpr std::uint64_t kPingToken = ~std::uint64_t{3};
constexpr std::uint32_t kPiecesInFlight = 4;  // the limit for each of two blobs
// The maximum number of posted messages in flight. A job may free any number of regions at once, and the lane
// also needs places for chunks.
constexpr std::size_t kControlInFlight = transport::kMaxInFlight / 4;
static_assert(kDefaultWindow + 2 * kPiecesInFlight + kControlInFlight + 2 <= transport::kMaxInFlight);
constexpr std::uint32_t kPings = 16;
constexpr Nanos kCalibrationTime = 50'000'000;  // on a slow link, fewer bytes are enough

}  // namespace

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

// ---- functions for the lane's thread. SendLane::step() calls each only if there is something to send.

// Sends posted messages, at most kControlInFlight at a time. The rest wait for an on_sent.
bool SendLane::send_control() {
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
    return false;  // the last piece is sent once it is known to be the last
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
  LaneBuffer header(LaneMessage::kPing, core_.id, core_.round.load());
  ping_sent_ = now_ns();
  header.append(ClockRecord{ping_sent_});
  ping_in_flight_ = true;
  if (auto sent = lane_->send(header.bytes(), {}, kPingToken); !sent) core_.fail(sent.error());
  return true;
}

bool SendLane::send_calibration() {
  Slot& slot = slots_[next_fill_];
  if (slot.state.load(std::memory_order_relaxed) != State::kFree) return false;
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

}  // namespace ckpt::engine
