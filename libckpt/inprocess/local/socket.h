// SPDX-License-Identifier: Apache-2.0
// SOCK_SEQPACKET Unix sockets that carry local::Message and descriptors.
// Threads: one thread may send while another receives; two senders must be locked by the caller. Ownership:
// Socket and Listener own their descriptor. Received owns the descriptors of a message. Errors: kUnavailable
// when the peer has closed. kProtocol for bytes that parse() refuses, truncated messages or surplus
// descriptors (all of these are closed): drop the connection then. In an event loop: set_blocking(false),
// wait for readability of fd() and call receive() until kNothing. send() queues nothing. It returns kNothing
// when the peer's buffer is full: wait for writability, then send again. A path that begins with '@' is an
// abstract name: no file exists, and the kernel removes the name with the listener.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::local {

enum class Transfer {
  kDone,
  kNothing,
  kClosed
};  // kNothing: the call would block;
    // kClosed: the peer has closed

struct Received {
  Transfer transfer = Transfer::kNothing;  // the result; message and descriptors are valid with kDone only
  Message message;
  std::vector<UniqueFd> descriptors;
};

class Socket {
 public:
  Socket() = default;
  // Creates a socket that owns a connected SOCK_SEQPACKET descriptor (from socketpair, inherited or
  // accepted).
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}

  // Connects and checks that the peer runs as the same user, or that either side is root. Paths may be longer
  // than sun_path allows. The socket is in blocking mode. For use inside programs, its descriptor number is
  // beyond theirs (copy_beyond_program()).
  static Result<Socket> connect(const std::string& path);
  // Connects like connect(), but returns kUnavailable at once if the listener's queue is full. Waiting for a
  // stopped listener would never end.
  static Result<Socket> connect_at_once(const std::string& path);
  static Result<std::pair<Socket, Socket>> pair();

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  void close() noexcept { fd_.reset(); }
  [[nodiscard]] UniqueFd release() noexcept { return std::move(fd_); }
  Result<void> set_blocking(bool blocking);

  // Sends one message. The caller still owns the descriptors. Returns kDone, or kNothing in non-blocking mode
  // with a full buffer.
  Result<Transfer> send(const Message& message, std::span<const int> descriptors = {});
  Result<Transfer> send_bytes(std::span<const std::byte> bytes, std::span<const int> descriptors = {});
  Result<Received> receive();

  struct Peer {
    pid_t pid;
    uid_t uid;
  };
  Result<Peer> peer() const;

 private:
  static Result<Socket> connect_with(const std::string& path, UniqueFd fd);

  UniqueFd fd_;
  // A buffer for one message, allocated when the first message is received. It is not thread_local: this code
  // runs inside other programs, where thread-local storage uses the stack of each of their threads.
  std::unique_ptr<std::array<std::byte, kMaxMessageBytes>> buffer_;
};

class Listener {
 public:
  // Binds `path` with mode 0600, replaces a stale socket file there, and listens in non-blocking mode.
  static Result<Listener> create(const std::string& path);
  Listener(Listener&&) = default;
  Listener& operator=(Listener&&) = default;
  ~Listener();  // removes the path

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Accepts the next connection in non-blocking mode. Returns nullopt if there is none. A peer of another
  // user (not root) is closed, and kRefused is returned.
  Result<std::optional<Socket>> accept();

 private:
  Listener(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;
};

}  // namespace ckpt::local
