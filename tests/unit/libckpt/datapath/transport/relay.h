// SPDX-License-Identifier: Apache-2.0
// A relay between the two ends of one TCP connection, on 127.0.0.1. It stores all bytes that pass, and may
// change the records from the dialing end. Its threads end with the relay.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/datapath/transport/tls_socket.h"

namespace ckpt::transport {

class Relay {
 public:
  using Record = std::string;  // includes the five bytes of type, version and length
  // A function that returns the records that replace one record. It is called on the relay's thread.
  using Tamper = std::function<std::vector<Record>(const Record&)>;
  static constexpr std::size_t kHead = 5;

  // Relays to the TCP port `target`. Without `meddle` bytes pass unchanged.
  explicit Relay(std::uint16_t target, Tamper meddle = {}) : meddle_(std::move(meddle)) {
    listener_ = *listen_tls(*parse_ip("127.0.0.1"));
    address_ = *local_address_of(listener_.get());
    make_blocking(listener_.get());
    thread_ = std::jthread([this, target] { run(target); });
  }
  ~Relay() {
    cut();
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] const LaneAddress& address() const { return address_; }
  // Returns the bytes of both directions.
  std::string captured() {
    const std::lock_guard lock(mutex_);
    return captured_;
  }
  // Closes the connections to both ends.
  void cut() {
    const std::lock_guard lock(mutex_);
    cut_ = true;
    for (const UniqueFd* fd : {&listener_, &dialer_, &server_}) ::shutdown(fd->get(), SHUT_RDWR);
  }

  static UniqueFd dial(std::uint16_t port) {
    UniqueFd to(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address{
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (::connect(to.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) to.reset();
    return to;
  }
  static std::uint16_t port_of(const std::string& tls_address) {
    return static_cast<std::uint16_t>(std::stoi(tls_address.substr(tls_address.rfind(':') + 1)));
  }
  static void make_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK); }

 private:
  void run(std::uint16_t target) {
    UniqueFd dialer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    UniqueFd server = dial(target);
    {
      const std::lock_guard lock(mutex_);
      if (!dialer || !server || cut_) return;
      dialer_ = std::move(dialer);
      server_ = std::move(server);
    }
    const std::jthread back([this] { pass(server_.get(), dialer_.get()); });
    if (meddle_) {
      pass_records(dialer_.get(), server_.get());
    } else {
      pass(dialer_.get(), server_.get());
    }
  }
  void pass(int from, int to) {
    std::string bytes(std::size_t{1} << 16, '\0');
    for (ssize_t got; (got = ::recv(from, bytes.data(), bytes.size(), 0)) > 0;) {
      if (!forward(to, bytes.substr(0, static_cast<std::size_t>(got)))) break;
    }
    end(from, to);
  }
  void pass_records(int from, int to) {
    bool open = true;
    while (open) {
      Record record(kHead, '\0');
      if (!receive_all(from, record.data(), kHead)) break;
      const auto high = static_cast<unsigned char>(record[3]);
      const auto low = static_cast<unsigned char>(record[4]);
      record.resize(kHead + (high << 8 | low));
      if (!receive_all(from, record.data() + kHead, record.size() - kHead)) break;
      for (const Record& passed : meddle_(record)) open = open && forward(to, passed);
    }
    end(from, to);
  }
  static bool receive_all(int from, char* bytes, std::size_t count) {
    return ::recv(from, bytes, count, MSG_WAITALL) == static_cast<ssize_t>(count);
  }
  bool forward(int to, const std::string& bytes) {
    {
      const std::lock_guard lock(mutex_);
      captured_ += bytes;
    }
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t done = ::send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (done <= 0) return false;
      sent += static_cast<std::size_t>(done);
    }
    return true;
  }
  static void end(int from, int to) {
    ::shutdown(from, SHUT_RD);
    ::shutdown(to, SHUT_WR);
  }

  Tamper meddle_;
  UniqueFd listener_;
  LaneAddress address_;
  UniqueFd dialer_;
  UniqueFd server_;
  bool cut_ = false;
  std::mutex mutex_;
  std::string captured_;
  std::jthread thread_;
};

}  // namespace ckpt::transport
