// SPDX-License-Identifier: Apache-2.0
// Tests of TCP connections to programs outside of a process tree: they end in an image and at the source, and
// the restored sockets report that.
#include "agent/host_process/sockets/connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/host_process/criu_image/ended_connections.h"
#include "agent/host_process/sockets/outer_connections.h"
#include "libckpt/base/fd.h"
#include "tests/unit/agent/support/child.h"

namespace ckpt::agent::host {
namespace {

// ---- images

std::string varint_of(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value /= 128) out += static_cast<char>(value % 128 | 128);
  return out + static_cast<char>(value);
}
std::string number_field(std::uint64_t field, std::uint64_t value) {
  return varint_of(field << 3) + varint_of(value);
}
std::string bytes_field(std::uint64_t field, const std::string& value) {
  return varint_of(field << 3 | 2) + varint_of(value.size()) + value;
}

struct SocketEnd {
  std::vector<std::uint32_t> address;
  std::uint32_t port;
};
const std::uint32_t kLoopback = htonl(INADDR_LOOPBACK);
const std::vector<std::uint32_t> kMappedLoopback = {0, 0, htonl(0xffff), kLoopback};

// Returns a record of files.img. The numbers are the fields of CRIU's images/{fdinfo,sk-inet}.proto.
std::string socket_record(std::uint32_t inode, unsigned state, const SocketEnd& own, const SocketEnd& peer,
                          unsigned shutdown = 0) {
  std::string socket = number_field(1, inode) + number_field(2, inode) + number_field(3, AF_INET) +
                       number_field(4, SOCK_STREAM) + number_field(5, IPPROTO_TCP) + number_field(6, state) +
                       number_field(7, own.port) + number_field(8, peer.port) + number_field(9, 2) +
                       number_field(10, 0);
  for (const std::uint32_t word : own.address) socket += number_field(11, word);
  for (const std::uint32_t word : peer.address) socket += number_field(12, word);
  socket += bytes_field(13, "") + bytes_field(14, number_field(1, 4096) + number_field(10, 0));
  if (shutdown != 0) socket += number_field(19, shutdown);
  return number_field(1, 4) + number_field(2, inode) + bytes_field(4, socket);
}

std::string image_of_sockets(const std::vector<std::string>& records) {
  std::string image("\x19\x43\x56\x54\x38\x31\x30\x56", 8);
  for (const std::string& record : records) put_record(image, record);
  return image;
}

const SocketEnd kServerEnd{{kLoopback}, 8080};
const SocketEnd kElsewhere{{htonl(0x0a000002)}, 40000};
const SocketEnd kClientEnd{{kLoopback}, 50000};

ImageConnections ended_in(const std::vector<std::string>& records, std::string& changed) {
  ImageConnections found;
  const auto result = with_ended_connections(image_of_sockets(records), found);
  EXPECT_TRUE(result.has_value());
  changed = result.has_value() ? *result : "";
  return found;
}

TEST(EndedConnections, ConnectionsToOthersEndInTheImage) {
  std::string changed;
  const std::string listener = socket_record(1, TCP_LISTEN, kServerEnd, {{0}, 0});
  const auto found = ended_in({listener, socket_record(7, TCP_ESTABLISHED, kServerEnd, kElsewhere),
                               socket_record(8, TCP_CLOSE_WAIT, kServerEnd, kElsewhere),
                               socket_record(9, TCP_SYN_SENT, kClientEnd, kElsewhere)},
                              changed);
  EXPECT_EQ(found.inner, 0U);
  EXPECT_EQ(found.ended, (std::vector<std::uint32_t>{7, 8, 9}));
  const auto records = *records_of(changed, 8);
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[0], listener) << "byte for byte";
  ImageConnections again;
  EXPECT_EQ(*with_ended_connections(changed, again), changed) << "none is left";
  EXPECT_TRUE(again.ended.empty());
  for (std::size_t i = 1; i < records.size(); ++i) {
    EXPECT_NE(records[i].find(number_field(6, TCP_CLOSE) + number_field(7, 0) + number_field(8, 0)),
              std::string::npos);
    EXPECT_NE(records[i].find(number_field(19, 3)), std::string::npos) << "shut down";
    EXPECT_NE(records[i].find(number_field(10, kEndedMark)), std::string::npos);
  }
}

TEST(EndedConnections, SocketOfAConnectionThatHadEndedIsNotBound) {
  constexpr unsigned kRead = 1;
  std::string changed;
  const std::string bound = socket_record(8, TCP_CLOSE, kServerEnd, {{0}, 0});
  const auto found = ended_in({socket_record(7, TCP_CLOSE, kElsewhere, {{0}, 0}, kRead), bound}, changed);
  EXPECT_TRUE(found.ended.empty()) << "it has no queue, and the program may know of its end";
  const auto records = *records_of(changed, 8);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_NE(records[0].find(number_field(6, TCP_CLOSE) + number_field(7, 0) + number_field(8, 0)),
            std::string::npos);
  EXPECT_EQ(records[1], bound) << "byte for byte";
}

TEST(EndedConnections, ConnectionsWithinTheImageStay) {
  std::string changed;
  const std::vector<std::string> records = {
      socket_record(7, TCP_ESTABLISHED, kServerEnd, kClientEnd),
      socket_record(8, TCP_ESTABLISHED, kClientEnd, kServerEnd),
      socket_record(9, TCP_ESTABLISHED, {kMappedLoopback, 9090}, {kMappedLoopback, 50001}),
      socket_record(10, TCP_ESTABLISHED, {{kLoopback}, 50001}, {{kLoopback}, 9090})};
  const auto found = ended_in(records, changed);
  EXPECT_EQ(found.inner, 4U);
  EXPECT_TRUE(found.ended.empty());
  EXPECT_EQ(changed, image_of_sockets(records));
}

TEST(EndedConnections, ConnectionWithinTheImageThatIsClosingEnds) {
  std::string changed;
  const auto found = ended_in({socket_record(7, TCP_FIN_WAIT2, kServerEnd, kClientEnd),
                               socket_record(8, TCP_CLOSE_WAIT, kClientEnd, kServerEnd)},
                              changed);
  EXPECT_EQ(found.inner, 0U);
  EXPECT_EQ(found.ended.size(), 2U);
}

TEST(InnerConnections, EndsOfBothFamiliesBelongTogether) {
  const std::map<Inode, Connection> all = {{1, {"[::ffff:127.0.0.1]:80", "[::ffff:127.0.0.1]:5000", true}},
                                           {2, {"127.0.0.1:5000", "127.0.0.1:80", true}}};
  EXPECT_EQ(inner_connections(all, {{1, ""}, {2, ""}}).size(), 2U);
  EXPECT_TRUE(inner_connections(all, {{1, ""}}).empty()) << "the other end is not the tree's";
}

// ---- sockets

// A listener of the test, and a child that is connected to it by its descriptor 4.
class OuterConnections : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to put sockets into repair mode";
    listener_ = UniqueFd(::socket(family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    address_.sin6_family = static_cast<sa_family_t>(family());
    if (family() == AF_INET6) {
      address_.sin6_addr = in6addr_loopback;
    } else {
      reinterpret_cast<sockaddr_in*>(&address_)->sin_addr.s_addr = kLoopback;
    }
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), size_) != 0)
      GTEST_SKIP() << "no loopback address of this family";
    ASSERT_EQ(::listen(listener_.get(), 1), 0);
    ASSERT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size_), 0);
  }
  [[nodiscard]] int family() const { return GetParam(); }
  [[nodiscard]] UniqueFd connect() const {
    UniqueFd client(::socket(family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address_), size_), 0);
    return client;
  }
  [[nodiscard]] UniqueFd accept() const {
    return UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  UniqueFd listener_;
  sockaddr_in6 address_{};
  socklen_t size_ = sizeof(sockaddr_in6);
};

int error_of_read(int socket) {
  char byte = 0;
  return ::recv(socket, &byte, 1, 0) < 0 ? errno : 0;
}

TEST_P(OuterConnections, PeerOfAnEndedTreeIsReset) {
  UniqueFd client = connect();
  const UniqueFd peer = accept();
  const Child child([] {}, client.get());
  client.reset();
  const auto found = connections_of(child.pid());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->outer.size(), 1U);
  EXPECT_TRUE(found->inner.empty());
  ASSERT_TRUE(reset_outer(child.pid()).has_value());
  EXPECT_EQ(error_of_read(peer.get()), ECONNRESET);
}

TEST_P(OuterConnections, PacketsWaitUntilTheyAreAdmitted) {
  const UniqueFd client = connect();
  const UniqueFd peer = accept();
  const Child child([] {}, client.get());
  const auto found = connections_of(child.pid());
  ASSERT_TRUE(found.has_value());
  ASSERT_TRUE(hold_packets(child.pid(), found->outer).has_value());
  ASSERT_EQ(::send(peer.get(), "x", 1, 0), 1);
  pollfd readable = {client.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 300), 0);
  ASSERT_TRUE(ConnectionRepair().end(child.pid()).has_value());
  EXPECT_EQ(::poll(&readable, 1, 10'000), 1) << "the peer sends it again";
}

TEST_P(OuterConnections, FilterOfAFailedConnectionIsRemoved) {
  const UniqueFd client = connect();
  const UniqueFd peer = accept();
  const Child child([] {}, client.get());
  const auto repair = ConnectionRepair::before(child.pid());
  ASSERT_TRUE(repair.has_value());
  const auto found = connections_of(child.pid());
  ASSERT_TRUE(found.has_value());
  ASSERT_TRUE(hold_packets(child.pid(), found->outer).has_value());
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  ASSERT_EQ(::connect(client.get(), &none, sizeof none), 0) << "as after a time limit";
  EXPECT_EQ(connections_of(child.pid())->outer.size(), 0U);
  ASSERT_TRUE(repair->end(child.pid()).has_value());
  socklen_t instructions = 0;
  ASSERT_EQ(::getsockopt(client.get(), SOL_SOCKET, SO_GET_FILTER, nullptr, &instructions), 0);
  EXPECT_EQ(instructions, 0U);
}

TEST_P(OuterConnections, KeptSocketStaysInRepairMode) {
  const UniqueFd client = connect();
  const UniqueFd peer = accept();
  const Child child([] {}, client.get());
  const auto repair = ConnectionRepair::before(child.pid());
  ASSERT_TRUE(repair.has_value());
  const int on = 1;
  ASSERT_EQ(::setsockopt(client.get(), IPPROTO_TCP, TCP_REPAIR, &on, sizeof on), 0);
  const auto in_repair = [&client] {
    int value = -1;
    socklen_t size = sizeof value;
    EXPECT_EQ(::getsockopt(client.get(), IPPROTO_TCP, TCP_REPAIR, &value, &size), 0);
    return value;
  };
  ASSERT_TRUE(repair->end(child.pid(), connections_of(child.pid())->outer).has_value());
  EXPECT_EQ(in_repair(), 1);
  ASSERT_TRUE(repair->end(child.pid()).has_value());
  EXPECT_EQ(in_repair(), 0);
}

TEST_P(OuterConnections, EndedSocketReportsAReset) {
  const UniqueFd ended(::socket(family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd other(::socket(family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto mark = static_cast<int>(kEndedMark);
  ASSERT_EQ(::setsockopt(ended.get(), SOL_SOCKET, SO_MARK, &mark, sizeof mark), 0);
  (void)::shutdown(ended.get(), SHUT_RDWR);  // as CRIU restores it
  const Child child([] {}, ended.get());
  ASSERT_TRUE(report_resets(child.pid()).has_value());
  EXPECT_EQ(error_of_read(ended.get()), ECONNRESET);
  EXPECT_EQ(error_of_read(ended.get()), 0) << "then the end";
  EXPECT_EQ(::send(ended.get(), "x", 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
  int left = -1;
  socklen_t size = sizeof left;
  EXPECT_EQ(::getsockopt(ended.get(), SOL_SOCKET, SO_MARK, &left, &size), 0);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(::getsockopt(ended.get(), SOL_SOCKET, SO_REUSEADDR, &left, &size), 0);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(error_of_read(other.get()), ENOTCONN);
}

INSTANTIATE_TEST_SUITE_P(Families, OuterConnections, ::testing::Values(AF_INET, AF_INET6));

}  // namespace
}  // namespace ckpt::agent::host
