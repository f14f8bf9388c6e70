// SPDX-License-Identifier: Apache-2.0
// Tests which clients HttpServer answers: by certificate over TCP, and by user on a Unix socket.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/net/control/address.h"
#include "libckpt/net/control/http_server.h"
#include "libckpt/net/control/spawn.h"
#include "tests/unit/support/certificates.h"

namespace ckpt::control {
namespace {

class SecureHttpTest : public ::testing::Test {
 protected:
  void SetUp() override { serve(); }
  void serve() {
    HttpServer::Settings settings;
    settings.address = "127.0.0.1:0";
    settings.socket = socket_;
    settings.tls = {certificates_.identity("coordinator", tls::Peer::coordinator()),
                    except(denied_, only(tls::Peer::client("admin")))};
    const auto handle = [this](HttpRequest request) -> Task<HttpResponse> {
      ++calls_;
      user_ = request.user;
      co_return HttpResponse(200, "the jobs");
    };
    const auto refuse = [](unsigned status, const std::string& reason) {
      return HttpResponse(status, reason);
    };
    server_ = HttpServer::create(io_.get_executor(), settings, handle, refuse).value();
  }
  ~SecureHttpTest() override {
    server_->close();
    io_.restart();
    io_.poll();
  }
  // Returns the answer to a client with the given certificate; nullptr: over plain HTTP.
  std::string ask(const std::shared_ptr<tls::Identity>& identity) {
    return ask(identity, server_->address());
  }
  std::string ask(const std::shared_ptr<tls::Identity>& identity, const std::string& address,
                  std::chrono::seconds limit = std::chrono::seconds(30)) {
    auto stream = std::make_shared<Stream>(Stream::Socket(io_));
    EXPECT_TRUE(stream->use({identity, only(tls::Peer::coordinator())}));
    std::string heard;
    bool done = false;
    spawn(io_.get_executor(), "client", get(stream, address, &heard, &done));
    const auto until = std::chrono::steady_clock::now() + limit;
    while (!done && io_.run_one_until(until) != 0) {
    }
    EXPECT_TRUE(done) << "no answer within " << limit.count() << " s";
    return heard;
  }
  static Task<> get(std::shared_ptr<Stream> stream, std::string address, std::string* heard, bool* done) {
    const std::string request = "GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    co_await stream->socket().async_connect(parse_address(address).value().endpoint, asio::use_awaitable);
    const auto secured = co_await stream->handshake(Stream::Side::kDials);
    if (secured) {
      std::array<char, 4096> buffer{};
      co_await asio::async_write(*stream, asio::buffer(request), kTuple);
      const auto [code, bytes] = co_await asio::async_read(*stream, asio::buffer(buffer), kTuple);
      heard->assign(buffer.data(), bytes);
    }
    *done = true;
  }

  asio::io_context io_{1};
  tls::Certificates certificates_;
  const std::string socket_ = "unix:" + certificates_.path("api.sock");
  std::optional<uid_t> user_;  // the user of the last call
  std::shared_ptr<tls::DeniedSerials> denied_ = std::make_shared<tls::DeniedSerials>();
  std::shared_ptr<HttpServer> server_;
  int calls_ = 0;
};

TEST_F(SecureHttpTest, RequestWithAnAdmittedCertificateIsAnswered) {
  EXPECT_TRUE(server_->url().starts_with("https://127.0.0.1:"));
  EXPECT_TRUE(ask(certificates_.identity("admin", tls::Peer::client("admin"))).ends_with("the jobs"));
  EXPECT_EQ(calls_, 1);
}

TEST_F(SecureHttpTest, RequestsWithOtherCertificatesAreRefused) {
  tls::Certificates others;
  EXPECT_EQ(ask(certificates_.identity("a", tls::Peer::node("a"))), "");
  EXPECT_EQ(ask(certificates_.identity("viewer", tls::Peer::client("viewer"))), "");
  EXPECT_EQ(ask(others.identity("admin", tls::Peer::client("admin"))), "");
  EXPECT_EQ(ask(nullptr).find("the jobs"), std::string::npos);
  EXPECT_EQ(calls_, 0);
}

TEST_F(SecureHttpTest, SilentConnectionsDoNotBlockAClient) {
  // A process with a low limit of descriptors accepts few connections.
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit few{272, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  server_->close();
  serve();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  std::list<Stream::Socket> strangers;
  int connected = 0;
  for (int i = 0; i < 40; ++i) {
    strangers.emplace_back(io_).async_connect(parse_address(server_->address()).value().endpoint,
                                              [&connected](boost::system::error_code code) {
                                                EXPECT_FALSE(code);
                                                ++connected;
                                              });
  }
  while (connected < 40) ASSERT_NE(io_.run_one_for(std::chrono::seconds(30)), 0U);
  // The authorized client is answered before the handshakes of the unauthenticated clients time out, which
  // takes 10 s.
  const auto client = certificates_.identity("admin", tls::Peer::client("admin"));
  EXPECT_TRUE(ask(client, server_->address(), std::chrono::seconds(8)).ends_with("the jobs"));
}

TEST_F(SecureHttpTest, UnixSocketReportsTheUser) {
  EXPECT_TRUE(ask(nullptr, socket_).ends_with("the jobs"));
  EXPECT_EQ(user_, ::geteuid());
  EXPECT_TRUE(ask(certificates_.identity("admin", tls::Peer::client("admin"))).ends_with("the jobs"));
  EXPECT_EQ(user_, std::nullopt);
}

TEST_F(SecureHttpTest, UnixSocketIsAccessibleOnlyToItsUser) {
  struct stat info {};
  ASSERT_EQ(::stat(certificates_.path("api.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(SecureHttpTest, TcpRequiresACertificate) {
  HttpServer::Settings settings;
  settings.address = "127.0.0.1:0";
  const auto made = HttpServer::create(io_.get_executor(), settings, nullptr, nullptr);
  EXPECT_EQ(made.error().code(), ErrorCode::kRefused);
}

TEST_F(SecureHttpTest, DeniedCertificateIsRefusedButAnotherCertificateOfTheRoleIsAdmitted) {
  const auto lost = certificates_.identity("lost", tls::Peer::client("admin"));
  EXPECT_TRUE(ask(lost).ends_with("the jobs"));
  ASSERT_TRUE(denied_->replace({lost->subject().serial}));
  EXPECT_EQ(ask(lost), "");
  EXPECT_EQ(calls_, 1);
  EXPECT_TRUE(ask(certificates_.identity("other", tls::Peer::client("admin"))).ends_with("the jobs"));
}

TEST_F(SecureHttpTest, OpenConnectionOfADeniedCertificateIsClosed) {
  const auto lost = certificates_.identity("lost", tls::Peer::client("admin"));
  auto stream = std::make_shared<Stream>(Stream::Socket(io_));
  ASSERT_TRUE(stream->use({lost, only(tls::Peer::coordinator())}));
  std::string heard;
  bool closed = false;
  const auto talk = [&]() -> Task<> {
    co_await stream->socket().async_connect(parse_address(server_->address()).value().endpoint,
                                            asio::use_awaitable);
    const auto secured = co_await stream->handshake(Stream::Side::kDials);
    EXPECT_TRUE(secured);
    const std::string request = "GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n";
    co_await asio::async_write(*stream, asio::buffer(request), kTuple);
    std::array<char, 4096> buffer{};
    while (!closed) {
      const auto [code, bytes] = co_await stream->async_read_some(asio::buffer(buffer), kTuple);
      heard.append(buffer.data(), bytes);
      closed = static_cast<bool>(code);
    }
  };
  spawn(io_.get_executor(), "client", talk());
  while (!heard.ends_with("the jobs")) ASSERT_NE(io_.run_one_for(std::chrono::seconds(30)), 0U);
  const std::string serial = lost->subject().serial;
  server_->close_where([](const tls::Peer& peer) { return peer.serial == "0"; });
  server_->close_where([&serial](const tls::Peer& peer) { return peer.serial == serial; });
  while (!closed) ASSERT_NE(io_.run_one_for(std::chrono::seconds(30)), 0U);
}

}  // namespace
}  // namespace ckpt::control
