// SPDX-License-Identifier: Apache-2.0
// Movers that a test plays. The agent starts a real process (fake_mover.cc), which passes its end of the
// socketpair to the test. So the test decides what the mover sends and when, and how the process exits.
// Threads: the loop's. Ownership: the process ends with its object. Errors: an exception that names the event
// that the test waited for, or what arrived instead.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "agent/io/packet_link.h"
#include "agent/mover_client/mover_process.h"
#include "tests/unit/agent/support/awaited.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {

class FakeMover {
 public:
  FakeMover(asio::io_context& io, pid_t pid, std::shared_ptr<PacketLink> program, UniqueFd mover_end)
      : io_(io), pid_(pid), program_(std::move(program)), state_(std::make_shared<State>()) {
    link_ = PacketLink::create(io.get_executor(), std::move(mover_end), mover::kMaxPacketBytes).value();
    PacketLink::Handlers handlers;
    handlers.packet = [state = state_](Packet packet) {
      auto message = mover::decode_message(packet.bytes);
      EXPECT_TRUE(message) << "the agent sent a malformed packet";
      if (message) state->heard.emplace_back(*std::move(message), std::move(packet.descriptors));
    };
    handlers.closed = [state = state_](Error) { state->agent_gone = true; };
    link_->start(std::move(handlers));
  }
  ~FakeMover() {
    link_->close();
    program_->close();
  }
  FakeMover(const FakeMover&) = delete;
  FakeMover& operator=(const FakeMover&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void send(const mover::Message& message, std::vector<UniqueFd> descriptors = {}) {
    send_bytes(mover::encode_message(message).value(), std::move(descriptors));
  }
  void send_bytes(std::vector<std::byte> bytes, std::vector<UniqueFd> descriptors = {}) {
    Packet packet;
    packet.bytes = std::move(bytes);
    packet.descriptors = std::move(descriptors);
    link_->send(std::move(packet));
  }
  // Returns the agent's next message with its descriptors. The message must be an M.
  template <class M>
  M receive(const std::string& what, std::vector<UniqueFd>* descriptors = nullptr) {
    await_event(io_, what, [this] { return !state_->heard.empty(); });
    mover::Packet packet = std::move(state_->heard.front());
    state_->heard.pop_front();
    auto* message = std::get_if<M>(&packet.message);
    if (message == nullptr)
      throw std::runtime_error("The agent sent " + std::string(mover::name_of(packet.message)) +
                               " where the test waits for: " + what);
    if (descriptors != nullptr) *descriptors = std::move(packet.fds);
    return std::move(*message);
  }
  // Makes the process exit with this status.
  void exit(unsigned char status) {
    Packet packet;
    packet.bytes = {std::byte{status}};
    program_->send(std::move(packet));
  }
  void close_socket() { link_->close(); }
  void await_agent_gone() {
    await_event(io_, "the agent closes its end of the mover's socket", [this] { return state_->agent_gone; });
  }
  [[nodiscard]] bool agent_gone() const { return state_->agent_gone; }

 private:
  // State that is shared with the handlers.
  struct State {
    std::deque<mover::Packet> heard;
    bool agent_gone = false;
  };
  asio::io_context& io_;
  pid_t pid_;
  std::shared_ptr<PacketLink> program_;
  std::shared_ptr<State> state_;
  std::shared_ptr<PacketLink> link_;
};

// The movers of a node. Each start of the program creates another FakeMover. Only one object may exist at a
// time.
class FakeMovers {
 public:
  FakeMovers(asio::io_context& io, const std::string& folder) : io_(io) {
    const std::string path = folder + "/movers.sock";
    ::setenv("FAKE_MOVER", path.c_str(), 1);
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) throw std::runtime_error(path + " is too long for a socket");
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket.get(), 8), 0);
    listener_ = std::make_shared<Listening>(io_, socket.release());
    accept(listener_);
    settings.program = FAKE_MOVER_PROGRAM;
    settings.log_path = folder + "/mover.log";
    settings.configure.node = "node-a";
    settings.configure.gpu = 2;
    settings.first_backoff = std::chrono::hours(1);  // no mover is restarted unless a test requests it
    settings.max_backoff = std::chrono::hours(1);
  }
  ~FakeMovers() {
    boost::system::error_code ignored;
    listener_->socket.close(ignored);
  }
  FakeMovers(const FakeMovers&) = delete;
  FakeMovers& operator=(const FakeMovers&) = delete;

  MoverProcess& create() {
    process = MoverProcess::create(io_.get_executor(), settings);
    return *process;
  }
  // Returns the next mover that was started, with its first message taken.
  std::unique_ptr<FakeMover> started(const std::string& which) {
    await_event(io_, which + " is started", [this] { return !listener_->programs.empty(); });
    Program program = std::move(listener_->programs.front());
    listener_->programs.pop_front();
    auto mover =
        std::make_unique<FakeMover>(io_, program.pid, std::move(program.link), std::move(program.end));
    EXPECT_EQ(mover->receive<mover::Configure>("the mover's settings").gpu, 2U);
    return mover;
  }
  // Starts a mover, and returns it once it serves.
  std::unique_ptr<FakeMover> serve() {
    if (!process) create();
    process->start();
    auto mover = started("the mover");
    mover->send(mover::MoverReady());
    await_event(io_, "the mover serves", [this] { return process->serving(); });
    return mover;
  }

  MoverSettings settings;
  std::shared_ptr<MoverProcess> process;

 private:
  struct Program {
    pid_t pid = 0;
    std::shared_ptr<PacketLink> link;
    UniqueFd end;
  };
  // State that is shared with the handlers.
  struct Listening {
    Listening(asio::io_context& io, int fd) : socket(io, fd) {}
    asio::posix::stream_descriptor socket;
    std::deque<Program> programs;
  };
  static void accept(const std::shared_ptr<Listening>& listener) {
    listener->socket.async_wait(asio::posix::stream_descriptor::wait_read,
                                [listener](boost::system::error_code error) {
                                  if (error || !listener->socket.is_open()) return;
                                  take(listener);
                                  accept(listener);
                                });
  }
  static void take(const std::shared_ptr<Listening>& listener) {
    UniqueFd socket(::accept4(listener->socket.native_handle(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) return;
    constexpr std::size_t kMax = 64;
    auto link = PacketLink::create(listener->socket.get_executor(), std::move(socket), kMax).value();
    PacketLink::Handlers handlers;
    handlers.packet = [listener, weak = std::weak_ptr(link)](Packet packet) {
      Program program;
      EXPECT_EQ(packet.bytes.size(), sizeof program.pid);
      EXPECT_EQ(packet.descriptors.size(), 1U);
      if (packet.bytes.size() != sizeof program.pid || packet.descriptors.size() != 1) return;
      std::memcpy(&program.pid, packet.bytes.data(), sizeof program.pid);
      program.link = weak.lock();
      program.end = std::move(packet.descriptors.front());
      listener->programs.push_back(std::move(program));
    };
    handlers.closed = [](Error) {};
    link->start(std::move(handlers));
  }

  asio::io_context& io_;
  std::shared_ptr<Listening> listener_;
};

class AgentWithMovers : public ::testing::Test {
 protected:
  MoverProcess& create() { return movers_.create(); }
  std::unique_ptr<FakeMover> started(const std::string& which) { return movers_.started(which); }
  std::unique_ptr<FakeMover> serve() { return movers_.serve(); }

  asio::io_context io_;
  TemporaryFolder folder_;

 private:
  FakeMovers movers_{io_, folder_.path()};

 protected:
  MoverSettings& settings_ = movers_.settings;
  std::shared_ptr<MoverProcess>& process_ = movers_.process;
};

}  // namespace ckpt::agent
