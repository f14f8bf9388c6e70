// SPDX-License-Identifier: Apache-2.0
// Tests streams against each other, and against raw OpenSSL ends that violate the rules.
#include "libckpt/net/tls/psk_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::tls {
namespace {

using Bytes = std::vector<std::byte>;

std::pair<UniqueFd, UniqueFd> make_pair() {
  int pair[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

PskKey key_of(std::string_view secret) {
  return *derive_psk(std::as_bytes(std::span(secret.data(), secret.size())), "test");
}

// The results of both ends, driven until neither end has more to do.
struct Outcome {
  Result<bool> client = false;
  Result<bool> server = false;
};
Outcome shake_hands(PskStream& client, PskStream& server) {
  Outcome outcome;
  for (int i = 0; i < 20; ++i) {
    outcome.client = client.handshake();
    outcome.server = server.handshake();
  }
  return outcome;
}

class PskStreamTest : public ::testing::Test {
 protected:
  void make(const std::string& asked = "lane", const std::string& secret = "secret") {
    auto [a, b] = make_pair();
    client_ = *PskStream::client(context_, std::move(a), asked, key_of(secret));
    server_ = *PskStream::server(context_, std::move(b), only_psk("lane", key_of("secret")));
  }
  void make_ready() {
    make();
    const Outcome outcome = shake_hands(*client_, *server_);
    ASSERT_TRUE(outcome.client.has_value() && *outcome.client);
    ASSERT_TRUE(outcome.server.has_value() && *outcome.server);
  }

  std::shared_ptr<const PskContext> context_ = *PskContext::create();
  std::unique_ptr<PskStream> client_, server_;
};

Bytes pattern(std::size_t bytes) {
  Bytes filled(bytes);
  for (std::size_t i = 0; i < bytes; ++i) filled[i] = static_cast<std::byte>(i * 7 + (i >> 9));
  return filled;
}

// Sends in both directions at the same time, through sockets that fill up again and again.
TEST_F(PskStreamTest, CarriesBytesInBothDirections) {
  for (const bool wide : {false, true}) {
    make_ready();
    if (wide) client_->widen();
    const Bytes sent = pattern(3'000'017);
    struct Direction {
      PskStream& from;
      PskStream& to;
      std::size_t out = 0;
      std::size_t in = 0;
      Bytes received;
    } directions[] = {{*client_, *server_}, {*server_, *client_}};
    for (Direction& direction : directions) direction.received.resize(sent.size());
    while (std::any_of(std::begin(directions), std::end(directions),
                       [&](const Direction& d) { return d.in < sent.size(); })) {
      bool moved = false;
      for (Direction& direction : directions) {
        const std::size_t written = *direction.from.write(std::span(sent).subspan(direction.out));
        direction.out += written;
        const bool flushed = *direction.from.flush();
        EXPECT_EQ((direction.from.events() & POLLOUT) != 0, !flushed);
        const std::size_t got = *direction.to.read(std::span(direction.received).subspan(direction.in));
        direction.in += got;
        moved |= written + got > 0;
      }
      ASSERT_TRUE(moved);
    }
    for (const Direction& direction : directions) EXPECT_TRUE(direction.received == sent);
  }
}

TEST_F(PskStreamTest, NoDataIsSentBeforeTheHandshake) {
  make();
  EXPECT_EQ(*client_->write(pattern(10)), 0U);
  Bytes space(10);
  EXPECT_EQ(*client_->read(space), 0U);
}

// Returns the bytes that the server sends in answer to a client's greeting.
std::string answer_to(const std::shared_ptr<const PskContext>& context, const std::string& identity,
                      const std::string& secret) {
  auto [a, b] = make_pair();
  const int fd = a.get();
  auto client = *PskStream::client(context, std::move(a), identity, key_of(secret));
  auto server = *PskStream::server(context, std::move(b), only_psk("lane", key_of("secret")));
  EXPECT_TRUE(client->handshake().has_value());
  const auto refused = server->handshake();
  EXPECT_FALSE(refused.has_value());
  std::string answer(1000, '\0');
  answer.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::recv(fd, answer.data(), answer.size(), 0))));
  return answer;
}

TEST_F(PskStreamTest, AlertDoesNotRevealWhetherAnIdentityExists) {
  const std::string wrong_key = answer_to(context_, "lane", "other secret");
  EXPECT_EQ(wrong_key.size(), 7U) << "an alert";
  EXPECT_EQ(answer_to(context_, "enal", "secret"), wrong_key);
  EXPECT_EQ(answer_to(context_, "lane2", "secret"), wrong_key);
  EXPECT_EQ(answer_to(context_, "lan", "secret"), wrong_key);
  EXPECT_EQ(answer_to(context_, std::string("lane\0", 5), "secret"), wrong_key);
  EXPECT_EQ(answer_to(context_, std::string(256, 'x'), "secret"), wrong_key);
}

TEST_F(PskStreamTest, WrongKeyIsRefusedOnBothSides) {
  make("lane", "other secret");
  const Outcome outcome = shake_hands(*client_, *server_);
  ASSERT_FALSE(outcome.client.has_value() || outcome.server.has_value());
  EXPECT_EQ(outcome.server.error().code(), ErrorCode::kProtocol);
  EXPECT_EQ(outcome.client.error().code(), ErrorCode::kUnavailable);
  EXPECT_FALSE(client_->write(pattern(1)).has_value());
}

TEST_F(PskStreamTest, IdentityLengthIsBounded) {
  for (const std::string& identity : {std::string(), std::string(257, 'x')}) {
    auto [a, b] = make_pair();
    const auto made = PskStream::client(context_, std::move(a), identity, key_of("secret"));
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST_F(PskStreamTest, OrderlyCloseIsDistinguishedFromADisconnection) {
  for (const bool in_order : {true, false}) {
    make_ready();
    EXPECT_EQ(*client_->write(pattern(100)), 100U);
    EXPECT_TRUE(*client_->flush());
    if (in_order) client_->finish();
    client_.reset();
    Bytes space(1000);
    EXPECT_EQ(*server_->read(space), 100U) << "what came before the end";
    const auto end = server_->read(space);
    ASSERT_FALSE(end.has_value());
    EXPECT_EQ(end.error().code(), ErrorCode::kUnavailable);
    EXPECT_FALSE(server_->write(space).has_value()) << "an error stays";
  }
}

std::atomic<int> pipe_signals{0};

TEST_F(PskStreamTest, WriteToAClosedConnectionRaisesNoSignal) {
  auto* before = std::signal(SIGPIPE, [](int) { ++pipe_signals; });
  make_ready();
  server_.reset();
  EXPECT_TRUE(client_->write(pattern(100)).has_value());
  const auto flushed = client_->flush();
  ASSERT_FALSE(flushed.has_value());
  EXPECT_EQ(flushed.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(flushed.error().native(), EPIPE);
  make_ready();
  server_.reset();
  client_->finish();
  std::signal(SIGPIPE, before);
  EXPECT_EQ(pipe_signals, 0);
}

// A raw OpenSSL end on a nonblocking socket.
class Foreign {
 public:
  explicit Foreign(const SSL_METHOD* method) : context_(SSL_CTX_new(method)) {}
  [[nodiscard]] SSL_CTX* context() const { return context_.get(); }
  void start(UniqueFd socket, bool connects) {
    socket_ = std::move(socket);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), socket_.get());
    connects ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
  }
  bool shake_hands() {
    ERR_clear_error();
    return SSL_do_handshake(ssl_.get()) == 1;
  }
  [[nodiscard]] SSL* ssl() const { return ssl_.get(); }

 private:
  UniqueSslContext context_;
  UniqueFd socket_;
  UniqueSsl ssl_;
};

// Supplies the key of a raw OpenSSL end.
int use_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* bytes, SSL_SESSION** out) {
  const unsigned char suite[2] = {0x13, 0x01};
  const PskKey key = key_of("secret");
  *out = SSL_SESSION_new();
  SSL_SESSION_set1_master_key(*out, key.bytes().data(), key.bytes().size());
  SSL_SESSION_set_cipher(*out, SSL_CIPHER_find(ssl, suite));
  SSL_SESSION_set_protocol_version(*out, TLS1_3_VERSION);
  *identity = reinterpret_cast<const unsigned char*>("lane");
  *bytes = 4;
  return 1;
}

class ForeignClientTest : public PskStreamTest {
 protected:
  ForeignClientTest() { SSL_CTX_set_psk_use_session_callback(foreign_.context(), &use_key); }
  // Returns whether both ends accepted each other.
  bool meet() {
    auto [a, b] = make_pair();
    foreign_.start(std::move(a), true);
    server_ = *PskStream::server(context_, std::move(b), only_psk("lane", key_of("secret")));
    bool foreign = false;
    bool own = false;
    for (int i = 0; i < 20; ++i) {
      foreign = foreign_.shake_hands();
      const auto ready = server_->handshake();
      own = ready.has_value() && *ready;
    }
    return foreign && own;
  }
  Foreign foreign_{TLS_client_method()};
};

TEST_F(ForeignClientTest, ClientWithTheKeyConnects) {
  ASSERT_TRUE(meet());
  EXPECT_EQ(SSL_version(foreign_.ssl()), TLS1_3_VERSION);
  EXPECT_STREQ(SSL_get_cipher_name(foreign_.ssl()), "TLS_AES_128_GCM_SHA256");
  EVP_PKEY* exchanged = nullptr;
  EXPECT_EQ(SSL_get_peer_tmp_key(foreign_.ssl(), &exchanged), 1) << "an ephemeral exchange";
  EVP_PKEY_free(exchanged);
  char byte = 0;
  EXPECT_NE(SSL_read(foreign_.ssl(), &byte, 1), 1);
  EXPECT_EQ(SSL_SESSION_is_resumable(SSL_get_session(foreign_.ssl())), 0) << "no ticket came";
}

TEST_F(ForeignClientTest, ClientWithoutAKeyExchangeIsRefused) {
  SSL_CTX_set_options(foreign_.context(), SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set1_groups_list(foreign_.context(), "P-521");  // a group that the server does not support
  EXPECT_FALSE(meet());
}

TEST_F(ForeignClientTest, ClientWithAnotherCipherSuiteIsRefused) {
  SSL_CTX_set_ciphersuites(foreign_.context(), "TLS_CHACHA20_POLY1305_SHA256");
  EXPECT_FALSE(meet());
}

// A server refuses PSKs and presents a certificate instead.
TEST_F(PskStreamTest, CertificateIsNotAcceptedInsteadOfAKey) {
  Foreign foreign(TLS_server_method());
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  ASSERT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  ASSERT_EQ(SSL_CTX_use_certificate(foreign.context(), certificate), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(foreign.context(), key), 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
  auto [a, b] = make_pair();
  client_ = *PskStream::client(context_, std::move(a), "lane", key_of("secret"));
  foreign.start(std::move(b), false);
  Result<bool> ready = false;
  for (int i = 0; i < 20; ++i) {
    ready = client_->handshake();
    foreign.shake_hands();
  }
  ASSERT_FALSE(ready.has_value());
  EXPECT_EQ(ready.error().code(), ErrorCode::kProtocol);
}

TEST(Psk, DerivedKeysMatchHkdf) {
  // The test vector of RFC 5869, A.3: no salt, no info.
  const std::array<std::byte, 22> secret = [] {
    std::array<std::byte, 22> filled{};
    filled.fill(std::byte{0x0b});
    return filled;
  }();
  const unsigned char expected[] = {0x8d, 0xa4, 0xe7, 0x75, 0xa5, 0x63, 0xc1, 0x8f, 0x71, 0x5f, 0x80,
                                    0x2a, 0x06, 0x3c, 0x5a, 0x31, 0xb8, 0xa1, 0x1f, 0x5c, 0x5e, 0xe1,
                                    0x87, 0x9e, 0xc3, 0x45, 0x4e, 0x5f, 0x3c, 0x73, 0x8d, 0x2d};
  const PskKey key = *derive_psk(secret, "");
  EXPECT_TRUE(std::equal(key.bytes().begin(), key.bytes().end(), std::begin(expected)));
  const PskKey other = *derive_psk(secret, "a use");
  EXPECT_FALSE(std::equal(key.bytes().begin(), key.bytes().end(), other.bytes().begin()));
}

}  // namespace
}  // namespace ckpt::tls
