// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/tls/cert_identity.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/fd.h"
#include "libckpt/net/tls/cert_denied.h"
#include "libckpt/net/tls/cert_handles.h"

namespace ckpt::tls {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxKeyBytes = 16 << 10;
constexpr int kMaxCertificates = 256;
constexpr int kMaxChain = 4;
constexpr const char* kCertGroups = "X25519:P-256";

Error not_usable(const std::string& path, const std::string& reason) {
  return {ErrorCode::kInvalidArgument, path + ": " + reason};
}

Error setup_failed() {
  return {ErrorCode::kInternal, "Setting up TLS: " + pop_openssl_error()};
}

// Key material whose memory is cleared on destruction.
struct Secret {
  std::string text;
  ~Secret() { OPENSSL_cleanse(text.data(), text.size()); }
};

Result<void> read_key_text(const std::string& path, Secret& secret) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return Error::from_errno("Cannot open the key " + path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return Error::from_errno("Cannot read the key " + path);
  if (!S_ISREG(info.st_mode)) return not_usable(path, "this is not a regular file");
  if ((info.st_mode & 0177) != 0 || (info.st_uid != ::geteuid() && info.st_uid != 0))
    return Error(ErrorCode::kRefused,
                 path + " must be a key of this user or of root that no other user can read: chmod 600");
  secret.text.resize(kMaxKeyBytes + 1);
  std::size_t have = 0;
  while (have < secret.text.size()) {
    const ssize_t got = ::read(file.get(), secret.text.data() + have, secret.text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Cannot read the key " + path);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  if (have > kMaxKeyBytes) return not_usable(path, "it is too large for a key");
  secret.text.resize(have);
  return ok();
}

Result<void> use_key(SSL_CTX* context, const std::string& path) {
  Secret secret;
  CKPT_TRYV(read_key_text(path, secret));
  const UniqueBio bio = bio_of(secret.text);
  const UniquePrivateKey key(bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr)
                                 : nullptr);
  if (!key) return not_usable(path, "it does not contain an unencrypted PEM private key");
  ERR_clear_error();
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    ERR_clear_error();
    return not_usable(path, "this is not the key of the certificate");
  }
  return ok();
}

std::string new_key_of(const std::string& key_file) {
  return key_file + ".new";
}

// Uses the key at `path`, or the new key: after a replacement, the new key may not have its final name yet
// (replace_pair).
Result<void> use_key_or_new(SSL_CTX* context, const std::string& path) {
  auto used = use_key(context, path);
  if (used || ::access(new_key_of(path).c_str(), F_OK) != 0) return used;
  return use_key(context, new_key_of(path)) ? Result<void>(ok()) : used;
}

// Calls `visit` with the position and the certificate for each certificate of the file. Returns their number,
// or an error if `visit` returns false.
Result<int> each_certificate(const std::string& path, const std::function<bool(int, X509*)>& visit) {
  CKPT_TRY(text, read_file(path, kMaxFileBytes));
  const UniqueBio bio = bio_of(text);
  int count = 0;
  while (bio) {
    const UniqueCertificate certificate(PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr));
    if (!certificate) break;
    if (count == kMaxCertificates || !visit(count, certificate.get()))
      return not_usable(path, "certificate " + std::to_string(count + 1) + ": " + pop_openssl_error());
    ++count;
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (count == 0 || !at_end) return not_usable(path, "it does not contain PEM certificates");
  return count;
}

Result<UniqueSslContext> make_context() {
  UniqueSslContext made(SSL_CTX_new(TLS_method()));
  SSL_CTX* context = made.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set1_groups_list(context, kCertGroups) != 1 || SSL_CTX_set_num_tickets(context, 0) != 1 ||
      SSL_CTX_set_max_early_data(context, 0) != 1 || SSL_CTX_set_recv_max_early_data(context, 0) != 1)
    return setup_failed();
  SSL_CTX_set_security_level(context, 2);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_verify_depth(context, kMaxChain);
  return made;
}

}  // namespace

Result<void> check_complete(const CertFiles& files) {
  if (files.empty()) return ok();
  for (const std::string* path : {&files.ca, &files.certificate, &files.key}) {
    if (!path->starts_with('/'))
      return Error(ErrorCode::kInvalidArgument,
                   "TLS needs \"ca\", \"certificate\" and \"key\", each an absolute path");
  }
  return ok();
}

Result<void> replace_pair(const std::string& certificate_file, const std::string& certificate,
                          const std::string& key_file, const std::string& key) {
  CKPT_TRYV(write_file_durably(new_key_of(key_file), key, 0600));
  CKPT_TRYV(write_file_durably(certificate_file, certificate, 0644));
  if (::rename(new_key_of(key_file).c_str(), key_file.c_str()) != 0)
    return Error::from_errno("Cannot rename the new key to " + key_file);
  return ok();
}

Result<std::shared_ptr<Identity>> Identity::load(CertFiles files, OnError on_error) {
  CKPT_TRYV(check_complete(files));
  if (files.empty()) return Error(ErrorCode::kInvalidArgument, "No certificate is specified");
  std::shared_ptr<Identity> identity(new Identity(std::move(files), std::move(on_error)));
  identity->seen_ = identity->stamps();
  CKPT_TRYV(identity->read());
  return identity;
}

Identity::Stamps Identity::stamps() const {
  Stamps stamps;
  const std::array<const std::string*, 3> paths{&files_.ca, &files_.certificate, &files_.key};
  for (std::size_t i = 0; i < paths.size(); ++i) {
    struct stat info {};
    if (::stat(paths[i]->c_str(), &info) != 0) continue;
    stamps[i] = {info.st_dev, info.st_ino, info.st_size,
                 info.st_mtim.tv_sec * std::int64_t{1'000'000'000} + info.st_mtim.tv_nsec};
  }
  return stamps;
}

Result<void> Identity::read() {
  CKPT_TRY(context, make_context());
  SSL_CTX* ssl = context.get();
  X509_STORE* believed = SSL_CTX_get_cert_store(ssl);
  CKPT_TRY(authorities, each_certificate(files_.ca, [believed](int, X509* certificate) {
             return X509_STORE_add_cert(believed, certificate) == 1;
           }));
  CKPT_TRY(chain, each_certificate(files_.certificate, [ssl](int number, X509* certificate) {
             if (number > 0) return number <= kMaxChain && SSL_CTX_add1_chain_cert(ssl, certificate) == 1;
             return SSL_CTX_use_certificate(ssl, certificate) == 1;
           }));
  static_cast<void>(authorities);
  static_cast<void>(chain);
  CKPT_TRYV(use_key_or_new(ssl, files_.key));
  X509* own = SSL_CTX_get0_certificate(ssl);
  CKPT_TRY(subject, peer_of(own));
  if (context_ && subject != subject_)
    return not_usable(files_.certificate, "that of " + to_text(subject) + ", not of " + to_text(subject_));
  context_ = std::move(context);
  subject_ = std::move(subject);
  expires_unix_s_ = end_of(own);
  return ok();
}

void Identity::refresh() {
  const Stamps now = stamps();
  if (now == seen_) return;
  seen_ = now;
  auto read_anew = read();
  if (!read_anew && on_error_)
    on_error_(Error(ErrorCode::kInvalidArgument,
                    "The new certificate is not usable, so the previous one stays in use")
                  .caused_by(read_anew.error()));
}

Result<UniqueSsl> Identity::make_ssl() {
  refresh();
  ERR_clear_error();
  UniqueSsl ssl(SSL_new(context_.get()));
  if (!ssl) return setup_failed();
  return ssl;
}

}  // namespace ckpt::tls
