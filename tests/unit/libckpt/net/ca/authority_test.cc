// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/ca/authority.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "libckpt/net/ca/request.h"

namespace ckpt::tls {
namespace {

UniqueCertificate parsed(const Issued& issued) {
  return UniqueCertificate(
      PEM_read_bio_X509(bio_of(issued.certificate).get(), nullptr, no_password, nullptr));
}

Authority::Order order_of(Peer subject, std::vector<std::string> hosts = {}) {
  Authority::Order order;
  order.subject = std::move(subject);
  order.hosts = std::move(hosts);
  return order;
}

TEST(Authority, SignedCertificatesAreVerifiedByTheAuthority) {
  const Authority authority = Authority::create().value();
  const UniqueCertificate own = parsed(authority.pem().value());
  const UniqueCertificate node = parsed(authority.sign(order_of(Peer::node("node-a"))).value());
  EXPECT_EQ(X509_verify(node.get(), X509_get0_pubkey(own.get())), 1);
  EXPECT_EQ(X509_check_ca(own.get()), 1);
  EXPECT_EQ(X509_check_ca(node.get()), 0);
  EXPECT_EQ(peer_of(node.get()).value(), Peer::node("node-a"));
}

TEST(Authority, AuthorityContinuesFromItsFiles) {
  const Issued kept = Authority::create().value().pem().value();
  const Authority again = Authority::from_pem(kept).value();
  const UniqueCertificate node = parsed(again.sign(order_of(Peer::node("a"))).value());
  EXPECT_EQ(X509_verify(node.get(), X509_get0_pubkey(parsed(kept).get())), 1);
  Issued foreign = kept;
  foreign.key = Authority::create().value().pem().value().key;
  EXPECT_FALSE(Authority::from_pem(foreign));
  EXPECT_FALSE(Authority::from_pem(again.sign(order_of(Peer::node("a"))).value())) << "no authority";
}

TEST(Authority, CoordinatorCertificateAlsoNamesItsHosts) {
  const Authority authority = Authority::create().value();
  const auto issued = authority.sign(order_of(Peer::coordinator(), {"10.0.0.1", "fd77::1", "head.example"}));
  const UniqueCertificate coordinator = parsed(issued.value());
  EXPECT_EQ(peer_of(coordinator.get()).value(), Peer::coordinator());
  EXPECT_EQ(X509_check_ip_asc(coordinator.get(), "10.0.0.1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(coordinator.get(), "fd77::1", 0), 1);
  EXPECT_EQ(X509_check_host(coordinator.get(), "head.example", 0, 0, nullptr), 1);
}

TEST(Authority, AuthorityCertifiesAKeyMadeElsewhere) {
  const Authority authority = Authority::create().value();
  const SigningRequest made = make_signing_request().value();
  const std::string certificate =
      authority.certify(made.request, order_of(Peer::node("node-a"), {"10.0.0.2", "a.example"})).value();
  EXPECT_TRUE(authority.has_signed(certificate));
  EXPECT_FALSE(Authority::create().value().has_signed(certificate));
  EXPECT_EQ(peer_with_key(certificate, made.key).value(), Peer::node("node-a"));
  EXPECT_EQ(hosts_of(certificate).value(), (std::vector<std::string>{"10.0.0.2", "a.example"}));
  EXPECT_FALSE(peer_with_key(certificate, make_signing_request().value().key)) << "another key";
}

TEST(Authority, SigningRequestContainsTheAddressesOfItsMachine) {
  const std::vector<std::string> asked = {"10.0.0.2", "fd77::2"};
  const SigningRequest made = make_signing_request(asked).value();
  EXPECT_EQ(addresses_of_request(made.request).value(), asked);
  EXPECT_TRUE(key_of_request(made.request));
  EXPECT_TRUE(addresses_of_request(make_signing_request().value().request).value().empty());
  EXPECT_EQ(addresses_of_request(make_signing_request(std::vector<std::string>(9, "::1")).value().request)
                .value()
                .size(),
            kMaxAddresses);
  EXPECT_FALSE(make_signing_request({"10.0.0.2,DNS:coordinator.gpumigrate"})) << "no address";
  EXPECT_FALSE(addresses_of_request("nothing"));
}

TEST(Authority, RequestNotSignedByItsKeyIsRefused) {
  const Authority authority = Authority::create().value();
  const std::string request = make_signing_request().value().request;
  // Replaces the key in the request, and leaves the signature unchanged.
  const std::size_t body = request.find('\n') + 1;
  std::string forged = request;
  forged[body + 60] = forged[body + 60] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(authority.certify(forged, order_of(Peer::node("a"))));
  EXPECT_FALSE(authority.certify("", order_of(Peer::node("a"))));
  EXPECT_FALSE(authority.certify(std::string(1 << 20, 'A'), order_of(Peer::node("a"))));
  EXPECT_FALSE(authority.certify(authority.pem().value().certificate, order_of(Peer::node("a"))));
  EXPECT_TRUE(authority.certify(request, order_of(Peer::node("a"))));
}

TEST(Authority, RefusesInvalidNodeAndHostNames) {
  const Authority authority = Authority::create().value();
  for (const char* name : {"", ".a", "a,DNS:coordinator.gpumigrate", "a b", "*"})
    EXPECT_FALSE(authority.sign(order_of(Peer::node(name)))) << name;
  EXPECT_TRUE(authority.sign(order_of(Peer::node(std::string(63, 'n')))));
  for (const char* host : {"", "a,DNS:b", "coordinator.gpumigrate", "*.example", "a/b"})
    EXPECT_FALSE(authority.sign(order_of(Peer::node("a"), {host}))) << host;
}

}  // namespace
}  // namespace ckpt::tls
