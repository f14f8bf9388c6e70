// SPDX-License-Identifier: Apache-2.0
// A transport that delivers the messages of a confused or hostile peer. It is the loopback transport; a test
// may change, drop or duplicate its messages before they are delivered.
//
//   FaultInjectingTransport transport(
//       [](const Arrival& arrival) { return Headers{arrival.bytes()}; });  // changes nothing
//
// Threads: the test's function runs on the receiving lane's thread, for several lanes concurrently.
// Ownership: outlives its lanes.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/datapath/engine/shared/lane_messages.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::engine::test {

using Bytes = std::vector<std::byte>;
using Headers = std::vector<Bytes>;

struct Arrival {
  enum class At : std::uint8_t { kSource, kTarget };
  At at;
  std::size_t lane;  // the lane's number, in the order in which the target listens and the source connects
  std::span<const std::byte> header;
  [[nodiscard]] Bytes bytes() const { return {header.begin(), header.end()}; }
};

// A function that returns the headers to deliver in place of the arrived header, in order. A payload is
// delivered with the first header. A message with a payload cannot be dropped.
using Tamper = std::function<Headers(const Arrival&)>;

class FaultInjectingTransport final : public transport::Transport {
 public:
  explicit FaultInjectingTransport(Tamper meddle)
      : meddle_(std::move(meddle)), inner_(transport::make_loopback_transport()) {}

  Result<std::unique_ptr<transport::Lane>> listen(const transport::SessionToken& token,
                                                  transport::LaneHandler& handler) override {
    return inner_->listen(token, wrap(Arrival::At::kTarget, handler));
  }
  Result<std::unique_ptr<transport::Lane>> connect(const std::string& address,
                                                   const transport::SessionToken& token,
                                                   transport::LaneHandler& handler) override {
    return inner_->connect(address, token, wrap(Arrival::At::kSource, handler));
  }

 private:
  class Handler final : public transport::LaneHandler {
   public:
    Handler(const Tamper& meddle, Arrival::At at, std::size_t lane, transport::LaneHandler& inner)
        : meddle_(meddle), at_(at), lane_(lane), inner_(inner) {}
    transport::SameHostMemory same_host_memory() override { return inner_.same_host_memory(); }
    std::span<const std::byte> map_same_host(UniqueFd file, std::size_t bytes) override {
      return inner_.map_same_host(std::move(file), bytes);
    }
    void on_open() override { inner_.on_open(); }
    std::span<std::byte> on_payload_begin(std::span<const std::byte> header, std::size_t bytes) override {
      with_payload_ = meddle_({at_, lane_, header});
      return inner_.on_payload_begin(with_payload_.front(), bytes);
    }
    void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) override {
      // A payload in the source's memory has no on_payload_begin().
      const Headers headers =
          with_payload_.empty() ? meddle_({at_, lane_, header}) : std::exchange(with_payload_, {});
      for (const Bytes& each : headers) {
        inner_.on_message(each, payload);
        payload = {};
      }
    }
    void on_sent(std::uint64_t token) override { inner_.on_sent(token); }
    void on_closed(const Error& error) override { inner_.on_closed(error); }

   private:
    const Tamper& meddle_;
    const Arrival::At at_;
    const std::size_t lane_;
    transport::LaneHandler& inner_;
    Headers with_payload_;  // the headers of the message whose payload is being received
  };

  transport::LaneHandler& wrap(Arrival::At at, transport::LaneHandler& handler) {
    const std::lock_guard lock(mutex_);
    std::size_t& lanes = at == Arrival::At::kTarget ? listening_ : connected_;
    return handlers_.emplace_back(meddle_, at, lanes++, handler);
  }

  const Tamper meddle_;
  std::unique_ptr<transport::Transport> inner_;
  std::mutex mutex_;  // guards all fields below
  std::deque<Handler> handlers_;
  std::size_t listening_ = 0;
  std::size_t connected_ = 0;
};

}  // namespace ckpt::engine::test
