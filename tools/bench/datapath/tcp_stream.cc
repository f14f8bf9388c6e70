// SPDX-License-Identifier: Apache-2.0
// Plain TCP over loopback: writes and reads of 1 MiB from and into a ring of buffers.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <thread>
#include <vector>

#include "tools/bench/datapath/streams.h"
#include "tools/bench/measuring/child_roles.h"

namespace ckpt::bench {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  return {.sin_family = AF_INET,
          .sin_port = ::htons(port),
          .sin_addr = {::htonl(INADDR_LOOPBACK)},
          .sin_zero = {}};
}

Result<UniqueFd> tcp_socket() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return Error::from_errno("Making a TCP socket");
  return socket;
}

class TcpSource final : public ByteSource {
 public:
  TcpSource(UniqueFd socket, HostMemory ring) : socket_(std::move(socket)), ring_(std::move(ring)) {}
  Result<void> send(std::uint64_t messages) override {
    for (std::uint64_t i = 0; i < messages; ++i) {
      const std::size_t at = i * kTcpMessageBytes % kRingBytes;
      CKPT_TRYV(write_all(socket_.get(), ring_.bytes().subspan(at, kTcpMessageBytes)));
    }
    return ok();
  }

 private:
  UniqueFd socket_;
  HostMemory ring_;
};

// Reads `bytes` bytes from the socket into `ring`, again and again from its start.
Result<void> drain(int socket, std::span<std::byte> ring, std::uint64_t bytes) {
  for (std::uint64_t total = 0; total < bytes;) {
    const std::size_t at = total % ring.size();
    const ssize_t got = ::read(socket, ring.data() + at, std::min(kTcpMessageBytes, ring.size() - at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Reading a TCP stream");
    if (got == 0) return Error(ErrorCode::kUnavailable, "A TCP stream ended early");
    total += static_cast<std::uint64_t>(got);
  }
  return ok();
}

struct Sink {
  UniqueFd listener;
  UniqueFd socket;
  HostMemory ring;
};

Result<std::string> listen_on_loopback(Sink& sink) {
  CKPT_TRY(listener, tcp_socket());
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), generic, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), generic, &length) != 0)
    return Error::from_errno("Cannot listen on loopback");
  sink.listener = std::move(listener);
  return std::to_string(::ntohs(address.sin_port));
}

Result<void> serve_run(Link& link, std::uint64_t connections, std::uint64_t messages) {
  std::vector<Sink> sinks;
  nlohmann::json addresses = nlohmann::json::array();
  for (std::uint64_t i = 0; i < connections; ++i) {
    CKPT_TRY(ring, make_ring());
    Sink& sink = sinks.emplace_back(Sink{{}, {}, std::move(ring)});
    CKPT_TRY(address, listen_on_loopback(sink));
    addresses.push_back(address);
  }
  CKPT_TRYV(link.send({{"addresses", addresses}}));
  for (Sink& sink : sinks) {
    sink.socket.reset(::accept4(sink.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!sink.socket) return Error::from_errno("Accepting a TCP stream");
  }
  CKPT_TRYV(link.send({{"connected", connections}}));
  std::vector<Result<void>> results(connections, ok());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < connections; ++i)
    threads.emplace_back([&, i] {
      results[i] = drain(sinks[i].socket.get(), sinks[i].ring.bytes(), messages * kTcpMessageBytes);
    });
  for (std::thread& thread : threads) thread.join();
  for (Result<void>& result : results) {
    CKPT_TRYV(std::move(result));
  }
  return link.send({{"received", connections}});
}

}  // namespace

Result<std::unique_ptr<ByteSource>> connect_tcp(const std::string& address) {
  std::uint16_t port = 0;
  if (std::from_chars(address.data(), address.data() + address.size(), port).ec != std::errc())
    return Error(ErrorCode::kProtocol, "Not a port: " + address);
  CKPT_TRY(socket, tcp_socket());
  const sockaddr_in target = loopback(port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0)
    return Error::from_errno("Cannot connect to port " + address);
  CKPT_TRY(ring, make_ring());
  return std::make_unique<TcpSource>(std::move(socket), std::move(ring));
}

Result<void> run_tcp_sink(Link& link) {
  while (true) {
    CKPT_TRY(request, link.receive());
    CKPT_TRY(connections, number_of(request, "connections"));
    CKPT_TRY(messages, number_of(request, "messages"));
    CKPT_TRYV(serve_run(link, connections, messages));
  }
}

}  // namespace ckpt::bench
