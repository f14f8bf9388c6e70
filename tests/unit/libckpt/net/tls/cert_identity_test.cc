// SPDX-License-Identifier: Apache-2.0
// Tests identities from files, and handshakes between identities in memory.
#include "libckpt/net/tls/cert_identity.h"
#include "libckpt/net/tls/cert_denied.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <cctype>

#include "tests/unit/support/certificates.h"

namespace ckpt::tls {
namespace {

// One handshake in memory; both sides take turns.
struct Handshake {
  Handshake(UniqueSsl accepting, UniqueSsl dialling)
      : server(std::move(accepting)), client(std::move(dialling)) {
    BIO* server_end = nullptr;
    BIO* client_end = nullptr;
    EXPECT_EQ(BIO_new_bio_pair(&server_end, 0, &client_end, 0), 1);
    SSL_set_bio(server.get(), server_end, server_end);
    SSL_set_bio(client.get(), client_end, client_end);
    SSL_set_accept_state(server.get());
    SSL_set_connect_state(client.get());
    for (int turn = 0; turn < 8; ++turn) {
      client_done = SSL_do_handshake(client.get()) == 1;
      server_done = SSL_do_handshake(server.get()) == 1;
    }
    pop_openssl_error();
  }
  [[nodiscard]] bool done() const { return server_done && client_done; }
  UniqueSsl server;
  UniqueSsl client;
  bool server_done = false;
  bool client_done = false;
};

class IdentityTest : public ::testing::Test {
 protected:
  Handshake shake(Identity& server, Identity& client) {
    return {server.make_ssl().value(), client.make_ssl().value()};
  }
  std::int64_t next_term() { return 3600 * ++terms_; }
  // Returns an order for a version of the files; its expiry identifies this version.
  Authority::Order version(std::int64_t term) {
    auto order = Certificates::order(Peer::node("a"));
    order.term = std::chrono::seconds(term);
    return order;
  }

  Certificates certificates_;
  std::shared_ptr<Identity> coordinator_ = certificates_.identity("coordinator", Peer::coordinator());
  std::int64_t terms_ = 0;
};

TEST_F(IdentityTest, BothSidesAuthenticateEachOther) {
  const auto node = certificates_.identity("a", Peer::node("a"));
  EXPECT_EQ(node->subject(), Peer::node("a"));
  const Handshake handshake = shake(*coordinator_, *node);
  ASSERT_TRUE(handshake.done());
  EXPECT_EQ(verified_peer(handshake.server.get()).value(), Peer::node("a"));
  EXPECT_EQ(verified_peer(handshake.client.get()).value(), Peer::coordinator());
  EXPECT_EQ(SSL_version(handshake.server.get()), TLS1_3_VERSION);
  EXPECT_EQ(SSL_session_reused(handshake.client.get()), 0);
}

TEST_F(IdentityTest, RefusesAnotherAuthorityOnBothSides) {
  Certificates others;
  const auto stranger = others.identity("a", Peer::node("a"));
  EXPECT_FALSE(shake(*coordinator_, *stranger).done());
  EXPECT_FALSE(shake(*stranger, *coordinator_).client_done);
}

TEST_F(IdentityTest, RefusesExpiredAndNotYetValidCertificates) {
  auto order = Certificates::order(Peer::node("a"));
  order.begins = -2 * kDay;
  order.term = kDay;
  EXPECT_FALSE(shake(*coordinator_, *Identity::load(certificates_.write("over", order)).value()).server_done);
  order.begins = kDay;
  EXPECT_FALSE(
      shake(*coordinator_, *Identity::load(certificates_.write("early", order)).value()).server_done);
}

TEST_F(IdentityTest, RefusesAClientCertificateForAServer) {
  const auto admin = certificates_.identity("admin", Peer::client("admin"));
  EXPECT_TRUE(shake(*coordinator_, *admin).done());
  EXPECT_FALSE(shake(*admin, *coordinator_).client_done);
}

TEST_F(IdentityTest, RefusesTls12AndMissingCertificates) {
  const UniqueSslContext old(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_max_proto_version(old.get(), TLS1_2_VERSION);
  EXPECT_FALSE(Handshake(coordinator_->make_ssl().value(), UniqueSsl(SSL_new(old.get()))).server_done);
  const UniqueSslContext bare(SSL_CTX_new(TLS_client_method()));
  EXPECT_FALSE(Handshake(coordinator_->make_ssl().value(), UniqueSsl(SSL_new(bare.get()))).server_done);
}

TEST_F(IdentityTest, RefusesAKeyReadableByOtherUsers) {
  const CertFiles files = certificates_.write("a", Certificates::order(Peer::node("a")));
  for (const mode_t mode : {0640U, 0604U, 0700U}) {
    ASSERT_EQ(::chmod(files.key.c_str(), mode), 0);
    EXPECT_EQ(Identity::load(files).error().code(), ErrorCode::kRefused) << mode;
  }
  ASSERT_EQ(::chmod(files.key.c_str(), 0400), 0);
  EXPECT_TRUE(Identity::load(files));
}

TEST_F(IdentityTest, RefusesUnusableFiles) {
  const CertFiles good = certificates_.write("a", Certificates::order(Peer::node("a")));
  const CertFiles other = certificates_.write("b", Certificates::order(Peer::node("b")));
  CertFiles files = good;
  files.key = other.key;
  EXPECT_FALSE(Identity::load(files)) << "the key of another certificate";
  for (std::string CertFiles::*part : {&CertFiles::ca, &CertFiles::certificate, &CertFiles::key}) {
    files = good;
    files.*part = certificates_.path("absent");
    EXPECT_FALSE(Identity::load(files));
    files.*part = certificates_.path("large");
    ASSERT_TRUE(write_file_durably(files.*part, std::string(2 << 20, 'x')));
    EXPECT_FALSE(Identity::load(files));
    files.*part = "";
    EXPECT_FALSE(Identity::load(files));
    files.*part = "relative.pem";
    EXPECT_FALSE(Identity::load(files));
  }
}

TEST_F(IdentityTest, UsesANewVersionForNewConnections) {
  const CertFiles files = certificates_.write("a", version(next_term()));
  const auto node = Identity::load(files).value();
  const std::int64_t first = node->expires_unix_s();
  certificates_.write("a", version(next_term()));
  EXPECT_TRUE(shake(*coordinator_, *node).done());
  EXPECT_GT(node->expires_unix_s(), first + 1800);
}

TEST_F(IdentityTest, KeepsThePreviousVersionAndReportsABrokenVersionOnce) {
  const CertFiles files = certificates_.write("a", version(next_term()));
  int told = 0;
  const auto node = Identity::load(files, [&told](const Error&) { ++told; }).value();
  const std::int64_t first = node->expires_unix_s();
  ASSERT_TRUE(write_file_durably(files.certificate, "half a cert"));
  EXPECT_TRUE(shake(*coordinator_, *node).done());
  EXPECT_TRUE(shake(*coordinator_, *node).done());
  EXPECT_EQ(told, 1);
  std::filesystem::remove(files.certificate);
  EXPECT_TRUE(shake(*coordinator_, *node).done());
  EXPECT_EQ(told, 2);
  certificates_.write("a", Certificates::order(Peer::node("b")));
  EXPECT_TRUE(shake(*coordinator_, *node).done());
  EXPECT_EQ(told, 3) << "that of another node";
  EXPECT_EQ(node->expires_unix_s(), first);
  certificates_.write("a", version(next_term()));
  EXPECT_TRUE(shake(*coordinator_, *node).done());
  EXPECT_GT(node->expires_unix_s(), first + 1800);
  EXPECT_EQ(told, 3);
}

TEST_F(IdentityTest, FindsAValidPairDuringAReplacement) {
  const CertFiles files = certificates_.write("a", version(next_term()));
  const CertFiles next = certificates_.write("next", version(next_term()));
  const auto text = [](const std::string& path) { return read_file(path, 1 << 16).value(); };
  const auto serves = [&] {
    const auto node = Identity::load(files);
    return node && shake(*coordinator_, **node).done();
  };
  ASSERT_TRUE(write_file_durably(files.key + ".new", text(next.key)));
  EXPECT_TRUE(serves()) << "the new key is there alone";
  ASSERT_TRUE(write_file_durably(files.certificate, text(next.certificate)));
  EXPECT_TRUE(serves()) << "the new key has not got its name";
  ASSERT_TRUE(
      write_file_durably(files.key + ".new", text(certificates_.write("c", version(next_term())).key)));
  EXPECT_FALSE(serves()) << "no key of the certificate";
  ASSERT_TRUE(replace_pair(files.certificate, text(next.certificate), files.key, text(next.key)));
  EXPECT_TRUE(serves());
  EXPECT_FALSE(std::filesystem::exists(files.key + ".new"));
}

TEST(PeerNames, PeerNamesAreParsedAsPrinted) {
  for (const Peer& peer :
       {Peer::coordinator(), Peer::node("node-a"), Peer::node("a.b_c"), Peer::client("admin")})
    EXPECT_EQ(peer_of_dns_name(dns_name_of(peer)), peer);
  for (const char* name : {"", "node.gpumigrate", ".node.gpumigrate", "a.gpumigrate", "a.node.gpumigrate.org",
                           "*.node.gpumigrate", "..node.gpumigrate", "Coordinator.gpumigrate"})
    EXPECT_EQ(peer_of_dns_name(name), Peer()) << name;
  EXPECT_EQ(peer_of_dns_name("a.node.gpumigrate.node.gpumigrate"), Peer::node("a.node.gpumigrate"));
}

TEST(DeniedSerials, SerialOfACertificateMatchesInAnySpelling) {
  Certificates certificates;
  const auto identity = certificates.identity("a", Peer::node("a"));
  const Peer& subject = identity->subject();
  ASSERT_FALSE(subject.serial.empty());
  EXPECT_EQ(subject.ends_s, identity->expires_unix_s());
  std::string spelled = "0x00";
  for (const char c : subject.serial)
    spelled += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  EXPECT_EQ(serial_of_text(spelled).value(), subject.serial);
  EXPECT_EQ(serial_of_text("0A:bC").value(), "abc");
  EXPECT_EQ(serial_of_text("00").value(), "0");
  for (const std::string& wrong : {std::string(), std::string("0x"), std::string("xy"), std::string("-1"),
                                   std::string(kMaxSerialDigits + 1, 'a')})
    EXPECT_FALSE(serial_of_text(wrong)) << wrong;
}

TEST(DeniedSerials, ListIsBoundedAndReplacedAtomically) {
  DeniedSerials denied;
  ASSERT_TRUE(denied.replace({"0A", "b"}));
  EXPECT_TRUE(denied.contains("a"));
  EXPECT_FALSE(denied.contains(""));
  EXPECT_FALSE(denied.replace({"c", "no serial"}));
  EXPECT_TRUE(denied.contains("a"));
  EXPECT_FALSE(denied.replace(std::vector<std::string>(DeniedSerials::kMax + 1, "c")));
  ASSERT_TRUE(denied.replace({"c"}));
  EXPECT_FALSE(denied.contains("a"));
}

}  // namespace
}  // namespace ckpt::tls
