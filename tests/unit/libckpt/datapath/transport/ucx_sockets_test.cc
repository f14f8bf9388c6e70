// SPDX-License-Identifier: Apache-2.0
// Tests the effect of our settings on UCX by its sockets. UCX only warns about an unknown setting.
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "tests/unit/libckpt/datapath/transport/peer.h"

namespace ckpt::transport {
namespace {

constexpr SessionToken kToken = {std::byte{5}};

// Returns the send buffer sizes of this process's connected TCP sockets.
std::vector<int> send_buffers() {
  std::vector<int> sizes;
  DIR* folder = ::opendir("/proc/self/fd");
  for (const dirent* entry = ::readdir(folder); entry != nullptr; entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 || peer.sin_family != AF_INET)
      continue;
    int size = 0;
    socklen_t size_length = sizeof size;
    if (::getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &size_length) == 0) sizes.push_back(size);
  }
  ::closedir(folder);
  return sizes;
}

TEST(UcxSockets, SocketBuffersWithinAMachineFitTheCache) {
  auto transport = *make_ucx_transport({});
  Peer target;
  Peer source;
  auto listening = transport->listen(kToken, target);
  ASSERT_TRUE(listening.has_value());
  const std::string address = (*listening)->address();
  target.start(*std::move(listening));
  auto connecting = transport->connect(address, kToken, source);
  ASSERT_TRUE(connecting.has_value());
  source.start(*std::move(connecting));
  source.send({Bytes(16), Bytes(1 << 20)});
  ASSERT_TRUE(target.wait_received(1));
  // Linux doubles the requested size.
  const std::vector<int> sizes = send_buffers();
  ASSERT_FALSE(sizes.empty());
  for (const int size : sizes) EXPECT_EQ(size, 2 * (256 << 10));
  source.stop();
  target.stop();
}

// Returns the local ports of this process's listening TCP sockets.
std::set<int> listening_ports() {
  std::set<int> ports;
  DIR* folder = ::opendir("/proc/self/fd");
  for (const dirent* entry = ::readdir(folder); entry != nullptr; entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    int listens = 0;
    socklen_t length = sizeof listens;
    sockaddr_in own{};
    socklen_t own_length = sizeof own;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 && own.sin_family == AF_INET)
      ports.insert(ntohs(own.sin_port));
  }
  ::closedir(folder);
  return ports;
}

TEST(UcxSockets, SocketsListenWithinTheirPortRange) {
  // The ports are below the range that the kernel assigns, and each process has its own ports.
  const auto first = static_cast<std::uint16_t>(10'000 + ::getpid() % 1'000 * 16);
  const PortRange range{first, static_cast<std::uint16_t>(first + 15)};
  auto transport = *make_ucx_transport({.ports = range});
  Peer target;
  Peer source;
  Peer second;
  auto listening = transport->listen(kToken, target);
  ASSERT_TRUE(listening.has_value()) << listening.error().to_string();
  auto also = transport->listen(kToken, second);
  ASSERT_TRUE(also.has_value()) << also.error().to_string();
  const std::string address = (*listening)->address();
  EXPECT_NE(address, (*also)->address());
  target.start(*std::move(listening));
  source.start(*transport->connect(address, kToken, source));
  source.send({Bytes(16), Bytes(1 << 20)});
  ASSERT_TRUE(target.wait_received(1));
  const std::set<int> ports = listening_ports();
  EXPECT_GE(ports.size(), 2U);
  for (const int port : ports) EXPECT_TRUE(port >= range.first && port <= range.last) << port;
  source.stop();
  target.stop();
}

TEST(UcxRdma, RdmaIsRefusedOnADeviceWithoutRdma) {
  const auto transport = make_ucx_transport({.ip = "127.0.0.1", .rdma = true});
  ASSERT_FALSE(transport.has_value());
  EXPECT_EQ(transport.error().code(), ErrorCode::kNotSupported);
  EXPECT_NE(transport.error().to_string().find("network device lo"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::transport
