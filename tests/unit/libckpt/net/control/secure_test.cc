// SPDX-License-Identifier: Apache-2.0
// Tests control connections over TLS, on one event loop over real sockets. The deadlines come from the
// settings; no test waits for a deadline that must not expire.
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

#include "libckpt/net/control/address.h"
#include "libckpt/net/control/dialer.h"
#include "libckpt/net/control/listener.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/control_messages.h"
#include "tests/unit/support/certificates.h"

namespace ckpt::control {
namespace {

constexpr const char* kTcp = "127.0.0.1:0";
constexpr const char* kToken = "the-token-of-agents";

class SecureTest : public ::testing::Test {
 protected:
  // A connection that performs only the steps of its test.
  struct Raw {
    explicit Raw(asio::io_context& io) : socket(io) {}
    asio::generic::stream_protocol::socket socket;
    std::string heard;
    bool closed = false;
  };
  ~SecureTest() override {
    if (dialer_) dialer_->stop();
    if (listener_) listener_->close();
    io_.restart();
    io_.poll();
  }

  void listen(std::shared_ptr<tls::Identity> identity, ConnectionSettings settings = {}) {
    Listener::Settings s;
    s.address = kTcp;
    s.token = kToken;
    s.connection = settings;
    s.tls = {std::move(identity), [](const tls::Peer& peer) -> Result<void> {
               if (peer.kind == tls::Peer::Kind::kNode) return ok();
               return Error(ErrorCode::kRefused, "no node");
             }};
    s.check_name = [](const tls::Peer& peer, const std::string& name) -> Result<void> {
      if (peer == tls::Peer::node(name)) return ok();
      return Error(ErrorCode::kRefused, "not that node");
    };
    listener_ =
        Listener::create(io_.get_executor(), s, [this](std::shared_ptr<Connection> c, wire::Hello hello) {
          names_.push_back(hello.name);
          accepted_ = c;
          accepted_->start({[](const wire::FrameHeader&, std::span<const std::byte>) { return ok(); },
                            [](const Error&) {}});
        }).value();
  }
  void dial(std::shared_ptr<tls::Identity> identity, const std::string& name = "a") {
    Dialer::Settings s;
    s.name = name;
    s.label = "the coordinator";
    s.address = [this]() -> Result<std::string> { return ++attempts_, address(); };
    s.token = []() -> Result<std::string> { return std::string(kToken); };
    s.tls = {std::move(identity), only(tls::Peer::coordinator())};
    Dialer::Handlers handlers;
    handlers.on_connected = [this](Connection&) { ++connected_; };
    handlers.on_frame = [](const wire::FrameHeader&, std::span<const std::byte>) { return ok(); };
    handlers.on_lost = [this](const Error&) { ++lost_; };
    dialer_ = Dialer::create(io_.get_executor(), std::move(s), std::move(handlers));
    dialer_->start();
  }
  [[nodiscard]] std::string address() const {
    return plain_address_.empty() ? listener_->address() : plain_address_;
  }

  // Connects, sends `text` (byte by byte if `slow`), and reads until the connection is closed.
  std::shared_ptr<Raw> connect(std::string text, bool slow = false) {
    auto raw = std::make_shared<Raw>(io_);
    spawn(io_.get_executor(), "raw", talk(raw, address(), std::move(text), slow));
    spawn(io_.get_executor(), "raw", hear(raw));
    return raw;
  }
  static Task<> talk(std::shared_ptr<Raw> raw, std::string address, std::string text, bool slow) {
    co_await raw->socket.async_connect(parse_address(address).value().endpoint, asio::use_awaitable);
    if (!slow) co_await asio::async_write(raw->socket, asio::buffer(text), kTuple);
    asio::steady_timer pause(raw->socket.get_executor());
    for (std::size_t at = 0; slow && !raw->closed; at = (at + 1) % text.size()) {
      co_await asio::async_write(raw->socket, asio::buffer(&text[at], 1), kTuple);
      pause.expires_after(std::chrono::milliseconds(5));
      co_await pause.async_wait(kTuple);
    }
  }
  static Task<> hear(std::shared_ptr<Raw> raw) {
    asio::steady_timer pause(raw->socket.get_executor());
    std::array<char, 4096> buffer{};
    while (true) {
      const auto [code, count] = co_await raw->socket.async_read_some(asio::buffer(buffer), kTuple);
      raw->heard.append(buffer.data(), count);
      if (!code) continue;
      if (code != asio::error::not_connected && code != asio::error::bad_descriptor) break;
      pause.expires_after(std::chrono::milliseconds(1));
      co_await pause.async_wait(kTuple);
    }
    raw->closed = true;
  }
  // Simulates a program that took the coordinator's port and stores all received bytes.
  void take_port() {
    taken_.emplace(io_, asio::ip::tcp::endpoint(asio::ip::address_v4::any(), 0));
    plain_address_ = "0.0.0.0:" + std::to_string(taken_->local_endpoint().port());
    taken_->async_accept([this](boost::system::error_code code, asio::ip::tcp::socket socket) {
      ASSERT_FALSE(code);
      taker_ = std::make_shared<Raw>(io_);
      taker_->socket = std::move(socket);
      spawn(io_.get_executor(), "taker", hear(taker_));
    });
  }
  template <class Condition>
  void run_until(Condition condition) {
    while (!condition()) ASSERT_NE(io_.run_one_for(std::chrono::seconds(30)), 0U);
  }

  asio::io_context io_{1};
  tls::Certificates certificates_;
  std::shared_ptr<tls::Identity> coordinator_ =
      certificates_.identity("coordinator", tls::Peer::coordinator());
  std::shared_ptr<tls::Identity> node_ = certificates_.identity("a", tls::Peer::node("a"));
  std::shared_ptr<Listener> listener_;
  std::shared_ptr<Dialer> dialer_;
  std::shared_ptr<Connection> accepted_;
  std::vector<std::string> names_;
  std::optional<asio::ip::tcp::acceptor> taken_;
  std::shared_ptr<Raw> taker_;
  std::string plain_address_;
  unsigned attempts_ = 0;
  unsigned connected_ = 0;
  unsigned lost_ = 0;
};

TEST_F(SecureTest, BothSidesAreAuthenticated) {
  listen(coordinator_);
  dial(node_);
  run_until([this] { return connected_ == 1 && accepted_; });
  EXPECT_EQ(accepted_->certified(), tls::Peer::node("a"));
  EXPECT_EQ(names_, std::vector<std::string>{"a"});
}

TEST_F(SecureTest, RefusedConnectionsDoNotHideANodeThatUsesAnotherName) {
  std::ostringstream lines;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines)));
  listen(coordinator_);
  const auto stranger = connect("GET / HTTP/1.1\r\n\r\n");
  run_until([&] { return stranger->closed; });
  dial(node_, "b");
  run_until([this] { return attempts_ > 2; });
  spdlog::set_default_logger(before);
  EXPECT_NE(lines.str().find("TLS handshake failed"), std::string::npos) << lines.str();
  EXPECT_NE(lines.str().find("not that node"), std::string::npos) << lines.str();
}

TEST_F(SecureTest, NodeNameMustMatchTheCertificate) {
  listen(coordinator_);
  dial(node_, "b");
  run_until([this] { return attempts_ > 2; });
  EXPECT_TRUE(names_.empty());
  EXPECT_EQ(connected_, 0U);
}

TEST_F(SecureTest, AClientCertificateIsRefusedForANode) {
  listen(coordinator_);
  dial(certificates_.identity("admin", tls::Peer::client("admin")));
  run_until([this] { return attempts_ > 2; });
  EXPECT_TRUE(names_.empty());
}

TEST_F(SecureTest, ACertificateOfAnotherAuthorityIsRefused) {
  tls::Certificates others;
  listen(coordinator_);
  dial(others.identity("a", tls::Peer::node("a")));
  run_until([this] { return attempts_ > 2; });
  EXPECT_TRUE(names_.empty());
}

// Another node listens on the coordinator's address. This node receives no Hello, since a Hello would contain
// the token.
TEST_F(SecureTest, OnlyTheCoordinatorGetsTheToken) {
  listen(certificates_.identity("b", tls::Peer::node("b")));
  dial(node_);
  run_until([this] { return attempts_ > 2; });
  EXPECT_EQ(connected_, 0U);
  EXPECT_TRUE(names_.empty());
}

TEST_F(SecureTest, ForeignListenerOnThePortGetsNoToken) {
  take_port();
  dial(node_);
  run_until([this] { return taker_ && !taker_->heard.empty(); });
  EXPECT_EQ(taker_->heard.front(), '\x16') << "a TLS handshake";
  EXPECT_EQ(taker_->heard.find(kToken), std::string::npos);
}

TEST_F(SecureTest, PlaintextIsRefused) {
  listen(coordinator_);
  wire::Hello hello;
  hello.name = "a";
  hello.token = kToken;
  const auto frame = wire::to_frame(hello, 1).value();
  const auto raw = connect(std::string(reinterpret_cast<const char*>(frame.data()), frame.size()));
  run_until([&] { return raw->closed; });
  EXPECT_TRUE(names_.empty());
}

TEST_F(SecureTest, AStalledHandshakeTimesOut) {
  ConnectionSettings settings;
  settings.handshake_timeout = std::chrono::milliseconds(50);
  listen(coordinator_, settings);
  const auto raw = connect("");
  run_until([&] { return raw->closed; });
}

TEST_F(SecureTest, SlowBytesDoNotExtendTheDeadline) {
  ConnectionSettings settings;
  settings.handshake_timeout = std::chrono::milliseconds(100);
  listen(coordinator_, settings);
  // Sends the head of a long record whose remainder never ends.
  const auto raw = connect(std::string("\x16\x03\x01\x3f\xff\x01", 6) + std::string(16'000, '\0'), true);
  run_until([&] { return raw->closed; });
}

TEST_F(SecureTest, UnknownConnectionsDoNotBlockANode) {
  ConnectionSettings settings;
  settings.handshake_timeout = std::chrono::hours(1);
  listen(coordinator_, settings);
  std::vector<std::shared_ptr<Raw>> strangers;
  for (std::size_t i = 0; i < Listener::kMaxHandshakes; ++i) {
    strangers.push_back(connect(""));
    run_until([&] { return strangers.back()->socket.is_open(); });
  }
  io_.run_for(std::chrono::milliseconds(50));
  dial(node_);
  run_until([this] { return connected_ == 1; });
  run_until([&] { return strangers.front()->closed; });
  EXPECT_FALSE(strangers.back()->closed);
}

TEST_F(SecureTest, ARenewedCertificateNeedsNoRestart) {
  auto order = tls::Certificates::order(tls::Peer::coordinator());
  order.begins = -2 * tls::kDay;
  order.term = tls::kDay;
  const auto files = certificates_.write("over", order);
  listen(tls::Identity::load(files).value());
  dial(node_);
  run_until([this] { return attempts_ > 2; });
  EXPECT_EQ(connected_, 0U);
  certificates_.write("over", tls::Certificates::order(tls::Peer::coordinator()));
  run_until([this] { return connected_ == 1; });
  EXPECT_EQ(lost_, 0U);
}

TEST_F(SecureTest, UnixSocketNeedsNoCertificate) {
  Listener::Settings settings;
  settings.address = "unix:" + certificates_.path("listener.sock");
  settings.token = kToken;
  settings.tls = {coordinator_, only(tls::Peer::node("a"))};
  unsigned accepted = 0;
  listener_ = Listener::create(io_.get_executor(), settings, [&](std::shared_ptr<Connection> c, wire::Hello) {
                EXPECT_EQ(c->certified(), tls::Peer());
                ++accepted;
              }).value();
  dial(nullptr);
  run_until([&] { return accepted > 0; });
}

TEST_F(SecureTest, TokenIsNotSentOverTcpWithoutACertificate) {
  take_port();
  dial(nullptr);
  run_until([this] { return attempts_ > 2; });
  EXPECT_EQ(connected_, 0U);
  EXPECT_FALSE(taker_);
}

}  // namespace
}  // namespace ckpt::control
