// SPDX-License-Identifier: Apache-2.0
// Tests the requirements of every transport on each transport.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <future>
#include <random>

#include "libckpt/datapath/transport/transport.h"
#include "tests/unit/libckpt/datapath/transport/peer.h"
#include "tests/unit/libckpt/datapath/transport/processes.h"

namespace ckpt::transport {
namespace {

constexpr SessionToken kToken = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{0xff}};
constexpr SessionToken kWrongToken = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{0xfe}};

// Fills megabytes byte by byte. This loop needs no check by a sanitizer.
[[gnu::no_sanitize("address", "thread", "undefined")]] void fill(std::byte* bytes, std::size_t count,
                                                                 unsigned seed) {
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed + (i >> 11));
}

TestMessage make_message(std::size_t header_bytes, std::size_t payload_bytes, unsigned seed) {
  TestMessage message{Bytes(header_bytes), Bytes(payload_bytes)};
  std::mt19937 random(seed);
  for (std::byte& b : message.header) b = static_cast<std::byte>(random());
  fill(message.payload.data(), payload_bytes, seed);
  return message;
}

class TransportTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()).starts_with("rdma") && rdma_address() == nullptr)
      GTEST_SKIP() << "GPUMIGRATE_TEST_RDMA names no address of an RDMA device (tests/vm)";
    transport_ = make();
  }
  static std::unique_ptr<Transport> make() {
    const std::string name = GetParam();
    if (name == "loopback") return make_loopback_transport();
    auto made = name.starts_with("tls")    ? make_tls_transport({.ip = name == "tls6" ? "::1" : "127.0.0.1"})
                : name.starts_with("rdma") ? make_ucx_transport({.ip = rdma_address(), .rdma = true})
                                           : make_ucx_transport({});
    EXPECT_TRUE(made.has_value()) << made.error().to_string();
    return *std::move(made);
  }
  // Returns whether the transport is UCX or TLS with lanes within a machine.
  static bool is_same_host() { return std::string(GetParam()).ends_with("near"); }
  static void offer_memory(Peer& source) {
    if (is_same_host()) source.same_host_room.resize(64);
  }
  // Starts both peers, and passes the address as the control plane would.
  void connect(Peer& target, Peer& source) {
    const std::string address = listen(target);
    offer_memory(source);
    auto lane = transport_->connect(address, kToken, source);
    ASSERT_TRUE(lane.has_value()) << lane.error().to_string();
    source.start(*std::move(lane));
  }
  std::string listen(Peer& target) {
    auto lane = transport_->listen(kToken, target);
    EXPECT_TRUE(lane.has_value());
    std::string address = (*lane)->address();
    target.start(*std::move(lane));
    return address;
  }
  void connect_and_open(Peer& target, Peer& source) {
    connect(target, source);
    ASSERT_TRUE(source.wait_open());
    ASSERT_TRUE(target.wait_open());
  }

  std::unique_ptr<Transport> transport_;
};

TEST_P(TransportTest, LaneCarriesAMessageInEachDirection) {
  Peer target, source;
  connect(target, source);
  const TestMessage there = make_message(100, 5000, 1);
  const TestMessage back = make_message(16, 0, 2);
  source.send(there);
  ASSERT_TRUE(target.wait_received(1));
  target.send(back);
  ASSERT_TRUE(source.wait_received(1));
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.received.front(); }), there);
  EXPECT_EQ(source.read([](const Peer::State& s) { return s.received.front(); }), back);
  EXPECT_EQ(source.read([](const Peer::State& s) { return s.opened; }), 1);
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.opened; }), 1);
}

TEST_P(TransportTest, PeerReadsPayloadsFromTheOfferedMemoryOfTheSource) {
  Peer target, source;
  connect_and_open(target, source);
  std::promise<PayloadAccess> of_source, of_target;
  source.run([&](Lane& lane) { of_source.set_value(lane.payload_access()); });
  target.run([&](Lane& lane) { of_target.set_value(lane.payload_access()); });
  EXPECT_EQ(of_source.get_future().get(), is_same_host() ? PayloadAccess::kReads : PayloadAccess::kSent);
  EXPECT_EQ(of_target.get_future().get(), PayloadAccess::kSent);
}

// A memory file and its mapping in this process.
struct MappedFile {
  explicit MappedFile(std::size_t bytes) : file(*make_memory_file("transport-test", bytes)) {
    this->bytes = map(file.get(), bytes);
  }
  static std::span<std::byte> map(int file, std::size_t bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return {static_cast<std::byte*>(at), bytes};
  }
  ~MappedFile() { ::munmap(bytes.data(), bytes.size()); }
  UniqueFd file;
  std::span<std::byte> bytes;
};

TEST_P(TransportTest, PayloadIsDeliveredIntoTheOfferedFile) {
  const std::string transport = GetParam();
  const bool offered = is_same_host() || transport == "loopback";  // other transports are tested as between
                                                                   // machines
  constexpr std::size_t kLargest = kMaxPayloadBytes;
  for (const bool taken : {true, false}) {
    MappedFile file(2 * kLargest);
    fill(file.bytes.data(), file.bytes.size(), 5);
    Peer target, source;
    source.keep_sent_messages = false;
    source.same_host_file = file.file.get();
    source.same_host_mapped = file.bytes;
    UniqueFd theirs;
    std::span<std::byte> mapped;
    target.on_near_file = [&](UniqueFd came, std::size_t bytes) {
      theirs = std::move(came);
      mapped = MappedFile::map(theirs.get(), bytes);
      return std::span<const std::byte>(mapped).first(taken ? bytes : 0);
    };
    connect_and_open(target, source);
    ASSERT_EQ(mapped.size(), offered ? file.bytes.size() : 0);
    const Bytes elsewhere(70'000, std::byte{3});
    const std::vector<std::span<const std::byte>> payloads = {
        file.bytes.first(kLargest),
        std::span<const std::byte>(file.bytes).last(kLargest),
        elsewhere,
        file.bytes.subspan(12'345, 100'001),
        {},
        file.bytes.first(1000)};
    source.run([&](Lane& lane) {
      for (std::size_t i = 0; i < payloads.size(); ++i)
        EXPECT_TRUE(lane.send(Bytes(3), payloads[i], i).has_value());
    });
    ASSERT_TRUE(target.wait_received(payloads.size()));
    ASSERT_TRUE(source.wait_sent(payloads.size()));
    const auto state = target.read([](const Peer::State& s) { return s; });
    for (std::size_t i = 0; i < payloads.size(); ++i)
      EXPECT_TRUE(std::equal(payloads[i].begin(), payloads[i].end(), state.received[i].payload.begin(),
                             state.received[i].payload.end()))
          << i;
    // A payload of a thousand bytes travels in the message, except over loopback.
    const std::size_t there = transport == "loopback" ? 4 : 3;
    EXPECT_EQ(state.in_place, taken && offered ? there : 0);
    std::promise<PayloadAccess> payload_access;
    source.run([&](Lane& lane) { payload_access.set_value(lane.payload_access()); });
    const PayloadAccess expected = taken ? PayloadAccess::kMaps : PayloadAccess::kReads;
    EXPECT_EQ(payload_access.get_future().get(), is_same_host() ? expected : PayloadAccess::kSent);
    target.stop();
    if (!mapped.empty()) ::munmap(mapped.data(), mapped.size());
  }
}

TEST_P(TransportTest, TheTargetMaySendFirst) {
  for (unsigned round = 0; round < 20; ++round) {
    Peer target, source;
    auto lane = *transport_->listen(kToken, target);
    const std::string address = lane->address();
    target.start(std::move(lane));
    for (unsigned i = 0; i < 5; ++i) target.send(make_message(8, i * 20'000, i));
    offer_memory(source);
    source.start(*transport_->connect(address, kToken, source));
    ASSERT_TRUE(source.wait_received(5));
    EXPECT_EQ(source.read([](const Peer::State& s) { return s.closed_times; }), 0);
  }
}

std::vector<TestMessage> messages_of_all_sizes() {
  std::vector<TestMessage> messages;
  unsigned seed = 0;
  for (const std::size_t payload :
       {1UL, 0UL, 8UL << 20, 2UL, 4095UL, 32767UL, 32768UL, 1UL << 20, 3UL, 32769UL, 65537UL, (1UL << 20) - 1,
        (1UL << 20) + 1, 0UL, 5'000'011UL, (8UL << 20) - 1, 17UL}) {
    ++seed;
    messages.push_back(make_message((seed * 97) % (kMaxHeaderBytes + 1), payload, seed));
  }
  messages.push_back(make_message(kMaxHeaderBytes, 100, ++seed));
  messages.push_back(make_message(0, 100, ++seed));
  messages.push_back(make_message(0, 0, ++seed));
  return messages;
}

TEST_P(TransportTest, MessagesKeepTheirOrderAndContentInBothDirections) {
  Peer target, source;
  connect(target, source);
  const std::vector<TestMessage> messages = messages_of_all_sizes();
  for (int round = 0; round < 3; ++round) {
    for (const TestMessage& message : messages) {
      source.send(message);
      target.send(message);
    }
  }
  const std::size_t count = 3 * messages.size();
  for (Peer* peer : {&target, &source}) {
    ASSERT_TRUE(peer->wait_received(count));
    ASSERT_TRUE(peer->wait_sent(count));
    peer->read([&](const Peer::State& s) {
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(s.received[i] == messages[i % messages.size()]) << "message " << i;
        EXPECT_EQ(s.sent[i], i);
      }
    });
  }
}

TEST_P(TransportTest, SmallMessagesAfterALargeMessageStayInOrder) {
  Peer target, source;
  source.window = kMaxInFlight;
  connect(target, source);
  constexpr std::size_t kCount = 1000;
  for (std::size_t i = 0; i < kCount; ++i)
    source.send(make_message(8, i % 50 == 0 ? 2 << 20 : i % 3, unsigned(i)));
  ASSERT_TRUE(target.wait_received(kCount));
  target.read([](const Peer::State& s) {
    for (std::size_t i = 0; i < kCount; ++i)
      EXPECT_TRUE(s.received[i] == make_message(8, i % 50 == 0 ? 2 << 20 : i % 3, unsigned(i))) << i;
  });
}

TEST_P(TransportTest, LanesDoNotMixMessages) {
  constexpr std::size_t kLanes = 3;
  std::array<Peer, kLanes> targets, sources;
  for (std::size_t i = 0; i < kLanes; ++i) connect(targets[i], sources[i]);
  for (unsigned n = 0; n < 20; ++n) {
    for (std::size_t i = 0; i < kLanes; ++i)
      sources[i].send(make_message(4, 100'000, unsigned(n * kLanes + i)));
  }
  for (std::size_t i = 0; i < kLanes; ++i) {
    ASSERT_TRUE(targets[i].wait_received(20));
    targets[i].read([&](const Peer::State& s) {
      for (unsigned n = 0; n < 20; ++n)
        EXPECT_TRUE(s.received[n] == make_message(4, 100'000, unsigned(n * kLanes + i)));
    });
  }
}

TEST_P(TransportTest, MessagesOverTheLimitsAreRefused) {
  Peer target, source;
  const std::string address = listen(target);
  offer_memory(source);
  auto lane = transport_->connect(address, kToken, source);
  ASSERT_TRUE(lane.has_value());
  const Bytes header(kMaxHeaderBytes + 1), payload(kMaxPayloadBytes + 1);
  const auto early = (*lane)->send({}, {}, 0);
  ASSERT_FALSE(early.has_value()) << "sent before it was open";
  EXPECT_EQ(early.error().code(), ErrorCode::kRefused);
  source.start(*std::move(lane));
  ASSERT_TRUE(source.wait_open());

  std::vector<Result<void>> results;
  source.run([&](Lane& l) {
    results.push_back(l.send(header, {}, 0));
    results.push_back(l.send({}, payload, 0));
  });
  source.run([&](Lane& l) {
    l.close();
    results.push_back(l.send({}, {}, 0));
  });
  ASSERT_TRUE(source.wait_closed());
  source.stop();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(results[1].error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(results[2].error().code(), ErrorCode::kAborted) << "sent on a closed lane";
}

TEST_P(TransportTest, TheSendWindowIsBounded) {
  // A handler of a lane that the test drives itself. The lane reports no message as sent before progress() is
  // called.
  class Quiet final : public LaneHandler {
   public:
    std::span<std::byte> on_payload_begin(std::span<const std::byte>, std::size_t) override { return {}; }
    void on_message(std::span<const std::byte>, std::span<const std::byte>) override {}
    void on_open() override { open = true; }
    void on_sent(std::uint64_t token) override { EXPECT_EQ(token, sent++); }
    void on_closed(const Error& error) override { ADD_FAILURE() << error.to_string(); }
    std::uint64_t sent = 0;
    bool open = false;
  } source;
  Peer target;
  const std::string address = listen(target);
  auto lane = *transport_->connect(address, kToken, source);
  while (!source.open) {
    if (!lane->progress()) lane->wait(1'000'000'000);
  }
  for (std::size_t i = 0; i < kMaxInFlight; ++i) ASSERT_TRUE(lane->send({}, {}, i).has_value()) << i;
  const auto beyond = lane->send({}, {}, 99);
  ASSERT_FALSE(beyond.has_value());
  EXPECT_EQ(beyond.error().code(), ErrorCode::kRefused);
  while (source.sent < kMaxInFlight) {
    if (!lane->progress()) lane->wait(1'000'000'000);
  }
  EXPECT_TRUE(lane->send({}, {}, kMaxInFlight).has_value());
  ASSERT_TRUE(target.wait_received(kMaxInFlight));
}

TEST_P(TransportTest, ARefusedPayloadClosesBothEnds) {
  for (const std::size_t bytes : {10UL, 1UL << 20}) {
    Peer target, source;
    target.refuse_payloads = true;
    connect(target, source);
    source.send(make_message(4, 0, 1));
    source.send(make_message(4, bytes, 2));
    source.send(make_message(4, bytes, 3));
    ASSERT_TRUE(target.wait_closed());
    ASSERT_TRUE(source.wait_closed());
    EXPECT_EQ(target.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kProtocol);
    EXPECT_EQ(source.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kUnavailable);
    EXPECT_LE(target.read([](const Peer::State& s) { return s.received.size(); }), 1u);
  }
}

TEST_P(TransportTest, WrongTokenIsDroppedAndALaterRightTokenIsAccepted) {
  Peer target;
  const std::string address = listen(target);
  for (int i = 0; i < 6; ++i) {
    Peer stranger;
    stranger.start(*transport_->connect(address, kWrongToken, stranger));
    ASSERT_TRUE(stranger.wait_closed());
    EXPECT_EQ(stranger.read([](const Peer::State& s) { return s.opened; }), 0);
    EXPECT_EQ(stranger.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kUnavailable);
  }
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.opened + s.closed_times; }), 0);
  Peer source;
  offer_memory(source);
  source.start(*transport_->connect(address, kToken, source));
  ASSERT_TRUE(source.wait_open());
  ASSERT_TRUE(target.wait_open());
  source.send(make_message(10, 100'000, 5));
  ASSERT_TRUE(target.wait_received(1));

  Peer late;  // a lane accepts only one connection, even if another peer has the token
  late.start(*transport_->connect(address, kToken, late));
  ASSERT_TRUE(late.wait_closed());
  EXPECT_EQ(late.read([](const Peer::State& s) { return s.opened; }), 0);
  source.send(make_message(10, 100'000, 6));
  ASSERT_TRUE(target.wait_received(2));
}

TEST_P(TransportTest, ConnectWithoutAListenerFails) {
  std::string address;
  {
    Peer target;
    address = listen(target);
  }
  Peer source;
  offer_memory(source);
  source.start(*transport_->connect(address, kToken, source));
  ASSERT_TRUE(source.wait_closed());
  EXPECT_EQ(source.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kUnavailable);
}

TEST_P(TransportTest, InvalidAddressesAreRefused) {
  Peer source;
  for (const char* bad : {"",
                          "ucx",
                          "ucx:",
                          "ucx:1.2.3.4",
                          "ucx:1.2.3.4:",
                          "ucx:1.2.3.4:99999",
                          "ucx:1.2.3.4:0",
                          "ucx:1.2.3.4:1x",
                          "ucx:1.2.3:5",
                          "ucx:localhost:5",
                          "ucx:::1:5",
                          "ucx:[::1]",
                          "ucx:[::1]:0",
                          "ucx:[0:0::1]:5",
                          "tcp:1.2.3.4:5",
                          "loopbac:1",
                          "tls:",
                          "tls:1.2.3.4",
                          "tls:1.2.3.4:0",
                          "tls:1.2.3.4:05",
                          "tls:1.2.3.4:65536",
                          "tls:1.2.3.4:5 ",
                          "tls:[1.2.3.4]:5",
                          "tls:::1:5",
                          "tls:[::1]",
                          "tls:[::1]:0",
                          "tls:[::0001]:5",
                          "tls:[FD77::1]:5",
                          "tls:[fe80::1%lo]:5",
                          "tls:[::ffff:1.2.3.4]:5",
                          "tls:0.0.0.0:5",
                          "tls:[::]:5",
                          "tls:224.0.0.1:5",
                          "tls:[ff02::1]:5",
                          "tls:localhost:5",
                          "TLS:1.2.3.4:5"}) {
    const auto lane = transport_->connect(bad, kToken, source);
    ASSERT_FALSE(lane.has_value()) << bad;
    EXPECT_EQ(lane.error().code(), ErrorCode::kInvalidArgument) << bad;
  }
}

TEST_P(TransportTest, ClosingTwiceEndsBothSidesOnce) {
  Peer target, source;
  connect_and_open(target, source);
  source.run([](Lane& lane) {
    lane.close();
    lane.close();
  });
  ASSERT_TRUE(source.wait_closed());
  ASSERT_TRUE(target.wait_closed());
  target.run([](Lane& lane) { lane.close(); });
  source.stop();
  target.stop();
  EXPECT_EQ(source.read([](const Peer::State& s) { return s.closed_times; }), 1);
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.closed_times; }), 1);
  EXPECT_EQ(source.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kAborted);
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.closed->code(); }), ErrorCode::kUnavailable);
}

TEST_P(TransportTest, ClosingUnderLoadAccessesNoFreedMemory) {
  // The peers free all payloads right after on_closed. Under a sanitizer this test detects late writes and
  // reads.
  for (int round = 0; round < 2; ++round) {
    Peer target, source;
    connect(target, source);
    for (unsigned i = 0; i < 12; ++i) source.send(make_message(4, 3 << 20, i));
    ASSERT_TRUE(target.wait_received(2));
    Peer& closing = round % 2 == 0 ? target : source;
    closing.run([](Lane& lane) { lane.close(); });
    ASSERT_TRUE(target.wait_closed());
    ASSERT_TRUE(source.wait_closed());
  }
}

TEST_P(TransportTest, LaneCanBeClosedFromACallback) {
  Peer target, source;
  target.on_each_message = [](Peer& peer) { peer.lane().close(); };
  connect(target, source);
  for (unsigned i = 0; i < 3; ++i) source.send(make_message(4, 10, i));
  ASSERT_TRUE(target.wait_closed());
  ASSERT_TRUE(source.wait_closed());
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.received.size(); }), 1u);
  EXPECT_EQ(target.read([](const Peer::State& s) { return s.closed_times; }), 1);
}

TEST_P(TransportTest, AListeningLaneCanBeClosedOrDestroyed) {
  Peer closed;
  listen(closed);
  closed.run([](Lane& lane) { lane.close(); });
  ASSERT_TRUE(closed.wait_closed());
  Peer destroyed;
  listen(destroyed);
  destroyed.stop();
  EXPECT_EQ(destroyed.read([](const Peer::State& s) { return s.closed_times; }), 0);
}

TEST_P(TransportTest, MessagesCanBeSentFromCallbacks) {
  // Acknowledgments are sent from on_message, as the receiver of a migration does.
  Peer target, source;
  target.on_each_message = [n = std::uint64_t{0}](Peer& peer) mutable {
    const std::uint64_t number = n++;
    (void)peer.lane().send(std::as_bytes(std::span(&number, 1)), {}, number);
  };
  target.keep_sent_messages = false;
  connect(target, source);
  for (unsigned i = 0; i < 100; ++i) source.send(make_message(4, 70'000, i));
  ASSERT_TRUE(source.wait_received(100));
  source.read([](const Peer::State& s) {
    for (std::uint64_t i = 0; i < 100; ++i) {
      std::uint64_t number = 0;
      ASSERT_EQ(s.received[i].header.size(), sizeof number);
      std::memcpy(&number, s.received[i].header.data(), sizeof number);
      EXPECT_EQ(number, i);
    }
  });
}

TEST_P(TransportTest, WakeEndsAWait) {
  // Without this wake-up the test would wait for an hour.
  Peer target, source;
  connect_and_open(target, source);
  for (int i = 0; i < 100; ++i) {
    std::mutex mutex;
    std::condition_variable done;
    bool ran = false;
    source.run([&](Lane&) {
      const std::lock_guard lock(mutex);
      ran = true;
      done.notify_all();
    });
    std::unique_lock lock(mutex);
    ASSERT_TRUE(done.wait_for(lock, std::chrono::minutes(1), [&] { return ran; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportTest,
                         ::testing::Values("loopback", "ucx", "near", "tls", "tls6", "tls_near", "rdma",
                                           "rdma_near"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ckpt::transport
