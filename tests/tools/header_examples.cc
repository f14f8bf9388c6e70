// SPDX-License-Identifier: Apache-2.0
// The frames of the examples in libckpt's headers: declarations of the names that an example uses, and a slot
// for its lines. tools/check-examples inserts the examples into the slots and compiles this file. No build
// compiles it.
#include <array>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/datapath/codec/blocks.h"
#include "libckpt/datapath/codec/chooser.h"
#include "libckpt/datapath/codec/codec.h"
#include "libckpt/datapath/codec/coder.h"
#include "libckpt/datapath/engine/source/final_scan.h"
#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/engine/target/receiver.h"
#include "libckpt/datapath/track/fingerprint_stream.h"
#include "libckpt/datapath/track/read_rate.h"
#include "libckpt/datapath/track/scanner.h"
#include "libckpt/datapath/track/sent_map.h"
#include "libckpt/datapath/transport/transport.h"
#include "libckpt/inprocess/shim/core/captures.h"
#include "libckpt/inprocess/shim/core/gate.h"
#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/net/settings/setting.h"
#include "libckpt/net/tls/psk_stream.h"
#include "libckpt/protocol/wire/codec.h"
#include "libckpt/record/fields.h"
#include "libckpt/record/names.h"
#include "libckpt/store/local/checkpoint_store.h"
#include "libckpt/store/plan.h"

namespace ckpt {

using Bytes = std::span<const std::byte>;
using Buffer = std::span<std::byte>;

namespace base_example {

// example: libckpt/base/result.h
Result<void> g();
void use(int value);
void report(const Error& error);
Result<void> result_example() {
  // example: libckpt/base/result.h from if (auto found
  return ok();
}

template <class T>
struct Task {
  struct promise_type {
    Task get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_value(const T& value);
    void unhandled_exception() {}
  };
  bool await_ready();
  void await_suspend(std::coroutine_handle<> caller);
  T await_resume();
};
Task<Result<void>> coroutine_example(Task<Result<int>> (*h)()) {
  // example: libckpt/base/result.h from CKPT_CO_TRY
  co_return ok();
}

}  // namespace base_example

namespace codec {

void encode_blocks_example(Bytes chunk, Buffer out) {
  using track::kMaxChunkBytes;
  // example: libckpt/datapath/codec/blocks.h
}
Result<void> parse_blocks_example(Bytes encoded, std::byte* chunk, std::size_t chunk_bytes,
                                  void (*copy)(std::byte*, Bytes)) {
  // example: libckpt/datapath/codec/blocks.h from CKPT_TRY(patch
  return ok();
}

void chooser_example(Chooser& chooser, Coder& coder, Bytes chunk, Bytes previous, Buffer out, Nanos busy) {
  // example: libckpt/datapath/codec/chooser.h
}

Result<void> codec_example(Encoding encoding_from_the_wire, Bytes chunk, Bytes encoded, Buffer scratch,
                           Buffer chunk_out) {
  // example: libckpt/datapath/codec/codec.h
  return ok();
}

Result<void> coder_example(std::size_t chunk_bytes, Encoding encoding, Bytes chunk, Bytes previous,
                           Bytes encoded, Buffer out, Buffer chunk_out) {
  // example: libckpt/datapath/codec/coder.h
  return ok();
}

}  // namespace codec

namespace engine {

Result<void> final_scan_example(std::shared_ptr<const track::TrackKernels> kernels, std::uint64_t chunk_bytes,
                                std::uint64_t max_slice_bytes, std::span<SourceRegion* const> regions,
                                const std::function<bool()>& is_alone,
                                const FinalScan::SliceHandler& on_slice) {
  // example: libckpt/datapath/engine/source/final_scan.h
  return ok();
}

Result<void> sender_example(const Device& device, StagingPool& staging, transport::Transport& transport,
                            const SenderOptions& options, Bytes plan, const TransferRegion& region,
                            bool (*another_round_pays)(), Bytes host_state,
                            Bytes (*manifest)(track::Fingerprint)) {
  // example: libckpt/datapath/engine/source/sender.h
  return ok();
}

Result<void> receiver_example(const Device& device, StagingPool& staging, transport::Transport& transport,
                              ReceiverDelegate& delegate, const ReceiverOptions& options) {
  // example: libckpt/datapath/engine/target/receiver.h
  return ok();
}

}  // namespace engine

namespace track {

void fingerprint_example(Bytes bytes) {
  // example: libckpt/datapath/track/fingerprint.h
  {
    // example: libckpt/datapath/track/fingerprint.h from std::vector<
  }
}

void fingerprint_stream_example(std::shared_ptr<const FingerprintParams> params, Bytes first, Bytes last) {
  // example: libckpt/datapath/track/fingerprint_stream.h
}

Result<void> read_rate_example(std::shared_ptr<const TrackKernels> kernels,
                               std::span<const ChunkRange> ranges) {
  // example: libckpt/datapath/track/read_rate.h
  return ok();
}

Result<void> scanner_example(const Device& device, std::shared_ptr<const FingerprintParams> params,
                             CUstream stream, std::span<const ChunkRange> chunks,
                             std::span<Fingerprint> fingerprints, void (*use)(std::span<const Fingerprint>)) {
  // example: libckpt/datapath/track/scanner.h
  return ok();
}

Result<void> sent_map_example(SentMap& map, std::uint64_t bytes, std::span<const Fingerprint> scanned,
                              std::vector<std::uint32_t>& dirty, std::uint32_t chunk,
                              Fingerprint from_target) {
  // example: libckpt/datapath/track/sent_map.h
  return ok();
}

}  // namespace track

namespace transport {

Result<void> transport_example(const SessionToken& token, const std::string& address, LaneHandler& handler,
                               bool done) {
  constexpr Nanos kSecond = 1'000'000'000;
  // example: libckpt/datapath/transport/transport.h
  {
    // example: libckpt/datapath/transport/transport.h from CKPT_TRY(lane, transport->connect
  }
  return ok();
}

}  // namespace transport

namespace shim {

void captures_example(CUresult (*driver_begins)(), void (*ask_by_other_means)()) {
  // example: libckpt/inprocess/shim/core/captures.h
}

Result<void> gate_example(Nanos timeout) {
  // example: libckpt/inprocess/shim/core/gate.h
  return ok();
}

}  // namespace shim
}  // namespace ckpt

// example: libckpt/inprocess/shim/core/hooks.h

namespace ckpt::settings {

struct Config {
  std::string log_level;
  std::chrono::milliseconds pause_timeout{};
};
// example: libckpt/net/settings/setting.h

}  // namespace ckpt::settings

namespace ckpt::tls {

Result<void> psk_stream_example(std::shared_ptr<const PskContext> context, UniqueFd socket,
                                std::string identity, const PskKey& key, Bytes bytes, Buffer span) {
  // example: libckpt/net/tls/psk_stream.h
  return ok();
}

}  // namespace ckpt::tls

namespace ckpt::wire {

constexpr int x = 0, y = 0;
// example: libckpt/protocol/wire/codec.h

}  // namespace ckpt::wire

namespace ckpt::record_example {

// example: libckpt/record/fields.h
// example: libckpt/record/names.h

}  // namespace ckpt::record_example

namespace ckpt::image {

Result<void> plan_example(std::span<const wire::TensorInfo> tensors, std::uint64_t chunk_bytes,
                          std::uint64_t generation, std::uint64_t first_extent) {
  // example: libckpt/store/plan.h
  return ok();
}
Result<void> plan_example(Bytes bytes, std::span<const wire::TensorInfo> standby_tensors, bool complete) {
  // example: libckpt/store/plan.h from CKPT_TRY(plan, decode_plan
  return ok();
}

}  // namespace ckpt::image

namespace ckpt::checkpoint_store {

Result<void> checkpoint_store_example(RestoreTarget& target) {
  // example: libckpt/store/local/checkpoint_store.h
  return ok();
}

Result<void> version_reader_example(CheckpointStore* store, ChunkSink& sink) {
  // example: libckpt/store/local/version_reader.h
  return ok();
}

Result<void> version_writer_example(CheckpointStore* store, std::uint32_t rank, std::uint64_t id,
                                    std::uint64_t generation, std::uint64_t region_bytes,
                                    std::uint64_t dirty_chunk, Bytes bytes, void (*put)(std::uint64_t),
                                    Bytes host_state) {
  // example: libckpt/store/local/version_writer.h
  return ok();
}

}  // namespace ckpt::checkpoint_store
