// SPDX-License-Identifier: Apache-2.0
// One lane of the receiver with its thread. Payloads arrive in pinned slots, or stay where a source on this
// machine has staged them. They are written to the device on the lane's stream, fingerprinted there, and
// acknowledged. Internal to the engine. The source leaves staged chunks unchanged until the acknowledgement.
// A slot is therefore taken here for each message in flight, even if the slot stays empty.
// Threads: everything runs on the lane's own thread, except post() and the functions marked "coding thread".
// A coding thread waits for the device, so that the link never does. A slot in busy_ belongs to a coding
// thread until `done`. Errors go to ReceiverCore::fail().
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "libckpt/datapath/engine/shared/staging.h"
#include "libckpt/datapath/engine/shared/work_pool.h"
#include "libckpt/datapath/engine/target/receiver_core.h"
#include "libckpt/datapath/engine/target/target_codec.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::engine {

class ReceiveLane final : private transport::LaneHandler, private WorkHandler {
 public:
  // The position of a lane. Messages other than chunks arrive on the first lane only, so that one thread
  // handles them.
  enum class Place : std::uint8_t { kFirst, kOther };
  // Creates a lane. on_verify(round) is called on this thread and must not block.
  static Result<std::unique_ptr<ReceiveLane>> create(Place place, ReceiverCore& core, WorkPool& workers,
                                                     transport::Transport& transport,
                                                     const transport::SessionToken& token,
                                                     std::shared_ptr<const track::TrackKernels> kernels,
                                                     std::vector<StagingSlot> slots,
                                                     std::span<const std::unique_ptr<Decoder>> decoders,
                                                     std::function<Result<void>(std::uint32_t)> on_verify);
  ~ReceiveLane() override;  // must run after stop(), and after the pool is destroyed
  [[nodiscard]] std::string address() const { return lane_->address(); }
  void post(const LaneBuffer& message);  // may be called on any thread
  void wake() noexcept { lane_->wake(); }
  void stop();  // stops the thread and closes the lane

 private:
  struct Slot {
    Slot(StagingSlot s, std::unique_ptr<track::FingerprintBatch> b)
        : staging(std::move(s)), batch(std::move(b)) {}
    StagingSlot staging;
    std::unique_ptr<track::FingerprintBatch> batch;
    LaneHeader header;
    std::array<ChunkRecord, kMaxChunks> records;
    std::array<ReceiverCore::Placed, kMaxChunks> places;
    std::array<track::Fingerprint, kMaxChunks> fingerprints;
    bool has_batch = false;        // whether data was written to the device, which `batch` fingerprints
    bool decode = false;           // whether the coding thread decodes the chunks, and writes them, too
    std::span<std::byte> payload;  // the received payload, which is in the slot or in the source's staging
                                   // memory
    std::atomic<bool> done{false};
  };

  ReceiveLane(Place place, ReceiverCore& core, WorkPool& workers,
              std::span<const std::unique_ptr<Decoder>> decoders,
              std::function<Result<void>(std::uint32_t)> on_verify)
      : place_(place),
        core_(core),
        workers_(workers),
        decoders_(decoders),
        on_verify_(std::move(on_verify)) {}

  // Overrides of transport::LaneHandler.
  std::span<const std::byte> map_same_host(UniqueFd file, std::size_t bytes) override;
  std::span<std::byte> on_payload_begin(std::span<const std::byte> header,
                                        std::size_t payload_bytes) override;
  void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) override;
  void on_sent(std::uint64_t token) override;
  void on_closed(const Error& error) override;

  void work(std::size_t index, std::size_t worker) override;  // runs on a coding thread

  void run();
  bool step();
  bool send_posted();
  // Returns the header of a message. Returns an error if the message is not allowed on this lane.
  [[nodiscard]] Result<LaneHeader> parse(std::span<const std::byte> bytes) const;
  Result<void> handle(std::span<const std::byte> bytes, std::span<const std::byte> payload);
  Result<void> handle_chunks(const LaneHeader& header, std::span<const std::byte> bytes,
                             std::span<const std::byte> payload);
  // Runs on the lane's thread and stream. With a decoder, runs on the coding thread and the decoder's stream.
  Result<void> scatter(Slot& slot, CUstream stream, Decoder* decoder);
  Result<void> decode_and_wait(Slot& slot, Decoder& decoder);
  Result<void> report_scattered(Slot& slot, CUstream stream);
  Result<void> finish(Slot& slot);
  bool finish_done();
  Result<void> handle_blob(const LaneHeader& header, std::span<const std::byte> bytes,
                           std::size_t payload_bytes);
  Result<void> answer(LaneMessage type, const VerdictRecord& record, std::string_view text);
  Result<std::size_t> slot_of(std::span<const std::byte> payload);
  // Returns the payload, writable, if it is in the source's staging memory. Otherwise returns an empty span.
  [[nodiscard]] std::span<std::byte> staged_by_source(std::span<const std::byte> payload) const noexcept;

  const Place place_;
  ReceiverCore& core_;
  WorkPool& workers_;
  std::span<const std::unique_ptr<Decoder>> decoders_;  // one decoder for each coding thread
  std::function<Result<void>(std::uint32_t)> on_verify_;
  std::unique_ptr<transport::Lane> lane_;
  CUstream stream_ = nullptr;
  std::span<std::byte> source_memory_;  // the source's staging memory, which ReceiverCore owns
  std::deque<Slot> slots_;              // slots at fixed addresses
  std::vector<std::size_t> free_;       // the free slots
  std::vector<std::size_t> busy_;       // the slots that a coding thread handles
  std::mutex post_mutex_;
  std::deque<LaneBuffer> posted_;
  std::atomic<bool> has_posted_{false};
  std::size_t posted_in_flight_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace ckpt::engine
