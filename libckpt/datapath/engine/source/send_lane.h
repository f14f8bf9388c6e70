// SPDX-License-Identifier: Apache-2.0
// One lane of the sender with its thread. It takes dirty chunks from its queue and enqueues their copies from
// the device into pinned slots. It sends the messages that the coding threads have staged, and checks the
// acknowledgements. Internal to the engine.
//
//   slot: free -> copying (device to slot, on the lane's stream; then a coding thread fingerprints and
//   encodes) -> staged (waits for the rate limit) -> sent -> free (both on_sent and the acknowledgement have
//   come)
//
// Threads: functions run on the lane's own thread, unless marked "any thread" or "coding thread". A slot
// belongs to the coding thread while it is copying. Errors go to SenderCore::fail().
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "libckpt/datapath/engine/shared/work_pool.h"
#include "libckpt/datapath/engine/source/chunk_queue.h"
#include "libckpt/datapath/engine/source/sender_core.h"
#include "libckpt/datapath/engine/source/staged_message.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::engine {

struct Blob {
  LaneMessage type = LaneMessage::kInvalid;
  // The bytes of the blob. Host state must stay valid until SenderCore's host_state_sent event or, after an
  // error, until the lane's end. Bytes of other types are copied.
  std::span<const std::byte> bytes;
  track::Fingerprint root;
  std::uint64_t limit = 0;  // the maximum total size, if host_state_grew() adds more; 0 if `bytes` is
                            // everything
};

class SendLane final : private transport::LaneHandler, private WorkHandler {
 public:
  static Result<std::unique_ptr<SendLane>> create(SenderCore& core, WorkPool& workers,
                                                  transport::Transport& transport, const std::string& address,
                                                  const transport::SessionToken& token,
                                                  std::vector<StagingSlot> slots);
  ~SendLane() override;  // must run after stop(), and after the pool is destroyed
  void stop();           // stops the thread and closes the lane

  // Returns the queue. Any thread may call it, but the queue has one producer.
  [[nodiscard]] ChunkQueue<DirtyChunk>& queue() noexcept { return queue_; }
  void wake() noexcept { lane_->wake(); }
  void post(const LaneBuffer& message);
  // Sends one plan or manifest at a time, and concurrently one host state.
  void send_blob(const Blob& blob);
  // Notes that the host state has grown: `bytes` is all of it so far, at the same place. With `is_whole` it
  // is complete, and longer than at the previous call.
  void host_state_grew(std::span<const std::byte> bytes, bool is_whole);
  // Returns the bytes of the host state that were passed to the transport.
  [[nodiscard]] std::uint64_t host_state_given() const noexcept { return host_given_.load(); }
  void measure_clock();                    // reports the result through clock_measured
  void calibrate(std::uint32_t messages);  // reports the result through calibrated, once

 private:
  enum class State : std::uint8_t { kFree, kCopying, kStaged, kSent };
  struct Slot {
    Slot(StagingSlot s, bool with_codec) : staging(std::move(s)), message(with_codec) {}
    StagingSlot staging;
    std::atomic<State> state{State::kFree};
    CUevent copied = nullptr;
    std::uint32_t sequence = 0;
    bool sent = false;
    bool acknowledged = false;
    bool calibration = false;
    StagedMessage message;
  };

  SendLane(SenderCore& core, WorkPool& workers, std::vector<StagingSlot> slots);
  Result<void> create_device_objects();

  // Overrides of transport::LaneHandler.
  transport::SameHostMemory same_host_memory() override;  // called in create(), while all slots are free
  void on_open() override { core_.lane_opened(lane_->payload_access()); }
  std::span<std::byte> on_payload_begin(std::span<const std::byte>, std::size_t) override { return {}; }
  void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) override;
  void on_sent(std::uint64_t token) override;
  void on_closed(const Error& error) override;

  // Runs on a coding thread, after the slot's copies were enqueued.
  void work(std::size_t index, std::size_t worker) override;
  Result<void> stage(Slot& slot, std::size_t worker);
  [[nodiscard]] track::Fingerprint zero_chunk(std::uint64_t length) const;
  track::Fingerprint fingerprint(StagedMessage& message, std::uint32_t index,
                                 std::span<const std::byte> plain) const;

  void run();
  bool step();
  void sleep();
  bool fill_slots();
  Result<bool> fill(Slot& slot);
  Result<void> enqueue_copies(Slot& slot);
  const DirtyChunk* next_dirty();
  void pop_dirty();
  bool ship_oldest();
  bool admit(std::uint64_t bytes);
  Result<void> transmit(Slot& slot);
  bool send_control();
  bool send_pieces();
  struct Outgoing;
  bool send_piece(Outgoing& outgoing);
  bool piece_sent(Outgoing& outgoing);
  bool send_calibration();
  bool send_ping();
  Result<void> handle(std::span<const std::byte> bytes);
  Result<void> handle_ack(const LaneHeader& header, std::span<const std::byte> bytes);
  void evaluate(Slot& slot, std::span<const std::byte> bytes);
  Result<void> handle_pong(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t length_of(const DirtyChunk& chunk) const;

  SenderCore& core_;
  WorkPool& workers_;
  std::unique_ptr<transport::Lane> lane_;
  ChunkQueue<DirtyChunk> queue_;
  CUstream stream_ = nullptr;
  std::deque<Slot> slots_;     // slots at fixed addresses
  std::size_t next_fill_ = 0;  // the next slot to fill; slots are used in turn, so that messages are sent in
                               // order
  std::size_t next_ship_ = 0;
  std::uint32_t sequence_ = 0;
  std::vector<DirtyChunk> resend_;
  Nanos wake_at_ = 0;

  // A blob that is being sent piece by piece.
  struct Outgoing {
    Blob blob;
    std::uint64_t offset = 0;
    std::uint32_t in_flight = 0;
  };

  std::mutex post_mutex_;  // guards posted_, the blobs, and the change of blob_copy_
  std::deque<LaneBuffer> posted_;
  Outgoing blob_;  // the plan or manifest that is being sent
  Outgoing host_state_;
  std::vector<std::byte> blob_copy_;  // a copy, because the blob's sender may end after an error while a
                                      // piece is in flight
  std::atomic<bool> has_control_{false};
  std::size_t control_in_flight_ = 0;
  std::atomic<bool> has_blob_{false};  // whether a blob of either kind is set
  std::atomic<std::uint64_t> host_given_{0};

  std::atomic<std::uint32_t> pings_{0};
  bool ping_in_flight_ = false;
  Nanos ping_sent_ = 0;
  ClockOffset best_clock_;
  bool has_clock_ = false;

  std::atomic<std::uint32_t> calibration_left_{0};
  std::atomic<Nanos> calibration_end_{0};
  std::uint32_t calibration_in_flight_ = 0;

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace ckpt::engine
