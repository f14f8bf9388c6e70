// SPDX-License-Identifier: Apache-2.0
// A sender and a receiver in one process, over the loopback transport and on two devices. The test can write
// and compare their buffers. The target's buffers start as 0xA5, since new memory has no known content.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "libckpt/base/random.h"
#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/engine/target/receiver.h"

namespace ckpt::engine::test {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;

// Returns the value, or fails the test with the text of the error.
template <class T>
T must(Result<T> result) {
  if (!result.has_value()) {
    ADD_FAILURE() << result.error().to_string();
    throw std::runtime_error(result.error().to_string());
  }
  return *std::move(result);
}
inline void must(const Result<void>& result) {
  if (result.has_value()) return;
  ADD_FAILURE() << result.error().to_string();
  throw std::runtime_error(result.error().to_string());
}

// A buffer of plain device memory with host access.
class Buffer {
 public:
  Buffer(const Device& device, std::uint64_t bytes) : device_(device), bytes_(bytes) {
    const ContextScope scope(device_);
    if (device_.api().cuMemAlloc_v2(&pointer_, bytes) != CUDA_SUCCESS) throw std::runtime_error("cuMemAlloc");
  }
  ~Buffer() {
    const ContextScope scope(device_);
    device_.api().cuMemFree_v2(pointer_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void write(std::uint64_t offset, std::span<const std::byte> bytes) const {
    const ContextScope scope(device_);
    if (device_.api().cuMemcpyHtoD_v2(pointer_ + offset, bytes.data(), bytes.size()) != CUDA_SUCCESS)
      throw std::runtime_error("cuMemcpyHtoD");
  }
  void fill(std::uint64_t offset, std::uint64_t bytes, unsigned char value) const {
    const ContextScope scope(device_);
    if (device_.api().cuMemsetD8_v2(pointer_ + offset, value, bytes) != CUDA_SUCCESS)
      throw std::runtime_error("cuMemsetD8");
  }
  [[nodiscard]] std::vector<std::byte> read() const {
    const ContextScope scope(device_);
    std::vector<std::byte> out(bytes_);
    if (device_.api().cuMemcpyDtoH_v2(out.data(), pointer_, bytes_) != CUDA_SUCCESS)
      throw std::runtime_error("cuMemcpyDtoH");
    return out;
  }
  [[nodiscard]] CUdeviceptr pointer() const { return pointer_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  const Device& device_;
  std::uint64_t bytes_;
  CUdeviceptr pointer_ = 0;
};

inline const Device& device(int ordinal) {
  static std::map<int, std::unique_ptr<Device>> devices;
  auto& slot = devices[ordinal];
  if (!slot) slot = std::make_unique<Device>(must(Device::open(ordinal)));
  return *slot;
}

struct PlanEntry {
  std::uint64_t id, generation, bytes;
};

class EnginePair : public ReceiverDelegate, public SenderObserver {
 public:
  struct Setup {
    std::vector<std::uint64_t> sizes{4 * kMiB};
    std::uint64_t chunk_bytes = 64 * kKiB;
    std::uint32_t lanes = 2;  // 0: the receiver's choice for `paths`
    std::uint32_t paths = 1;
    FaultHooks* source_hooks = nullptr;
    FaultHooks* target_hooks = nullptr;
    std::uint64_t bandwidth = 0;
    codec::CodecMode codec = codec::CodecMode::kAuto;
    std::uint64_t shadow_memory = 0;
    std::uint64_t min_unscanned = kMinUnscannedChunks;
    transport::Transport* transport = nullptr;  // the test's own transport; null: loopback
    bool same_host = false;  // true: the target reads chunks from the source's staging memory
  };

  explicit EnginePair(const Setup& setup) : setup_(setup) {
    source_staging_ = must(StagingPool::create(device(0), 32 * kMiB));
    target_staging_ = must(StagingPool::create(device(1), 32 * kMiB));
    if (setup.transport == nullptr) own_transport_ = transport::make_loopback_transport();
    transport::Transport& transport = setup.transport != nullptr ? *setup.transport : *own_transport_;
    for (const std::uint64_t bytes : setup.sizes) add_buffers(next_id_++, 1, bytes);

    ReceiverOptions receive;
    must(fill_random(receive.key));
    must(fill_random(receive.token));
    receive.id = {42, 2, 0};
    receive.lanes = setup.lanes;
    receive.paths = setup.paths;
    receive.scan_slice_bytes = 1 * kMiB;
    receive.hooks = setup.target_hooks;
    receiver_ = must(Receiver::create(device(1), *target_staging_, transport, *this, receive));

    SenderOptions send;
    send.id = receive.id;
    send.key = receive.key;
    send.token = receive.token;
    send.addresses = receiver_->addresses();
    send.chunk_bytes = setup.chunk_bytes;
    send.bandwidth = setup.bandwidth;
    send.codec = setup.codec;
    send.shadow_memory_bytes = setup.shadow_memory;
    send.min_unscanned_chunks = setup.min_unscanned;
    send.scan_piece_bytes = 2 * kMiB;
    send.scan_slice_bytes = 1 * kMiB;
    send.same_host = setup.same_host;
    send.hooks = setup.source_hooks;
    send.observer = this;
    sender_ = must(Sender::create(device(0), *source_staging_, transport, send));
    must(sender_->connect());
  }
  ~EnginePair() override {
    sender_.reset();
    receiver_.reset();
  }

  // Announces the plan and all regions that have not been announced yet.
  void announce() { must(try_announce()); }
  Result<void> try_announce() {
    std::vector<PlanEntry> plan;
    for (const auto& [id, generation] : unannounced_) plan.push_back({id, generation, source(id).bytes()});
    CKPT_TRYV(sender_->send_plan(std::as_bytes(std::span(plan))));
    for (const auto& [id, generation] : unannounced_) {
      TransferRegion region{id, generation, source(id).pointer(), source(id).bytes(), backing_[id]};
      CKPT_TRYV(sender_->add_region(std::move(region)));
      backing_[id].reset();  // only the engine still refers to the memory
    }
    unannounced_.clear();
    return ok();
  }
  void add_buffers(std::uint64_t id, std::uint64_t generation, std::uint64_t bytes) {
    source_[id] = std::make_unique<Buffer>(device(0), bytes);
    target_[id] = std::make_unique<Buffer>(device(1), bytes);
    target_[id]->fill(0, bytes, 0xA5);
    auto backing = std::make_shared<int>(0);
    watch_[id] = backing;
    backing_[id] = backing;
    unannounced_.emplace_back(id, generation);
  }
  // Drops the region as a mover does: the region leaves the engine before its memory is freed.
  void drop(std::uint64_t id) { sender_->drop_region(id); }
  void free_buffers(std::uint64_t id) {
    source_.erase(id);
    target_.erase(id);
  }
  [[nodiscard]] bool engine_holds(std::uint64_t id) const { return !watch_.at(id).expired(); }

  Result<Verdict> commit() { return sender_->commit(std::as_bytes(std::span("manifest", 8))); }
  // Runs the final round and the commit. The target must equal the source afterwards.
  void switch_over(std::span<const std::byte> host_state = {}) {
    final_report = must(sender_->run_final(host_state));
    verdict = must(commit());
    wait_verified();
  }
  void wait_verified() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return verified || failure; });
  }
  Error wait_failed() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return failure.has_value(); });
    return *failure;
  }
  // Returns the number of bytes that differ, over all buffers.
  [[nodiscard]] std::uint64_t differences() const {
    std::uint64_t count = 0;
    for (const auto& [id, buffer] : source_) {
      const auto ours = buffer->read();
      const auto theirs = target_.at(id)->read();
      for (std::size_t i = 0; i < ours.size(); ++i) count += ours[i] != theirs[i] ? 1 : 0;
    }
    return count;
  }
  [[nodiscard]] const Buffer& source(std::uint64_t id = 1) const { return *source_.at(id); }
  [[nodiscard]] const Buffer& target(std::uint64_t id = 1) const { return *target_.at(id); }
  [[nodiscard]] Sender& sender() { return *sender_; }
  [[nodiscard]] std::uint32_t mismatches() const {
    const std::lock_guard lock(mutex_);
    return mismatches_;
  }
  void end_receiver() { receiver_.reset(); }

  RoundReport final_report;
  Verdict verdict;
  bool verified = false;
  VerifiedReport report;
  ReceivedHostState host_state;
  std::optional<Error> failure;  // the receiver's error
  bool refuse_plan = false;

 private:
  Result<PlanPlaces> on_plan(std::span<const std::byte> plan) override {
    if (refuse_plan) return Error(ErrorCode::kRefused, "Tensor \"w\": no such tensor at the target");
    PlanPlaces places;
    places.chunk_bytes = setup_.chunk_bytes;
    for (std::size_t at = 0; at + sizeof(PlanEntry) <= plan.size(); at += sizeof(PlanEntry)) {
      PlanEntry entry{};
      std::memcpy(&entry, plan.data() + at, sizeof entry);
      places.regions.push_back(
          {entry.id, entry.generation, target_.at(entry.id)->pointer(), entry.bytes, nullptr});
    }
    return places;
  }
  Result<void> on_manifest(std::span<const std::byte> manifest, const track::Fingerprint&,
                           const ReceivedHostState&) override {
    if (manifest.size() != 8) return Error(ErrorCode::kCorrupt, "manifest");
    return ok();
  }
  void on_verified(const VerifiedReport& verified_report, ReceivedHostState state) override {
    const std::lock_guard lock(mutex_);
    verified = true;
    report = verified_report;
    host_state = std::move(state);
    changed_.notify_all();
  }
  void on_failed(const Error& error) override {
    const std::lock_guard lock(mutex_);
    if (!failure) failure = error;
    changed_.notify_all();
  }
  void on_mismatch(const MismatchEvent&) override {
    const std::lock_guard lock(mutex_);
    ++mismatches_;
  }
  // The error of the sender, which a test sees as the result of a call. Both interfaces declare this name.
  Setup setup_;
  std::uint64_t next_id_ = 1;
  std::unique_ptr<StagingPool> source_staging_, target_staging_;
  std::unique_ptr<transport::Transport> own_transport_;
  std::map<std::uint64_t, std::unique_ptr<Buffer>> source_, target_;
  std::map<std::uint64_t, std::shared_ptr<const void>> backing_;
  std::map<std::uint64_t, std::weak_ptr<const void>> watch_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> unannounced_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t mismatches_ = 0;
  std::unique_ptr<Receiver> receiver_;
  std::unique_ptr<Sender> sender_;
};

inline std::vector<std::byte> random_bytes(std::size_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(bytes);
  for (auto& b : out) b = static_cast<std::byte>(random());
  return out;
}

// Returns random floats that resemble weights; byte planes shorten them.
inline std::vector<std::byte> random_floats(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(bytes / sizeof(float));
  for (float& value : values) value = normal(random);
  std::vector<std::byte> out(bytes);
  std::memcpy(out.data(), values.data(), values.size() * sizeof(float));
  return out;
}

// A thread that writes random runs into the source's buffers until it is stopped. Other buffers may be added
// and freed meanwhile.
class Writer {
 public:
  Writer(EnginePair& pair, const std::vector<std::uint64_t>& ids, unsigned seed)
      : thread_([buffers = buffers_of(pair, ids), seed, this] {
          std::mt19937_64 random(seed);
          std::vector<std::byte> data(8 * kKiB);
          while (!stop_.load()) {
            const Buffer& buffer = *buffers[random() % buffers.size()];
            const std::size_t length = std::min<std::size_t>(1 + random() % data.size(), buffer.bytes());
            const auto value = static_cast<std::byte>(random() % 3);  // zeroes and repeats are likely
            std::fill_n(data.begin(), length, value);
            if (random() % 4 == 0)
              for (std::size_t i = 0; i < length; i += 16) data[i] = static_cast<std::byte>(random());
            buffer.write(random() % (buffer.bytes() - length + 1), std::span(data).first(length));
            writes_.fetch_add(1);
            writes_.notify_all();
          }
        }) {}
  ~Writer() { stop(); }
  void stop() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  void wait_for_writes(std::uint64_t more) {
    const std::uint64_t goal = writes_.load() + more;
    for (std::uint64_t now = writes_.load(); now < goal; now = writes_.load()) writes_.wait(now);
  }

 private:
  static std::vector<const Buffer*> buffers_of(const EnginePair& pair,
                                               const std::vector<std::uint64_t>& ids) {
    std::vector<const Buffer*> buffers;
    for (const std::uint64_t id : ids) buffers.push_back(&pair.source(id));
    return buffers;
  }

  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> writes_{0};
  std::thread thread_;
};

}  // namespace ckpt::engine::test
