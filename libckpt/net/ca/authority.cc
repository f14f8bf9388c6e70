// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/ca/authority.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <array>
#include <ctime>

namespace ckpt::tls {
namespace {

constexpr long kVersion3 = 2;
constexpr std::chrono::minutes kClockDifference{5};
constexpr std::size_t kMaxHosts = 64;
constexpr std::size_t kMaxHostBytes = 253;
constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";

struct ExtensionTraits {
  using Value = X509_EXTENSION*;
  static constexpr Value kNull = nullptr;
  static void close(Value extension) noexcept { X509_EXTENSION_free(extension); }
};
struct NumberTraits {
  using Value = BIGNUM*;
  static constexpr Value kNull = nullptr;
  static void close(Value number) noexcept { BN_free(number); }
};

Error failed(const char* what) {
  return {ErrorCode::kInternal, std::string(what) + ": " + take_openssl_error()};
}

Result<UniquePrivateKey> make_key() {
  UniquePrivateKey key(EVP_EC_gen("P-256"));
  if (!key) return failed("Making a key");
  return key;
}

Result<void> set_serial(X509* certificate) {
  std::array<unsigned char, 16> random{};
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) return failed("Drawing a number");
  random.front() &= 0x7f;
  random.front() |= 0x40;
  const UniqueHandle<NumberTraits> number(BN_bin2bn(random.data(), static_cast<int>(random.size()), nullptr));
  if (!number || BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) == nullptr)
    return failed("Numbering a certificate");
  return ok();
}

Result<void> set_times(X509* certificate, std::chrono::seconds begins, std::chrono::seconds term) {
  const std::time_t first =
      std::time(nullptr) + begins.count() - std::chrono::seconds(kClockDifference).count();
  const std::time_t last = std::time(nullptr) + begins.count() + term.count();
  if (ASN1_TIME_set(X509_getm_notBefore(certificate), first) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate), last) == nullptr)
    return failed("Dating a certificate");
  return ok();
}

Result<void> set_name(X509_NAME* name, const std::string& text) {
  if (X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>(text.c_str()),
                                 static_cast<int>(text.size()), -1, 0) != 1)
    return failed("Naming a certificate");
  return ok();
}

// `value` in the form of OpenSSL's configuration files.
Result<void> add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const UniqueHandle<ExtensionTraits> extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  if (!extension || X509_add_ext(certificate, extension.get(), -1) != 1)
    return failed("Extending a certificate");
  return ok();
}

struct Extension {
  int kind;
  std::string value;
};

// What all certificates have, unsigned yet.
Result<UniqueCertificate> begin(EVP_PKEY* key, const std::string& name, std::chrono::seconds begins,
                                std::chrono::seconds term) {
  UniqueCertificate made(X509_new());
  if (!made || X509_set_version(made.get(), kVersion3) != 1 || X509_set_pubkey(made.get(), key) != 1)
    return failed("Making a certificate");
  CKPT_TRYV(set_serial(made.get()));
  CKPT_TRYV(set_times(made.get(), begins, term));
  CKPT_TRYV(set_name(X509_get_subject_name(made.get()), name));
  return made;
}

Result<void> finish(X509* certificate, X509* issuer, EVP_PKEY* key,
                    const std::vector<Extension>& extensions) {
  if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) != 1)
    return failed("Naming an issuer");
  for (const auto& [kind, value] : extensions) {
    CKPT_TRYV(add_extension(certificate, issuer, kind, value));
  }
  if (X509_sign(certificate, key, EVP_sha256()) == 0) return failed("Signing a certificate");
  return ok();
}

bool is_address(const std::string& host) {
  std::array<unsigned char, 16> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

// The names are of alphabets without the characters that separate them here.
Result<std::string> names_of(const Authority::Order& order) {
  const std::string own = dns_name_of(order.subject);
  if (own.empty() || peer_of_dns_name(own) != order.subject)
    return Error(ErrorCode::kInvalidArgument, "\"" + order.subject.name + "\" is no name for a certificate");
  if (order.hosts.size() > kMaxHosts) return Error(ErrorCode::kInvalidArgument, "More than 64 hosts");
  std::string names = "DNS:" + own;
  for (const std::string& host : order.hosts) {
    const bool is_name = !host.empty() && host.size() <= kMaxHostBytes &&
                         host.find_first_not_of(kLetters) == std::string::npos &&
                         !host.ends_with(".gpumigrate");
    if (!is_address(host) && !is_name)
      return Error(ErrorCode::kInvalidArgument, "\"" + host + "\" is no IP address and no name of a host");
    names += (is_address(host) ? ",IP:" : ",DNS:") + host;
  }
  return names;
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(bytes)};
}

Result<Issued> pem_of(X509* certificate, EVP_PKEY* key) {
  const UniqueBio certificate_text(BIO_new(BIO_s_mem()));
  const UniqueBio key_text(BIO_new(BIO_s_secmem()));
  if (!certificate_text || !key_text || PEM_write_bio_X509(certificate_text.get(), certificate) != 1 ||
      PEM_write_bio_PKCS8PrivateKey(key_text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return failed("Writing a certificate");
  return Issued{text_of(certificate_text.get()), text_of(key_text.get())};
}

}  // namespace

Result<Authority> Authority::create(std::chrono::seconds term) {
  CKPT_TRY(key, make_key());
  CKPT_TRY(certificate, begin(key.get(), "gpumigrate", std::chrono::seconds(0), term));
  CKPT_TRYV(finish(certificate.get(), certificate.get(), key.get(),
                   {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                    {NID_key_usage, "critical,keyCertSign,cRLSign"},
                    {NID_subject_key_identifier, "hash"}}));
  return Authority(std::move(certificate), std::move(key));
}

Result<Authority> Authority::from_pem(const Issued& pem) {
  const UniqueBio certificate_text = bio_of(pem.certificate);
  const UniqueBio key_text = bio_of(pem.key);
  UniqueCertificate certificate(
      certificate_text ? PEM_read_bio_X509(certificate_text.get(), nullptr, no_password, nullptr) : nullptr);
  UniquePrivateKey key(key_text ? PEM_read_bio_PrivateKey(key_text.get(), nullptr, no_password, nullptr)
                                : nullptr);
  const bool belongs = certificate && key && X509_check_private_key(certificate.get(), key.get()) == 1 &&
                       X509_check_ca(certificate.get()) == 1;
  ERR_clear_error();
  if (!belongs)
    return Error(ErrorCode::kInvalidArgument, "Not an authority's certificate in PEM with its key");
  return Authority(std::move(certificate), std::move(key));
}

Result<Issued> Authority::pem() const {
  return pem_of(certificate_.get(), key_.get());
}

Result<Issued> Authority::sign(const Order& order) const {
  CKPT_TRY(names, names_of(order));
  CKPT_TRY(key, make_key());
  const bool is_coordinator = order.subject.kind == Peer::Kind::kCoordinator;
  CKPT_TRY(certificate,
           begin(key.get(), is_coordinator ? "coordinator" : order.subject.name, order.begins, order.term));
  const bool only_dials = order.subject.kind == Peer::Kind::kClient;
  CKPT_TRYV(finish(certificate.get(), certificate_.get(), key_.get(),
                   {{NID_basic_constraints, "critical,CA:FALSE"},
                    {NID_key_usage, "critical,digitalSignature"},
                    {NID_ext_key_usage, only_dials ? "clientAuth" : "serverAuth,clientAuth"},
                    {NID_subject_key_identifier, "hash"},
                    {NID_authority_key_identifier, "keyid:always"},
                    {NID_subject_alt_name, names}}));
  return pem_of(certificate.get(), key.get());
}

}  // namespace ckpt::tls
