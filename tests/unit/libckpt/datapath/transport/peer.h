// SPDX-License-Identifier: Apache-2.0
// One end of a lane with its own thread. The peer sends the given messages with a window, and stores received
// messages. wait_until() and read() read the state under the lock.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {

using Bytes = std::vector<std::byte>;

struct TestMessage {
  Bytes header;
  Bytes payload;
  bool operator==(const TestMessage& other) const {
    return equal(header, other.header) && equal(payload, other.payload);
  }

 private:
  // Compares the bytes with memcmp. std::vector compares std::byte values one by one, which takes minutes
  // under a sanitizer.
  static bool equal(const Bytes& a, const Bytes& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
  }
};

class Peer final : public LaneHandler {
 public:
  struct State {
    std::vector<TestMessage> received;
    std::size_t in_place = 0;  // number of received payloads that were read in place
    std::vector<std::uint64_t> sent;
    std::optional<Error> closed;
    int opened = 0;
    int closed_times = 0;
  };

  Peer() = default;
  ~Peer() override { stop(); }

  // The options for payloads; set them before start().
  bool refuse_payloads = false;
  Bytes same_host_room;     // not empty: the other side may read payloads from this process's memory
  int same_host_file = -1;  // a file that the other side may also map; -1: none
  std::span<const std::byte> same_host_mapped;
  std::function<std::span<const std::byte>(UniqueFd, std::size_t)>
      on_near_file;  // called for a file of the other side; if empty, the file is ignored
  std::function<void(Peer&)> on_each_message;  // called on the lane's thread
  std::size_t window = 8;
  bool keep_sent_messages = true;  // false if on_each_message sends messages itself

  void start(std::unique_ptr<Lane> lane) {
    lane_ = std::move(lane);
    thread_ = std::jthread([this](const std::stop_token& stopped) { drive(stopped); });
  }
  void stop() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    lane_->wake();
    thread_.join();
    lane_.reset();
  }

  [[nodiscard]] Lane& lane() { return *lane_; }
  void send(TestMessage message) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(message));
    }
    lane_->wake();
  }
  // Runs a command on the lane's thread, outside of callbacks.
  void run(std::function<void(Lane&)> command) {
    {
      const std::lock_guard lock(mutex_);
      commands_.push_back(std::move(command));
    }
    stopped_or_commands_.notify_all();
    lane_->wake();
  }

  // Waits until the condition is true. Returns false after a minute, or when the lane has ended first; the
  // test has then failed.
  [[nodiscard]] bool wait_until(const std::function<bool(const State&)>& condition) {
    std::unique_lock lock(mutex_);
    const auto decided = [&] { return condition(state_) || state_.closed.has_value(); };
    return changed_.wait_for(lock, std::chrono::minutes(1), decided) && condition(state_);
  }
  [[nodiscard]] bool wait_received(std::size_t count) {
    return wait_until([count](const State& s) { return s.received.size() >= count; });
  }
  [[nodiscard]] bool wait_sent(std::size_t count) {
    return wait_until([count](const State& s) { return s.sent.size() >= count; });
  }
  [[nodiscard]] bool wait_open() {
    return wait_until([](const State& s) { return s.opened > 0; });
  }
  [[nodiscard]] bool wait_closed() {
    return wait_until([](const State& s) { return s.closed.has_value(); });
  }
  template <class Function>
  auto read(Function function) {
    const std::lock_guard lock(mutex_);
    return function(state_);
  }

  void on_open() override {
    update([](State& s) { ++s.opened; });
  }
  SameHostMemory same_host_memory() override { return {same_host_room, same_host_file, same_host_mapped}; }
  std::span<const std::byte> map_same_host(UniqueFd file, std::size_t bytes) override {
    return on_near_file ? on_near_file(std::move(file), bytes) : std::span<const std::byte>{};
  }
  std::span<std::byte> on_payload_begin(std::span<const std::byte>, std::size_t payload_bytes) override {
    if (refuse_payloads) return {};
    return arriving_.emplace_back(payload_bytes);
  }
  void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) override {
    TestMessage message{Bytes(header.begin(), header.end()), {}};
    const bool in_place =
        !payload.empty() && (arriving_.empty() || arriving_.front().data() != payload.data());
    if (in_place) {
      message.payload.assign(payload.begin(), payload.end());
    } else if (!payload.empty()) {
      message.payload = std::move(arriving_.front());
      arriving_.pop_front();
    }
    update([&message, in_place](State& s) {
      s.received.push_back(std::move(message));
      s.in_place += in_place ? 1 : 0;
    });
    if (on_each_message) on_each_message(*this);
  }
  void on_sent(std::uint64_t token) override {
    if (keep_sent_messages) flying_.pop_front();
    update([token](State& s) { s.sent.push_back(token); });
  }
  void on_closed(const Error& error) override {
    update([&error](State& s) {
      s.closed = error;
      ++s.closed_times;
    });
  }

 private:
  template <class Function>
  void update(Function function) {
    {
      const std::lock_guard lock(mutex_);
      function(state_);
    }
    changed_.notify_all();
  }

  void drive(const std::stop_token& stopped) {
    constexpr Nanos kHour = 3'600'000'000'000;
    while (!stopped.stop_requested()) {
      const bool moved = lane_->progress();
      if (!run_commands() && !pump() && !moved) {
        if (lane_->closed()) {
          std::unique_lock lock(mutex_);
          stopped_or_commands_.wait(lock, stopped, [this] { return !commands_.empty(); });
        } else {
          lane_->wait(kHour);
        }
      }
    }
  }
  bool run_commands() {
    std::vector<std::function<void(Lane&)>> commands;
    {
      const std::lock_guard lock(mutex_);
      commands.swap(commands_);
    }
    for (const auto& command : commands) command(*lane_);
    return !commands.empty();
  }
  bool pump() {
    bool any = false;
    const bool open = read([](const State& s) { return s.opened > 0 && !s.closed; });
    while (open && flying_.size() < window) {
      {
        const std::lock_guard lock(mutex_);
        if (queue_.empty()) break;
        flying_.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
      const TestMessage& message = flying_.back();
      if (!lane_->send(message.header, message.payload, next_token_++).has_value()) break;
      any = true;
    }
    return any;
  }

  std::unique_ptr<Lane> lane_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable_any stopped_or_commands_;
  State state_;
  std::deque<TestMessage> queue_;
  std::vector<std::function<void(Lane&)>> commands_;
  // Only the lane's thread uses these members:
  std::deque<TestMessage> flying_;
  std::deque<Bytes> arriving_;
  std::uint64_t next_token_ = 0;
  std::jthread thread_;
};

}  // namespace ckpt::transport
