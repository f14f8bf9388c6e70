// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/ca/authority.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <array>
#include <ctime>

#include "libckpt/base/fd.h"
#include "libckpt/net/ca/request.h"

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
  return {ErrorCode::kInternal, std::string(what) + ": " + pop_openssl_error()};
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

// Adds an extension to the certificate. `value` has the form of OpenSSL's configuration files.
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

// Creates an unsigned certificate with the fields that all certificates have.
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
    return failed("Cannot set the issuer's name");
  for (const auto& [kind, value] : extensions) {
    CKPT_TRYV(add_extension(certificate, issuer, kind, value));
  }
  if (X509_sign(certificate, key, EVP_sha256()) == 0) return failed("Signing a certificate");
  return ok();
}

// Returns the common name, which is for people only. Checks use the DNS name.
std::string common_name_of(const Peer& subject) {
  if (subject.kind == Peer::Kind::kCoordinator) return "coordinator";
  return subject.kind == Peer::Kind::kJoiner ? "join" : subject.name;
}

bool is_address(const std::string& host) {
  std::array<unsigned char, 16> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

// Returns the names in OpenSSL's notation. Valid names never contain the characters that separate names in
// this notation.
Result<std::string> names_of(const Authority::Order& order) {
  const std::string own = dns_name_of(order.subject);
  if (own.empty() || peer_of_dns_name(own) != order.subject)
    return Error(ErrorCode::kInvalidArgument,
                 "\"" + order.subject.name + "\" is not a valid name for a certificate");
  if (order.hosts.size() > kMaxHosts)
    return Error(ErrorCode::kInvalidArgument, "A certificate can have at most 64 hosts");
  std::string names = "DNS:" + own;
  for (const std::string& host : order.hosts) {
    const bool is_name = !host.empty() && host.size() <= kMaxHostBytes &&
                         host.find_first_not_of(kLetters) == std::string::npos &&
                         !host.ends_with(".gpumigrate");
    if (!is_address(host) && !is_name)
      return Error(ErrorCode::kInvalidArgument, "\"" + host + "\" is neither an IP address nor a host name");
    names += (is_address(host) ? ",IP:" : ",DNS:") + host;
  }
  return names;
}

}  // namespace

Result<Authority> Authority::create(std::chrono::seconds term) {
  CKPT_TRY(key, make_private_key());
  CKPT_TRY(certificate, begin(key.get(), "gpumigrate", std::chrono::seconds(0), term));
  CKPT_TRYV(finish(certificate.get(), certificate.get(), key.get(),
                   {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                    {NID_key_usage, "critical,keyCertSign,cRLSign"},
                    {NID_subject_key_identifier, "hash"}}));
  return Authority(std::move(certificate), std::move(key));
}

Result<Authority> Authority::from_pem(const Issued& pem) {
  const UniqueBio key_text = bio_of(pem.key);
  auto certificate = certificate_of(pem.certificate);
  UniquePrivateKey key(key_text ? PEM_read_bio_PrivateKey(key_text.get(), nullptr, no_password, nullptr)
                                : nullptr);
  const bool belongs = certificate && key && X509_check_private_key(certificate->get(), key.get()) == 1 &&
                       X509_check_ca(certificate->get()) == 1;
  ERR_clear_error();
  if (!belongs)
    return Error(ErrorCode::kInvalidArgument,
                 "The two texts are not an authority's PEM certificate and its key");
  return Authority(*std::move(certificate), std::move(key));
}

Result<Authority> Authority::read(const std::string& folder) {
  const std::string key_file = folder + "/ca.key";
  struct stat info {};
  if (::stat(key_file.c_str(), &info) != 0)
    return Error::from_errno("Cannot read the authority's key " + key_file);
  if ((info.st_mode & 0077) != 0)
    return Error(ErrorCode::kRefused, key_file + " can be read by other users: chmod 600");
  Issued pem;
  CKPT_TRY(certificate, read_file(folder + "/ca.pem", kMaxPemBytes));
  CKPT_TRY(key, read_file(key_file, kMaxPemBytes));
  pem.certificate = std::move(certificate);
  pem.key = std::move(key);
  return from_pem(pem);
}

Result<Issued> Authority::pem() const {
  Issued issued;
  CKPT_TRY(certificate, pem_of(certificate_.get()));
  CKPT_TRY(key, pem_of(key_.get()));
  issued.certificate = std::move(certificate);
  issued.key = std::move(key);
  return issued;
}

Result<UniqueCertificate> Authority::make(EVP_PKEY* key, const Order& order) const {
  CKPT_TRY(names, names_of(order));
  CKPT_TRY(certificate, begin(key, common_name_of(order.subject), order.begins, order.term));
  const bool only_dials =
      order.subject.kind == Peer::Kind::kClient || order.subject.kind == Peer::Kind::kJoiner;
  CKPT_TRYV(finish(certificate.get(), certificate_.get(), key_.get(),
                   {{NID_basic_constraints, "critical,CA:FALSE"},
                    {NID_key_usage, "critical,digitalSignature"},
                    {NID_ext_key_usage, only_dials ? "clientAuth" : "serverAuth,clientAuth"},
                    {NID_subject_key_identifier, "hash"},
                    {NID_authority_key_identifier, "keyid:always"},
                    {NID_subject_alt_name, names}}));
  return std::move(certificate);
}

Result<Issued> Authority::sign(const Order& order) const {
  CKPT_TRY(key, make_private_key());
  CKPT_TRY(certificate, make(key.get(), order));
  Issued issued;
  CKPT_TRY(certificate_text, pem_of(certificate.get()));
  CKPT_TRY(key_text, pem_of(key.get()));
  issued.certificate = std::move(certificate_text);
  issued.key = std::move(key_text);
  return issued;
}

Result<std::string> Authority::certify(const std::string& request, const Order& order) const {
  CKPT_TRY(key, key_of_request(request));
  CKPT_TRY(certificate, make(key.get(), order));
  return pem_of(certificate.get());
}

bool Authority::has_signed(const std::string& certificate) const {
  const auto read = certificate_of(certificate);
  const bool signed_here = read && X509_verify(read->get(), key_.get()) == 1;
  ERR_clear_error();
  return signed_here;
}

}  // namespace ckpt::tls
