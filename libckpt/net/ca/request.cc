// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/ca/request.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <array>

namespace ckpt::tls {
namespace {

struct RequestTraits {
  using Value = X509_REQ*;
  static constexpr Value kNull = nullptr;
  static void close(Value request) noexcept { X509_REQ_free(request); }
};
struct NamesTraits {
  using Value = GENERAL_NAMES*;
  static constexpr Value kNull = nullptr;
  static void close(Value names) noexcept { GENERAL_NAMES_free(names); }
};
struct ExtensionsTraits {
  using Value = STACK_OF(X509_EXTENSION) *;
  static constexpr Value kNull = nullptr;
  static void close(Value extensions) noexcept {
    sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
  }
};
using UniqueRequest = UniqueHandle<RequestTraits>;
using UniqueExtensions = UniqueHandle<ExtensionsTraits>;

Error not_done(const char* what) {
  return {ErrorCode::kInternal, std::string(what) + ": " + pop_openssl_error()};
}

Error not_usable_text(const char* what) {
  ERR_clear_error();
  return {ErrorCode::kInvalidArgument, what};
}

// Returns the text that `write` writes into a BIO.
template <class Write>
Result<std::string> written(const BIO_METHOD* kind, const char* what, Write write) {
  const UniqueBio bio(BIO_new(kind));
  if (!bio || write(bio.get()) != 1) return not_done(what);
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<std::size_t>(bytes));
}

// Returns the host as text. Returns an empty string if `name` is neither an IP address nor a DNS name.
std::string host_of(const GENERAL_NAME& name) {
  const bool is_name = name.type == GEN_DNS;
  if (!is_name && name.type != GEN_IPADD) return {};
  const ASN1_STRING* text = is_name ? name.d.dNSName : name.d.iPAddress;
  const unsigned char* bytes = ASN1_STRING_get0_data(text);
  const int size = ASN1_STRING_length(text);
  if (is_name) return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)};
  std::array<char, INET6_ADDRSTRLEN> out{};
  const int family = size == 4 ? AF_INET : size == 16 ? AF_INET6 : AF_UNSPEC;
  return ::inet_ntop(family, bytes, out.data(), out.size()) == nullptr ? std::string() : out.data();
}

Result<void> ask_for(X509_REQ* request, const std::vector<std::string>& addresses) {
  if (addresses.empty()) return ok();
  std::string text;
  for (const std::string& address : addresses) {
    in6_addr parsed{};
    if (::inet_pton(AF_INET, address.c_str(), &parsed) != 1 &&
        ::inet_pton(AF_INET6, address.c_str(), &parsed) != 1)
      return Error(ErrorCode::kInvalidArgument, "\"" + address + "\" is not an IP address");
    text += (text.empty() ? "IP:" : ",IP:") + address;
  }
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, nullptr, nullptr, request, nullptr, 0);
  const UniqueExtensions extensions(sk_X509_EXTENSION_new_null());
  X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, &context, NID_subject_alt_name, text.c_str());
  if (!extensions || names == nullptr || sk_X509_EXTENSION_push(extensions.get(), names) == 0) {
    X509_EXTENSION_free(names);
    return not_done("Cannot request addresses in a certificate");
  }
  if (X509_REQ_add_extensions(request, extensions.get()) != 1)
    return not_done("Cannot request addresses in a certificate");
  return ok();
}

UniqueRequest read_request(const std::string& request) {
  const UniqueBio text = bio_of(request);
  return UniqueRequest(text ? PEM_read_bio_X509_REQ(text.get(), nullptr, no_password, nullptr) : nullptr);
}

}  // namespace

Result<UniquePrivateKey> make_private_key() {
  UniquePrivateKey key(EVP_EC_gen("P-256"));
  if (!key) return not_done("Making a key");
  return key;
}

Result<std::string> pem_of(X509* certificate) {
  return written(BIO_s_mem(), "Writing a certificate",
                 [&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

Result<std::string> pem_of(EVP_PKEY* key) {
  return written(BIO_s_secmem(), "Writing a key", [&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

Result<SigningRequest> make_signing_request(const std::vector<std::string>& addresses) {
  CKPT_TRY(key, make_private_key());
  const UniqueRequest request(X509_REQ_new());
  if (!request || X509_REQ_set_version(request.get(), 0) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1)
    return not_done("Cannot create a certificate request");
  CKPT_TRYV(ask_for(request.get(), addresses));
  if (X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0)
    return not_done("Cannot create a certificate request");
  SigningRequest made;
  CKPT_TRY(text, written(BIO_s_mem(), "Writing a request",
                         [&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request.get()); }));
  CKPT_TRY(key_text, pem_of(key.get()));
  made.request = std::move(text);
  made.key = std::move(key_text);
  return made;
}

Result<UniquePrivateKey> key_of_request(const std::string& request) {
  if (request.size() > kMaxPemBytes) return not_usable_text("The certificate request is too long");
  const UniqueRequest read = read_request(request);
  UniquePrivateKey key(read ? X509_REQ_get_pubkey(read.get()) : nullptr);
  if (!key || X509_REQ_verify(read.get(), key.get()) != 1)
    return not_usable_text("This is not a certificate request, or its own key did not sign the request");
  if (EVP_PKEY_is_a(key.get(), "EC") != 1 || EVP_PKEY_get_bits(key.get()) != 256)
    return not_usable_text("The key of the certificate request does not use the curve P-256");
  return key;
}

Result<std::vector<std::string>> addresses_of_request(const std::string& request) {
  if (request.size() > kMaxPemBytes) return not_usable_text("The certificate request is too long");
  const UniqueRequest read = read_request(request);
  if (!read) return not_usable_text("This is not a certificate request");
  const UniqueExtensions extensions(X509_REQ_get_extensions(read.get()));
  const UniqueHandle<NamesTraits> names(
      static_cast<GENERAL_NAMES*>(X509V3_get_d2i(extensions.get(), NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> addresses;
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()) && addresses.size() < kMaxAddresses; ++i) {
    const GENERAL_NAME& name = *sk_GENERAL_NAME_value(names.get(), i);
    std::string address = name.type == GEN_IPADD ? host_of(name) : std::string();
    if (!address.empty()) addresses.push_back(std::move(address));
  }
  ERR_clear_error();
  return addresses;
}

Result<UniqueCertificate> certificate_of(const std::string& pem) {
  const UniqueBio text = bio_of(pem);
  UniqueCertificate certificate(text ? PEM_read_bio_X509(text.get(), nullptr, no_password, nullptr)
                                     : nullptr);
  if (!certificate) return not_usable_text("This is not a PEM certificate");
  return certificate;
}

Result<std::vector<std::string>> hosts_of(const std::string& certificate) {
  CKPT_TRY(read, certificate_of(certificate));
  const UniqueHandle<NamesTraits> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(read.get(), NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> hosts;
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    std::string host = host_of(*sk_GENERAL_NAME_value(names.get(), i));
    if (!host.empty() && peer_of_dns_name(host).kind == Peer::Kind::kNobody) hosts.push_back(std::move(host));
  }
  return hosts;
}

Result<Peer> peer_with_key(const std::string& certificate, const std::string& key) {
  CKPT_TRY(read, certificate_of(certificate));
  const UniqueBio text = bio_of(key);
  const UniquePrivateKey own(text ? PEM_read_bio_PrivateKey(text.get(), nullptr, no_password, nullptr)
                                  : nullptr);
  if (!own || X509_check_private_key(read.get(), own.get()) != 1)
    return not_usable_text("The certificate belongs to a different key");
  return peer_of(read.get());
}

}  // namespace ckpt::tls
