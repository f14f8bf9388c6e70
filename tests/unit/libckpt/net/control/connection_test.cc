// SPDX-License-Identifier: Apache-2.0
// Tests Connection, Listener and Dialer on one event loop over real sockets. No test depends on durations:
// each test runs the loop until the expected event has happened.
#include "libckpt/net/control/connection.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "libckpt/base/random.h"
#include "libckpt/net/control/address.h"
#include "libckpt/net/control/dialer.h"
#include "libckpt/net/control/listener.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/control_messages.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::control {
namespace {

using wire::FrameType;

class ControlTest : public ::testing::Test {
 protected:
  void listen(ConnectionSettings settings = {}) {
    Listener::Settings s;
    s.address = "unix:" + socket_;
    s.token = "secret";
    s.connection = settings;
    auto created =
        Listener::create(io_.get_executor(), s, [this](std::shared_ptr<Connection> c, wire::Hello hello) {
          accepted_ = c;
          dialer_name_ = hello.name;
          Connection::Handlers handlers;
          handlers.on_frame = [this](const wire::FrameHeader& header, std::span<const std::byte>) {
            types_.push_back(header.type);
            return ok();
          };
          handlers.on_closed = [this](const Error& reason) { closed_ = reason; };
          accepted_->start(std::move(handlers));
        });
    ASSERT_TRUE(created) << created.error().to_string();
    listener_ = created.value();
  }
  void dial(const std::string& token = "secret") {
    Dialer::Settings s;
    s.name = "node-a";
    s.label = "the listener";
    s.address = [this]() -> Result<std::string> { return listener_->address(); };
    s.token = [token]() -> Result<std::string> { return token; };
    Dialer::Handlers handlers;
    handlers.on_connected = [this](Connection&) { ++connected_; };
    handlers.on_frame = [this](const wire::FrameHeader&, std::span<const std::byte>) -> Result<void> {
      ++dialer_frames_;
      return ok();
    };
    handlers.on_lost = [this](const Error&) { ++lost_; };
    dialer_ = Dialer::create(io_.get_executor(), std::move(s), std::move(handlers));
    dialer_->start();
  }
  template <class Condition>
  void run_until(Condition condition) {
    while (!condition()) ASSERT_NE(io_.run_one_for(std::chrono::seconds(30)), 0U);
  }
  // Runs a raw client that sends bytes, and waits until the listener has closed the connection.
  void poke(std::vector<std::byte> bytes) {
    bool done = false;
    spawn(io_.get_executor(), "poke",
          [](std::string address, std::vector<std::byte> b, bool* finished) -> Task<> {
            asio::generic::stream_protocol::socket socket(co_await asio::this_coro::executor);
            const auto parsed = parse_address(address);
            co_await socket.async_connect(parsed.value().endpoint, asio::use_awaitable);
            co_await asio::async_write(socket, asio::buffer(b), asio::use_awaitable);
            std::array<char, 4096> buffer;
            while (true) {
              const auto [code, count] = co_await socket.async_read_some(asio::buffer(buffer), kTuple);
              if (code) break;
            }
            *finished = true;
          }(listener_->address(), std::move(bytes), &done));
    run_until([&] { return done; });
  }

  const std::string socket_ = ::testing::TempDir() + "/control-" + random_hex(8).value();
  asio::io_context io_{1};
  std::shared_ptr<Listener> listener_;
  std::shared_ptr<Dialer> dialer_;
  std::shared_ptr<Connection> accepted_;
  std::string dialer_name_;
  std::vector<FrameType> types_;
  std::optional<Error> closed_;
  unsigned connected_ = 0;
  unsigned lost_ = 0;
  unsigned dialer_frames_ = 0;
};

TEST_F(ControlTest, CarriesFramesInBothDirections) {
  listen();
  dial();
  run_until([&] { return connected_ == 1 && accepted_; });
  EXPECT_EQ(dialer_name_, "node-a");
  wire::Inventory inventory;
  ASSERT_TRUE(dialer_->send(inventory));
  ASSERT_TRUE(accepted_->send(wire::Welcome()));
  run_until([&] { return types_.size() == 1 && dialer_frames_ == 1; });
  EXPECT_EQ(types_.front(), FrameType::kInventory);
}

TEST_F(ControlTest, RefusesAWrongToken) {
  listen();
  dial("guess");
  wire::Hello hello;
  hello.token = "guess";
  poke(wire::to_frame(hello, 1).value());
  EXPECT_FALSE(accepted_);
  EXPECT_EQ(connected_, 0U);
}

TEST_F(ControlTest, RefusedConnectionsDoNotFillTheLog) {
  listen();
  std::ostringstream lines;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines)));
  wire::Hello hello;
  hello.token = "guess";
  for (int i = 0; i < 50; ++i) poke(wire::to_frame(hello, 1).value());
  spdlog::set_default_logger(before);
  const std::string log = lines.str();
  EXPECT_GE(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 10) << log;  // one line in ten seconds, however slow
                                                                   // this machine is
}

TEST_F(ControlTest, RefusesAnotherVersion) {
  listen();
  wire::Hello hello;
  hello.token = "secret";
  hello.version = wire::kControlVersion + 1;
  poke(wire::to_frame(hello, 1).value());
  EXPECT_FALSE(accepted_);
}

TEST_F(ControlTest, RefusesAWrongFirstFrame) {
  listen();
  poke(wire::to_frame(wire::Inventory(), 1).value());
  EXPECT_FALSE(accepted_);
}

TEST_F(ControlTest, DropsAConnectionWithADamagedFrame) {
  listen();
  wire::Hello hello;
  hello.token = "secret";
  auto bytes = wire::to_frame(hello, 1).value();
  auto damaged = wire::to_frame(wire::Inventory(), 2).value();
  damaged.back() ^= std::byte{1};
  bytes.insert(bytes.end(), damaged.begin(), damaged.end());
  poke(std::move(bytes));
  run_until([&] { return closed_.has_value(); });
  EXPECT_EQ(closed_->code(), ErrorCode::kProtocol);
  EXPECT_TRUE(types_.empty());
}

TEST_F(ControlTest, ReconnectsAfterADisconnection) {
  listen();
  dial();
  run_until([&] { return connected_ == 1 && accepted_; });
  accepted_->close(Error(ErrorCode::kAborted, "for the test"));
  run_until([&] { return lost_ == 1 && connected_ == 2; });
  ASSERT_TRUE(dialer_->send(wire::Inventory()));
  run_until([&] { return types_.size() == 1; });
}

TEST_F(ControlTest, APeerThatDoesNotReadIsDropped) {
  ConnectionSettings settings;
  settings.max_queued_bytes = 1 << 20;
  listen(settings);
  dial();
  run_until([&] { return connected_ == 1 && accepted_; });
  wire::LogData data;
  data.bytes.assign(256 << 10, 'x');
  Result<void> sent = ok();
  // The loop does not run, so the peer reads no data.
  for (int i = 0; i < 100 && sent; ++i) sent = accepted_->send(data);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code(), ErrorCode::kUnavailable);
  run_until([&] { return closed_.has_value(); });
  EXPECT_FALSE(accepted_->send(data));
}

TEST_F(ControlTest, ASilentPeerIsDropped) {
  ConnectionSettings settings;
  settings.ping_interval = std::chrono::milliseconds(10);
  settings.idle_timeout = std::chrono::milliseconds(50);
  listen(settings);
  wire::Hello hello;
  hello.token = "secret";
  poke(wire::to_frame(hello, 1).value());  // answers no ping, and ends when the listener's side closes
  run_until([&] { return closed_.has_value(); });
  EXPECT_EQ(closed_->code(), ErrorCode::kTimedOut);
}

TEST_F(ControlTest, AStalledLoopKeepsItsLiveConnections) {
  ConnectionSettings settings;
  settings.ping_interval = std::chrono::milliseconds(20);
  settings.idle_timeout = std::chrono::milliseconds(200);
  listen(settings);
  dial();
  run_until([&] { return connected_ == 1 && accepted_; });
  ASSERT_TRUE(dialer_->send(wire::Inventory()));
  std::this_thread::sleep_for(2 * settings.idle_timeout);  // the loop does not run: this simulates a stalled
                                                           // process
  run_until([&] { return types_.size() == 1 || closed_; });
  ASSERT_FALSE(closed_) << closed_->to_string();
  EXPECT_EQ(lost_, 0U);
}

TEST(Dialer, DelayIsBetweenHalfAndAllOfTheBackoff) {
  using std::chrono::milliseconds;
  EXPECT_EQ(with_jitter(milliseconds(1000), 0), milliseconds(500));
  EXPECT_EQ(with_jitter(milliseconds(1000), 255), milliseconds(1000));
  milliseconds before{0};
  for (unsigned chance = 0; chance <= 255; ++chance) {
    const milliseconds waits = with_jitter(milliseconds(50), static_cast<std::uint8_t>(chance));
    EXPECT_GE(waits, std::max(before, milliseconds(25)));
    EXPECT_LE(waits, milliseconds(50));
    before = waits;
  }
}

TEST_F(ControlTest, TcpRequiresACertificate) {
  Listener::Settings s;
  s.token = "secret";
  for (const char* address : {"0.0.0.0:0", "127.0.0.1:0", "[::1]:0"}) {
    s.address = address;
    const auto refused =
        Listener::create(io_.get_executor(), s, [](std::shared_ptr<Connection>, wire::Hello) {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  }
}

TEST(Token, TokenComparisonUsesAllCharacters) {
  EXPECT_TRUE(same_token("abc", "abc"));
  EXPECT_FALSE(same_token("abc", "abd"));
  EXPECT_FALSE(same_token("abc", "ab"));
  EXPECT_FALSE(same_token("", "a"));
}

}  // namespace
}  // namespace ckpt::control
