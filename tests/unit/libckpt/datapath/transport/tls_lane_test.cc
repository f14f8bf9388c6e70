// SPDX-License-Identifier: Apache-2.0
// Tests of TLS lanes with unauthenticated peers, and with a relay that reads and changes bytes.
// conformance_test.cc tests the requirements of every transport.
#include "libckpt/datapath/transport/tls_lane.h"

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "tests/unit/libckpt/datapath/transport/peer.h"
#include "tests/unit/libckpt/datapath/transport/relay.h"

namespace ckpt::transport {
namespace {

constexpr SessionToken kToken = {std::byte{1}, std::byte{2}, std::byte{3}};
constexpr SessionToken kWrongToken = {std::byte{1}, std::byte{2}, std::byte{4}};
constexpr Nanos kSecond = 1'000'000'000;
constexpr Nanos kHour = 3600 * kSecond;
constexpr int kMinuteMs = 60'000;

// Returns true once the other end has closed the connection; false after a minute. Received bytes are
// dropped.
bool wait_end(int fd, int timeout_ms = kMinuteMs) {
  while (true) {
    pollfd watched{fd, POLLIN, 0};
    if (::poll(&watched, 1, timeout_ms) != 1) return false;
    char bytes[4096];
    if (::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) return true;
  }
}

class TlsLaneTest : public ::testing::Test {
 protected:
  // Opens a listening lane with its own thread, and returns its name, which is its address.
  std::string listen(Peer& target, const TlsOptions& options = {}, const SessionToken& token = kToken) {
    auto transport = *make_tls_transport(options);
    auto lane = *transport->listen(token, target);
    std::string name = lane->address();
    target.start(std::move(lane));
    return name;
  }
  // Dials `at`, and expects the lane at this address to be `name`.
  void connect(Peer& source, const LaneAddress& at, const std::string& name, const TlsOptions& options = {},
               const SessionToken& token = kToken) {
    const LaneAddress local = *parse_ip(options.ip);
    source.start(*TlsLane::connect(context_, local, options, at, name, token, source));
  }
  void connect(Peer& source, const std::string& name, const SessionToken& token = kToken) {
    connect(source, *parse_tls_address(name), name, {}, token);
  }
  // Checks that the authorized peer reaches the lane, and that a message arrives.
  void expect_served(Peer& target, const std::string& name) {
    Peer source;
    connect(source, name);
    source.send({Bytes(10), Bytes(100'000, std::byte{7})});
    EXPECT_TRUE(target.wait_received(1));
    EXPECT_TRUE(source.wait_sent(1));
  }
  // Performs a handshake as an unauthenticated peer.
  std::unique_ptr<tls::PskStream> shake_hands(const std::string& name) {
    UniqueFd socket = Relay::dial(Relay::port_of(name));
    const int fd = socket.get();
    auto stream = *tls::PskStream::client(context_, std::move(socket), name, *lane_psk(kToken));
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
    while (true) {
      const auto ready = stream->handshake();
      if (!ready.has_value()) return nullptr;
      if (*ready) return stream;
      pollfd watched{fd, stream->events(), 0};
      if (::poll(&watched, 1, kMinuteMs) != 1) return nullptr;
    }
  }

  std::shared_ptr<const tls::PskContext> context_ = *tls::PskContext::create();
};

void write_bytes(int fd, std::string_view bytes) {
  (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Runs a client of TLS 1.2.
void speak_tls12(int fd) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, fd);
  EXPECT_NE(SSL_connect(ssl), 1);
  ERR_clear_error();
  SSL_free(ssl);
  SSL_CTX_free(context);
}

TEST_F(TlsLaneTest, UnknownConnectionsAreDroppedAndThePeerIsServed) {
  Peer target;
  const std::string name = listen(target, {.greeting_nanos = kHour});
  const std::function<void(int)> strangers[] = {
      [](int fd) { write_bytes(fd, "GET / HTTP/1.1\r\n\r\n"); },
      [](int fd) { write_bytes(fd, std::string(100'000, '\x5a')); },
      [](int fd) { write_bytes(fd, std::string("\x16\x03\x01\x10\x00", 5).append(4096, '\x02')); },
      // Sends a HELLO in clear text, as on a plain socket.
      [](int fd) {
        std::array<std::byte, kMaxHelloBytes> hello{};
        const std::size_t bytes = write_hello({kToken, {}}, hello);
        write_bytes(fd, {reinterpret_cast<const char*>(hello.data()), bytes});
      },
      &speak_tls12};
  for (const auto& speak : strangers) {
    const UniqueFd stranger = Relay::dial(Relay::port_of(name));
    speak(stranger.get());
    EXPECT_TRUE(wait_end(stranger.get()));
  }
  Peer wrong;
  connect(wrong, name, kWrongToken);
  EXPECT_TRUE(wrong.wait_closed());
  EXPECT_EQ(wrong.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kUnavailable);
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.opened + s.closed_times; }), 0);
  expect_served(target, name);
}

TEST_F(TlsLaneTest, ManySilentConnectionsDoNotBlockThePeer) {
  constexpr std::size_t kTooMany = 5;
  Peer target;
  const std::string name = listen(target, {.greeting_nanos = kHour});
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < TlsGate::kMaxUnauthenticatedPeers + kTooMany; ++i)
    silent.push_back(Relay::dial(Relay::port_of(name)));
  for (std::size_t i = 0; i < kTooMany; ++i) EXPECT_TRUE(wait_end(silent[i].get())) << i;
  for (std::size_t i = kTooMany; i < silent.size(); ++i) EXPECT_FALSE(wait_end(silent[i].get(), 0)) << i;
  expect_served(target, name);
  for (const UniqueFd& fd : silent) EXPECT_TRUE(wait_end(fd.get()));
}

TEST_F(TlsLaneTest, ConnectionWithTheKeyIsNotEvictedBySilentConnections) {
  Peer target;
  const std::string name = listen(target, {.greeting_nanos = kHour});
  auto peer = shake_hands(name);
  ASSERT_NE(peer, nullptr);
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < TlsGate::kMaxUnauthenticatedPeers; ++i)
    silent.push_back(Relay::dial(Relay::port_of(name)));
  EXPECT_TRUE(wait_end(silent[0].get())) << "the oldest of the others";
  std::array<std::byte, kMaxHelloBytes> hello{};
  const std::size_t bytes = write_hello({kToken, {}}, hello);
  EXPECT_EQ(*peer->write(std::span(hello).first(bytes)), bytes);
  EXPECT_TRUE(*peer->flush());
  EXPECT_TRUE(target.wait_open());
}

TEST_F(TlsLaneTest, HandshakeHasADeadline) {
  Peer target;
  const std::string name = listen(target, {.greeting_nanos = kSecond / 5});
  const UniqueFd silent = Relay::dial(Relay::port_of(name));
  EXPECT_TRUE(wait_end(silent.get())) << "nothing comes";
  const UniqueFd slow = Relay::dial(Relay::port_of(name));
  // Sends the head of a long handshake message, and then single bytes, for a minute at most.
  write_bytes(slow.get(), std::string_view("\x16\x03\x01\x30\x00\x01\x00\x2f\xfc\x03\x03", 11));
  bool ended = false;
  for (int i = 0; i < 6000 && !ended; ++i) {
    ended = wait_end(slow.get(), 10);
    write_bytes(slow.get(), "\x01");
  }
  EXPECT_TRUE(ended) << "a byte now and then";
  const auto without_hello = shake_hands(name);
  ASSERT_NE(without_hello, nullptr);
  EXPECT_TRUE(wait_end(without_hello->fd())) << "a handshake and no HELLO";
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.opened + s.closed_times; }), 0);
  expect_served(target, name);
}

TEST_F(TlsLaneTest, FirstFrameMustBeAHello) {
  Peer target;
  const std::string name = listen(target, {.greeting_nanos = kHour});
  Frame message;
  Frame long_header;
  long_header.header_bytes = kMaxHeaderBytes + 1;
  Frame long_hello;
  long_hello.kind = FrameKind::kHello;
  long_hello.payload_bytes = kMaxPayloadBytes;
  for (const Frame& frame : {message, long_header, long_hello}) {
    const auto stranger = shake_hands(name);
    ASSERT_NE(stranger, nullptr);
    EXPECT_TRUE(stranger->write(std::as_bytes(std::span(&frame, 1))).has_value());
    EXPECT_TRUE(*stranger->flush());
    EXPECT_TRUE(wait_end(stranger->fd()));
  }
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.opened + s.closed_times; }), 0);
  expect_served(target, name);
}

// A peer with the key violates the protocol. Its first message is valid.
TEST_F(TlsLaneTest, UnexpectedFrameEndsTheLane) {
  const auto changed = [](auto change) {
    Frame frame;
    frame.sequence = 1;
    change(frame);
    return frame;
  };
  const Frame bad[] = {
      changed([](Frame& f) { f.sequence = 2; }),
      changed([](Frame& f) { f.sequence = 0; }),
      changed([](Frame& f) { f.delivered = 1; }),
      changed([](Frame& f) { f.magic = 0; }),
      changed([](Frame& f) { f.header_bytes = kMaxHeaderBytes + 1; }),
      changed([](Frame& f) { f.payload_bytes = kMaxPayloadBytes + 1; }),
      changed([](Frame& f) { f.kind = FrameKind::kHello; }),
      changed([](Frame& f) { f.kind = FrameKind::kWelcome; }),
      changed([](Frame& f) { f.kind = FrameKind::kSameHost; }),
      changed([](Frame& f) { f.kind = static_cast<FrameKind>(7); }),
      changed([](Frame& f) {
        f.kind = FrameKind::kCredit;
        f.payload_bytes = 100;
      }),
  };
  for (std::size_t i = 0; i < std::size(bad); ++i) {
    SCOPED_TRACE(i);
    Peer target;
    const auto peer = shake_hands(listen(target));
    ASSERT_NE(peer, nullptr);
    std::array<std::byte, kMaxHelloBytes> hello{};
    const std::size_t bytes = write_hello({kToken, {}}, hello);
    const Frame good;
    EXPECT_TRUE(peer->write(std::span(hello).first(bytes)).has_value());
    EXPECT_TRUE(peer->write(std::as_bytes(std::span(&good, 1))).has_value());
    EXPECT_TRUE(peer->write(std::as_bytes(std::span(&bad[i], 1))).has_value());
    EXPECT_TRUE(*peer->flush());
    ASSERT_TRUE(target.wait_closed());
    EXPECT_EQ(target.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kProtocol);
    EXPECT_EQ(target.read([](const Peer::State& s) { return s.received.size(); }), 1U);
  }
}

TEST_F(TlsLaneTest, LaneOfTheSameSessionIsNotAcceptedAsAnotherLane) {
  Peer target, other, source;
  const std::string name = listen(target);
  const std::string other_name = listen(other);
  connect(source, *parse_tls_address(name), other_name);
  ASSERT_TRUE(source.wait_closed());
  EXPECT_EQ(source.read([](const Peer::State& s) { return s.opened; }), 0);
  EXPECT_EQ(source.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kUnavailable);
  expect_served(target, name);
  expect_served(other, other_name);
}

TEST_F(TlsLaneTest, WaitReturnsImmediatelyWhileAMessageIsPending) {
  Peer target, source;
  const std::string name = listen(target);
  connect(source, name);
  ASSERT_TRUE(source.wait_open());
  source.keep_sent_messages = false;
  source.run([](Lane& lane) {
    lane.wait(0);  // consumes the wake-up of this call
    EXPECT_TRUE(lane.send({}, {}, 0).has_value());
    lane.wait(kHour);
  });
  EXPECT_TRUE(target.wait_received(1));
}

TEST_F(TlsLaneTest, ClosedLaneNotifiesThePeer) {
  Peer target, source;
  const std::string name = listen(target);
  connect(source, name);
  ASSERT_TRUE(source.wait_open());
  source.run([](Lane& lane) { lane.close(); });
  ASSERT_TRUE(target.wait_closed());
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.closed->message(); }),
            "The peer has closed the lane");
}

constexpr std::string_view kCanary = "canary of the payload, 32 bytes.";

Bytes canaries(std::size_t bytes) {
  Bytes filled(bytes);
  for (std::size_t i = 0; i < bytes; ++i) filled[i] = static_cast<std::byte>(kCanary[i % kCanary.size()]);
  return filled;
}

TEST_F(TlsLaneTest, NetworkCaptureShowsNoPayload) {
  const Bytes payload = canaries(1 << 20);
  Peer target, source;
  const std::string name = listen(target);
  Relay relay(Relay::port_of(name));
  connect(source, relay.address(), name);
  source.send({canaries(64), payload});
  ASSERT_TRUE(target.wait_received(1));
  target.send({canaries(64), payload});
  ASSERT_TRUE(source.wait_received(1));
  EXPECT_GT(relay.captured().size(), 2 * payload.size());
  EXPECT_EQ(relay.captured().find(kCanary.substr(0, 8)), std::string::npos);

  // The same test is repeated over a plain socket.
  const UniqueFd listener = *listen_tls(*parse_ip("127.0.0.1"));
  Relay::make_blocking(listener.get());
  Relay plain(Relay::port_of(format_tls_address(*local_address_of(listener.get()))));
  UniqueFd dialer = Relay::dial(Relay::port_of(format_tls_address(plain.address())));
  const UniqueFd accepted(::accept(listener.get(), nullptr, nullptr));
  write_bytes(dialer.get(), {reinterpret_cast<const char*>(payload.data()), 4096});
  dialer.reset();
  EXPECT_TRUE(wait_end(accepted.get()));
  EXPECT_NE(plain.captured().find(kCanary.substr(0, 8)), std::string::npos);
}

bool is_large(const Relay::Record& record) {
  return record.size() > 16'000;
}

// Returns a relay function that replaces the n-th large record by the result of `change`.
Relay::Tamper at_large(int n, std::function<std::vector<Relay::Record>(const Relay::Record&)> change) {
  return [n, change = std::move(change), seen = 0](const Relay::Record& record) mutable {
    if (is_large(record) && ++seen == n) return change(record);
    return std::vector{record};
  };
}

class MeddlingTest : public TlsLaneTest {
 protected:
  // Checks that the message after the changed message does not arrive, and that both ends end with an error.
  void expect_noticed(Relay::Tamper meddle) {
    Peer target, source;
    const std::string name = listen(target);
    Relay relay(Relay::port_of(name), std::move(meddle));
    connect(source, relay.address(), name);
    const Bytes payload = canaries(100'000);  // seven records
    for (int i = 0; i < 4; ++i) source.send({Bytes(16), payload});
    ASSERT_TRUE(target.wait_closed());
    ASSERT_TRUE(source.wait_closed());
    EXPECT_EQ(target.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kProtocol);
    EXPECT_EQ(source.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kUnavailable);
    EXPECT_EQ(target.read([](const Peer::State& s) { return s.closed_times; }), 1);
    target.read([&payload](const Peer::State& s) {
      EXPECT_EQ(s.received.size(), 1U);
      for (const TestMessage& message : s.received) EXPECT_TRUE((message == TestMessage{Bytes(16), payload}));
    });
  }
};

constexpr int kOfSecondMessage = 9;  // each message has six large records

TEST_F(MeddlingTest, UnmodifiedRelayIsAccepted) {
  Peer target, source;
  const std::string name = listen(target);
  Relay relay(Relay::port_of(name), [](const Relay::Record& record) { return std::vector{record}; });
  connect(source, relay.address(), name);
  for (int i = 0; i < 4; ++i) source.send({Bytes(16), canaries(100'000)});
  EXPECT_TRUE(target.wait_received(4));
}

TEST_F(MeddlingTest, FlippedBitIsDetected) {
  for (const std::size_t at : {std::size_t{0}, Relay::kHead, Relay::kHead + 8000, Relay::kHead + 16'399}) {
    SCOPED_TRACE(at);
    expect_noticed(at_large(kOfSecondMessage, [at](Relay::Record record) {
      record.at(at) = static_cast<char>(record.at(at) ^ 4);
      return std::vector{record};
    }));
  }
}

TEST_F(MeddlingTest, ReplayedRecordIsDetected) {
  expect_noticed(at_large(kOfSecondMessage, [](const Relay::Record& record) {
    return std::vector{record, record};
  }));
}

TEST_F(MeddlingTest, MissingRecordIsDetected) {
  expect_noticed(
      at_large(kOfSecondMessage, [](const Relay::Record&) { return std::vector<Relay::Record>{}; }));
}

TEST_F(MeddlingTest, ReorderedRecordsAreDetected) {
  expect_noticed([seen = 0, kept = Relay::Record()](const Relay::Record& record) mutable {
    if (is_large(record)) ++seen;
    if (!is_large(record) || seen < kOfSecondMessage || seen > kOfSecondMessage + 1)
      return std::vector{record};
    if (seen == kOfSecondMessage + 1) return std::vector{record, kept};
    kept = record;
    return std::vector<Relay::Record>{};
  });
}

TEST_F(MeddlingTest, RecordOfAnotherLaneOfTheSessionIsDetected) {
  // The replayed record has equal bytes and an equal position in the stream, and both lanes use one secret.
  Peer other_target, other_source;
  const std::string other_name = listen(other_target);
  Relay::Record taken;
  Relay other(Relay::port_of(other_name), at_large(kOfSecondMessage, [&taken](const Relay::Record& record) {
                taken = record;
                return std::vector{record};
              }));
  connect(other_source, other.address(), other_name);
  for (int i = 0; i < 4; ++i) other_source.send({Bytes(16), canaries(100'000)});
  ASSERT_TRUE(other_target.wait_received(4));
  expect_noticed(at_large(kOfSecondMessage, [&taken](const Relay::Record&) { return std::vector{taken}; }));
}

TEST_F(MeddlingTest, DisconnectionWithoutACloseNotifyIsDetected) {
  // A closed connection that TLS did not announce is not a valid end of the stream.
  Peer target, source;
  const std::string name = listen(target);
  Relay relay(Relay::port_of(name));
  connect(source, relay.address(), name);
  source.send({Bytes(16), canaries(100'000)});
  ASSERT_TRUE(target.wait_received(1));
  relay.cut();
  ASSERT_TRUE(target.wait_closed());
  ASSERT_TRUE(source.wait_closed());
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kUnavailable);
}

TEST_F(TlsLaneTest, SessionKeysAreReplaced) {
  // A record that replaces a key has a characteristic length: five bytes, type and tag.
  constexpr std::size_t kUpdateBytes = Relay::kHead + 5 + 1 + 16;
  std::atomic<int> updates{0};
  Peer target, source;
  const TlsOptions options{.rekey_bytes = 200'000};
  const std::string name = listen(target, options);
  Relay relay(Relay::port_of(name), [&updates](const Relay::Record& record) {
    updates += record.size() == kUpdateBytes && record[0] == 23 ? 1 : 0;
    return std::vector{record};
  });
  connect(source, relay.address(), name, options);
  for (int i = 0; i < 20; ++i) {
    source.send({Bytes(16), canaries(100'000 + i)});
    target.send({Bytes(16), canaries(100'000 + i)});
  }
  for (Peer* peer : {&target, &source}) {
    ASSERT_TRUE(peer->wait_received(20));
    peer->read([](const Peer::State& s) {
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(s.received[i].payload == canaries(100'000 + i)) << i;
    });
  }
  EXPECT_GE(updates, 8);
  EXPECT_LE(updates, 10);
}

// Returns ports below the range that the kernel assigns; each process has its own ports.
PortRange own_ports(std::uint16_t count) {
  const auto first = static_cast<std::uint16_t>(10'000 + ::getpid() % 2'000 * 8);
  return {first, static_cast<std::uint16_t>(first + count - 1)};
}

TEST_F(TlsLaneTest, ListenerUsesItsPortRange) {
  const PortRange ports = own_ports(4);
  Peer unused;
  auto transport = *make_tls_transport({.ports = ports});
  std::set<std::uint16_t> taken;
  {
    std::vector<std::unique_ptr<Lane>> lanes;
    for (int i = 0; i < 4; ++i) {
      auto lane = transport->listen(kToken, unused);
      ASSERT_TRUE(lane.has_value()) << lane.error().to_string();
      taken.insert(Relay::port_of((*lane)->address()));
      lanes.push_back(*std::move(lane));
    }
    const auto fifth = transport->listen(kToken, unused);
    ASSERT_FALSE(fifth.has_value());
    EXPECT_NE(fifth.error().message().find("are in use on 127.0.0.1"), std::string::npos);
  }
  EXPECT_EQ(taken.size(), 4U);
  EXPECT_EQ(*taken.begin(), ports.first);
  EXPECT_EQ(*taken.rbegin(), ports.last);
  EXPECT_TRUE(transport->listen(kToken, unused).has_value()) << "a port that is left is taken again";
}

}  // namespace
}  // namespace ckpt::transport
