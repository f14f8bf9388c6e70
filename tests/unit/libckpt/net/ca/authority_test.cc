// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/ca/authority.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

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

TEST(Authority, SignsWhatItsCertificateVerifies) {
  const Authority authority = Authority::create().value();
  const UniqueCertificate own = parsed(authority.pem().value());
  const UniqueCertificate node = parsed(authority.sign(order_of(Peer::node("node-a"))).value());
  EXPECT_EQ(X509_verify(node.get(), X509_get0_pubkey(own.get())), 1);
  EXPECT_EQ(X509_check_ca(own.get()), 1);
  EXPECT_EQ(X509_check_ca(node.get()), 0);
  EXPECT_EQ(peer_of(node.get()).value(), Peer::node("node-a"));
}

TEST(Authority, GoesOnFromItsFiles) {
  const Issued kept = Authority::create().value().pem().value();
  const Authority again = Authority::from_pem(kept).value();
  const UniqueCertificate node = parsed(again.sign(order_of(Peer::node("a"))).value());
  EXPECT_EQ(X509_verify(node.get(), X509_get0_pubkey(parsed(kept).get())), 1);
  Issued foreign = kept;
  foreign.key = Authority::create().value().pem().value().key;
  EXPECT_FALSE(Authority::from_pem(foreign));
  EXPECT_FALSE(Authority::from_pem(again.sign(order_of(Peer::node("a"))).value())) << "no authority";
}

TEST(Authority, NamesHostsBesideTheCoordinator) {
  const Authority authority = Authority::create().value();
  const auto issued = authority.sign(order_of(Peer::coordinator(), {"10.0.0.1", "fd77::1", "head.example"}));
  const UniqueCertificate coordinator = parsed(issued.value());
  EXPECT_EQ(peer_of(coordinator.get()).value(), Peer::coordinator());
  EXPECT_EQ(X509_check_ip_asc(coordinator.get(), "10.0.0.1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(coordinator.get(), "fd77::1", 0), 1);
  EXPECT_EQ(X509_check_host(coordinator.get(), "head.example", 0, 0, nullptr), 1);
}

TEST(Authority, RefusesNamesThatWouldSayMore) {
  const Authority authority = Authority::create().value();
  for (const char* name : {"", ".a", "a,DNS:coordinator.gpumigrate", "a b", "*"})
    EXPECT_FALSE(authority.sign(order_of(Peer::node(name)))) << name;
  EXPECT_TRUE(authority.sign(order_of(Peer::node(std::string(63, 'n')))));
  for (const char* host : {"", "a,DNS:b", "coordinator.gpumigrate", "*.example", "a/b"})
    EXPECT_FALSE(authority.sign(order_of(Peer::node("a"), {host}))) << host;
}

}  // namespace
}  // namespace ckpt::tls
