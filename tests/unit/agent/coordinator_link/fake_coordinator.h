// SPDX-License-Identifier: Apache-2.0
// A coordinator that a test plays. It listens on a Unix socket and speaks the frames of
// libckpt/protocol/wire. It does not use libckpt/net/control's Connection, so it can also send bytes that no
// Connection would send.
// Threads: the loop's. Ownership: closes its sockets with the object. Errors: an exception that names the
// event that the test waited for, or what arrived instead.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "libckpt/net/control/acceptor.h"
#include "libckpt/protocol/wire/control_messages.h"
#include "tests/unit/agent/support/awaited.h"

namespace ckpt::agent {

class FakeCoordinator {
 public:
  // Accepts a Hello that has `token`, and refuses other Hellos.
  FakeCoordinator(asio::io_context& io, const std::string& address, const std::string& token)
      : io_(io), room_(std::make_shared<Room>(io, address, token)) {
    control::spawn(io.get_executor(), "accept agents", accept(room_));
  }
  ~FakeCoordinator() { go_away(); }
  FakeCoordinator(const FakeCoordinator&) = delete;
  FakeCoordinator& operator=(const FakeCoordinator&) = delete;

  // Sets whether new connections are closed before any frame is sent.
  void hang_up_at_once(bool does) { room_->hangs_up = does; }
  [[nodiscard]] int dialled() const { return room_->dialled; }
  [[nodiscard]] int greeted() const { return room_->greeted; }
  [[nodiscard]] int ended() const { return room_->ended; }
  [[nodiscard]] const std::vector<wire::Hello>& hellos() const { return room_->hellos; }

  void await_dials(int count) {
    await_event(io_, "the agent dials " + std::to_string(count) + " times",
                [this, count] { return dialled() >= count; });
  }
  void await_greetings(int count) {
    await_event(io_, "the agent is greeted " + std::to_string(count) + " times",
                [this, count] { return greeted() >= count; });
  }
  void await_ends(int count) {
    await_event(io_, "the agent leaves " + std::to_string(count) + " times",
                [this, count] { return ended() >= count; });
  }

  template <class M>
  void send(const M& message) {
    send_bytes(wire::to_frame(message, ++room_->sequence).value());
  }
  void send(wire::FrameType type, std::span<const std::byte> body) {
    send_bytes(wire::make_frame(type, ++room_->sequence, body).value());
  }
  void send_bytes(const std::vector<std::byte>& bytes) {
    if (!room_->agent) throw std::runtime_error("No agent is connected to the test's coordinator");
    write(*room_->agent, bytes);
  }
  // Returns the next frame that is not a ping. The frame must be an M.
  template <class M>
  M receive(const std::string& what) {
    await_event(io_, what, [this] { return !room_->heard.empty(); });
    const Heard heard = std::move(room_->heard.front());
    room_->heard.pop_front();
    if (heard.type != M::kFrame)
      throw std::runtime_error("The agent sent " + std::string(wire::to_string(heard.type)) +
                               " where the test waits for: " + what);
    auto message = wire::decode<M>(heard.body);
    if (!message) throw std::runtime_error("Malformed: " + message.error().to_string());
    return *std::move(message);
  }
  void hang_up() {
    boost::system::error_code ignored;
    if (room_->agent) room_->agent->close(ignored);
    room_->agent.reset();
  }
  // Stops listening; later connections to the address are refused.
  void go_away() {
    boost::system::error_code ignored;
    room_->acceptor.close(ignored);
    hang_up();
  }

 private:
  using Socket = asio::generic::stream_protocol::socket;
  struct Heard {
    wire::FrameType type = wire::FrameType::kInvalid;
    std::vector<std::byte> body;
  };
  // State that is shared with the coroutines.
  struct Room {
    Room(asio::io_context& io, const std::string& address, std::string its_token)
        : acceptor(control::listen_at(io.get_executor(), address, false).value()),
          token(std::move(its_token)) {}
    control::Acceptor acceptor;
    std::string token;
    std::shared_ptr<Socket> agent;
    std::vector<wire::Hello> hellos;
    std::deque<Heard> heard;
    std::uint64_t sequence = 0;
    bool hangs_up = false;
    int dialled = 0;
    int greeted = 0;
    int ended = 0;  // the number of greeted connections that have ended
  };

  static void write(Socket& socket, const std::vector<std::byte>& bytes) {
    boost::system::error_code ignored;  // a closed connection is detected by reading
    asio::write(socket, asio::buffer(bytes), ignored);
  }
  static Task<std::optional<Heard>> read(std::shared_ptr<Socket> socket) {
    std::array<std::byte, wire::kFrameHeaderBytes> head{};
    const auto [head_code, head_read] =
        co_await asio::async_read(*socket, asio::buffer(head), control::kTuple);
    if (head_code) co_return std::nullopt;
    const auto header = wire::parse_header(head);
    EXPECT_TRUE(header) << "the agent sent a malformed frame";
    if (!header) co_return std::nullopt;
    Heard heard;
    heard.type = header->type;
    heard.body.resize(header->body_bytes);
    const auto [code, got] = co_await asio::async_read(*socket, asio::buffer(heard.body), control::kTuple);
    if (code) co_return std::nullopt;
    EXPECT_TRUE(wire::check_body(*header, heard.body)) << "the agent sent a damaged frame";
    co_return heard;
  }
  static Task<> accept(std::shared_ptr<Room> room) {
    for (;;) {
      auto [code, socket] = co_await room->acceptor.async_accept(control::kTuple);
      if (code) co_return;
      auto shared = std::make_shared<Socket>(std::move(socket));
      control::spawn(room->acceptor.get_executor(), "serve an agent", serve(room, std::move(shared)));
    }
  }
  // Checks and answers a Hello. Returns whether the connection stays open.
  static bool greet(Room& room, Socket& socket, const Heard& heard) {
    EXPECT_EQ(heard.type, wire::FrameType::kHello);
    auto hello = wire::decode<wire::Hello>(heard.body);
    EXPECT_TRUE(hello);
    if (heard.type != wire::FrameType::kHello || !hello) return false;
    wire::HelloReply reply;
    reply.accepted = hello->token == room.token;
    reply.reason = reply.accepted ? "" : "wrong token";
    room.hellos.push_back(*std::move(hello));
    write(socket, wire::to_frame(reply, ++room.sequence).value());
    return reply.accepted;
  }
  static Task<> serve(std::shared_ptr<Room> room, std::shared_ptr<Socket> socket) {
    ++room->dialled;
    boost::system::error_code ignored;
    if (room->hangs_up) {
      socket->close(ignored);
      co_return;
    }
    const auto first = co_await read(socket);
    if (!first || !greet(*room, *socket, *first)) {
      socket->close(ignored);
      co_return;
    }
    room->agent = socket;
    ++room->greeted;
    for (;;) {
      auto heard = co_await read(socket);
      if (!heard) break;
      if (heard->type == wire::FrameType::kPing) {
        write(*socket, wire::to_frame(wire::Pong(), ++room->sequence).value());
      } else if (heard->type != wire::FrameType::kPong) {
        room->heard.push_back(*std::move(heard));
      }
    }
    socket->close(ignored);
    if (room->agent == socket) room->agent.reset();
    ++room->ended;
  }

  asio::io_context& io_;
  std::shared_ptr<Room> room_;
};

}  // namespace ckpt::agent
