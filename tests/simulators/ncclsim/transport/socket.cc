// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/transport/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ncclsim {
namespace {

constexpr int kBacklog = 1024;

sockaddr_in to_socket_address(const Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = endpoint.address;
  address.sin_port = endpoint.port;
  return address;
}

void send_at_once(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

ncclResult_t wait_for(int socket, short events, const Limits& limits) {
  for (;;) {
    pollfd polled[2] = {{socket, events, 0},
                        {limits.stop != nullptr ? limits.stop->descriptor() : -1, POLLIN, 0}};
    const int ready = ::poll(polled, 2, milliseconds_until(limits.deadline));
    NCCLSIM_CHECK(limits.stop == nullptr || !limits.stop->is_set(), ncclInternalError, "aborted");
    if (ready > 0 && polled[0].revents != 0) return ncclSuccess;
    NCCLSIM_CHECK(Clock::now() < limits.deadline, ncclSystemError, "a peer has not answered in time");
    NCCLSIM_CHECK(ready >= 0 || errno == EINTR, ncclSystemError, "poll: %s", std::strerror(errno));
  }
}

ncclResult_t moved_or_failed(ssize_t result, std::size_t* moved) {
  *moved = result > 0 ? static_cast<std::size_t>(result) : 0;
  if (result > 0) return ncclSuccess;
  NCCLSIM_CHECK(result < 0, ncclRemoteError, "the peer has closed its connection");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return ncclSuccess;
  return fail(ncclRemoteError, "the connection to a peer has failed: %s", std::strerror(errno));
}

}  // namespace

int milliseconds_until(Clock::time_point then) {
  if (then == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(then - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
}

ncclResult_t listen_at(Endpoint at, Descriptor* out, Endpoint* bound) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  at.port = 0;
  sockaddr_in address = to_socket_address(at);
  socklen_t bytes = sizeof address;
  const bool listens = socket.valid() &&
                       ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                       ::listen(socket.get(), kBacklog) == 0 &&
                       ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
  NCCLSIM_CHECK(listens, ncclSystemError, "%s cannot be listened on: %s", to_text(at).c_str(),
                std::strerror(errno));
  *bound = {address.sin_addr.s_addr, address.sin_port, 0};
  *out = std::move(socket);
  return ncclSuccess;
}

ncclResult_t begin_connect(const Endpoint& to, Descriptor* out) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  NCCLSIM_CHECK(socket.valid(), ncclSystemError, "no socket: %s", std::strerror(errno));
  send_at_once(socket.get());
  const sockaddr_in address = to_socket_address(to);
  const int result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  NCCLSIM_CHECK(result == 0 || errno == EINPROGRESS, ncclRemoteError, "%s cannot be reached: %s",
                to_text(to).c_str(), std::strerror(errno));
  *out = std::move(socket);
  return ncclSuccess;
}

ncclResult_t connect_to(const Endpoint& to, const Limits& limits, Descriptor* out) {
  Descriptor socket;
  NCCLSIM_TRY(begin_connect(to, &socket));
  NCCLSIM_TRY(wait_for(socket.get(), POLLOUT, limits));
  int error = 0;
  socklen_t bytes = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  NCCLSIM_CHECK(error == 0, ncclRemoteError, "%s cannot be reached: %s", to_text(to).c_str(),
                std::strerror(error));
  *out = std::move(socket);
  return ncclSuccess;
}

Descriptor accept_from(int listener) {
  Descriptor accepted(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (accepted.valid()) send_at_once(accepted.get());
  return accepted;
}

ncclResult_t send_some(int socket, const void* data, std::size_t bytes, std::size_t* moved) {
  return moved_or_failed(::send(socket, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT), moved);
}

ncclResult_t receive_some(int socket, void* data, std::size_t bytes, std::size_t* moved) {
  return moved_or_failed(::recv(socket, data, bytes, MSG_DONTWAIT), moved);
}

ncclResult_t send_all(int socket, const void* data, std::size_t bytes, const Limits& limits) {
  for (std::size_t done = 0, part = 0; done < bytes; done += part) {
    NCCLSIM_TRY(wait_for(socket, POLLOUT, limits));
    NCCLSIM_TRY(send_some(socket, static_cast<const char*>(data) + done, bytes - done, &part));
  }
  return ncclSuccess;
}

ncclResult_t receive_all(int socket, void* data, std::size_t bytes, const Limits& limits) {
  for (std::size_t done = 0, part = 0; done < bytes; done += part) {
    NCCLSIM_TRY(wait_for(socket, POLLIN, limits));
    NCCLSIM_TRY(receive_some(socket, static_cast<char*>(data) + done, bytes - done, &part));
  }
  return ncclSuccess;
}

}  // namespace ncclsim
