// SPDX-License-Identifier: Apache-2.0
// A keeper on the test's own loop, which plays it step by step. Requests that an agent may send at any time
// (Attach, Describe, Stop, Kill, Shutdown) are answered at once. Every other order waits until the test takes
// it.
// Threads: the loop's. Ownership: closes its sockets with the object. Errors: an exception that names the
// event that the test waited for, or what arrived instead.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "agent/io/packet_link.h"
#include "libckpt/inprocess/local/socket.h"
#include "tests/unit/agent/support/awaited.h"

namespace ckpt::agent {

// An order from the agent, with the request number that the answers must have.
template <class M>
struct Order {
  std::uint64_t request = 0;
  M body;
  std::vector<UniqueFd> descriptors;
};

class PlayedKeeper {
 public:
  PlayedKeeper(asio::io_context& io, const std::string& folder, local::Phase phase = local::Phase::kRunning)
      : io_(io), room_(std::make_shared<Room>(io, folder + "/keeper.sock", phase)) {
    accept(room_);
  }
  ~PlayedKeeper() { go_away(); }
  PlayedKeeper(const PlayedKeeper&) = delete;
  PlayedKeeper& operator=(const PlayedKeeper&) = delete;

  // Sets the answer to each Attach from now on.
  void report(const local::Status& status) { room_->status = status; }
  // Returns the agent's next order, which must have type M.
  template <class M>
  Order<M> receive(const std::string& what) {
    await_event(io_, what, [this] { return !room_->heard.empty(); });
    Heard heard = std::move(room_->heard.front());
    room_->heard.pop_front();
    auto* body = std::get_if<M>(&heard.message.body);
    if (body == nullptr)
      throw std::runtime_error("The agent sent " +
                               std::string(local::to_string(local::type_of(heard.message.body))) +
                               " where the test waits for: " + what);
    return {heard.message.request, std::move(*body), std::move(heard.descriptors)};
  }
  // Returns true if an order has arrived, after the loop has run all that is ready.
  [[nodiscard]] bool is_asked() {
    run_ready(io_);
    return !room_->heard.empty();
  }
  void answer(std::uint64_t request, local::Body body, std::vector<UniqueFd> descriptors = {}) {
    room_->send(request, std::move(body), std::move(descriptors));
  }
  void refuse(std::uint64_t request, local::MessageType type, const Error& reason) {
    answer(request, local::to_failed(type, reason));
  }
  void tell(local::Body event) { answer(0, std::move(event)); }
  // Sends bytes that a correct keeper never sends.
  void send_bytes(std::vector<std::byte> bytes) { room_->send_bytes(std::move(bytes), {}); }
  void exit(std::int32_t wait_status) {
    local::RankExited exited;
    exited.wait_status = wait_status;
    tell(exited);
  }
  // Closes the connection to the agent and stops listening, so that the agent cannot reconnect.
  void go_away() {
    boost::system::error_code ignored;
    room_->waiting.close(ignored);
    room_->listener.reset();
    if (room_->agent) room_->agent->close();
    room_->agent.reset();
  }

 private:
  struct Heard {
    local::Message message;
    std::vector<UniqueFd> descriptors;
  };
  // State that is shared with the handlers.
  struct Room {
    Room(asio::io_context& io, const std::string& path, local::Phase its_phase)
        : listener(local::Listener::create(path).value()),
          waiting(io, ::fcntl(listener->fd(), F_DUPFD_CLOEXEC, 3)),
          executor(io.get_executor()) {
      status.phase = its_phase;
      status.rank_pid = 4711;
    }
    void send_bytes(std::vector<std::byte> bytes, std::vector<UniqueFd> descriptors) {
      if (!agent) throw std::runtime_error("No agent is connected to the test's keeper");
      Packet packet;
      packet.bytes = std::move(bytes);
      packet.descriptors = std::move(descriptors);
      agent->send(std::move(packet));
    }
    void send(std::uint64_t request, local::Body body, std::vector<UniqueFd> descriptors = {}) {
      local::Message message;
      message.request = request;
      message.body = std::move(body);
      send_bytes(local::encode(message).value(), std::move(descriptors));
    }
    void serve(Heard order) {
      const std::uint64_t request = order.message.request;
      const local::Body& body = order.message.body;
      if (std::holds_alternative<local::Attach>(body)) {
        return send(request, status);
      }
      if (std::holds_alternative<local::Describe>(body)) {
        local::DescribeEnd end;
        end.summary.movable = 1;
        return send(request, end);
      }
      const bool ends =
          std::holds_alternative<local::Stop>(body) || std::holds_alternative<local::Kill>(body);
      if (!ends && !std::holds_alternative<local::Shutdown>(body)) return heard.push_back(std::move(order));
      send(request, local::Done{});
      if (ends) send(0, local::RankExited{});
    }
    std::optional<local::Listener> listener;
    asio::posix::stream_descriptor waiting;
    asio::any_io_executor executor;
    local::Status status;
    std::shared_ptr<PacketLink> agent;
    std::deque<Heard> heard;
  };

  static void accept(const std::shared_ptr<Room>& room) {
    room->waiting.async_wait(asio::posix::stream_descriptor::wait_read,
                             [room](boost::system::error_code error) {
                               if (error || !room->listener) return;
                               auto accepted = room->listener->accept();
                               if (accepted && *accepted) start(room, (*accepted)->release());
                               accept(room);
                             });
  }
  static void start(const std::shared_ptr<Room>& room, UniqueFd socket) {
    room->agent = PacketLink::create(room->executor, std::move(socket), local::kMaxMessageBytes).value();
    PacketLink::Handlers handlers;
    handlers.packet = [weak = std::weak_ptr(room)](Packet packet) {
      const auto there = weak.lock();
      if (!there || !there->agent) return;
      auto message = local::parse(packet.bytes, packet.descriptors.size());
      EXPECT_TRUE(message) << "the agent sent a malformed message";
      if (message) there->serve({*std::move(message), std::move(packet.descriptors)});
    };
    handlers.closed = [](const Error&) {};
    room->agent->start(std::move(handlers));
  }

  asio::io_context& io_;
  std::shared_ptr<Room> room_;
};

}  // namespace ckpt::agent
