// SPDX-License-Identifier: Apache-2.0
// The identity of this process in its cluster: its certificate and key, and the trusted CA certificates, from
// three PEM files. Its connections use TLS 1.3 and verify both sides. They use no tickets, resumption or
// renegotiation. The files are checked before each new connection and read again when they have changed. If
// the new version is not usable, the former version stays in use, and the error is reported once.
// Threads: one. Ownership: shared; connections keep the parts that they need alive. Errors: kNotFound;
// kRefused for a key that other users can read; kInvalidArgument for files that are not PEM or do not match.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/tls/cert_peer.h"
#include "libckpt/net/tls/psk_context.h"

namespace ckpt::tls {

struct CertFiles {
  std::string ca;           // the file of one or more trusted certificates
  std::string certificate;  // the file of this process's certificate, followed by the certificates between it
                            // and the CA
  std::string key;  // the file of the key, with mode 0600 or 0400, owned by this process's user or by root
  friend bool operator==(const CertFiles&, const CertFiles&) = default;
  [[nodiscard]] bool empty() const { return ca.empty() && certificate.empty() && key.empty(); }
};
// Checks that either no file or all three files are set, as absolute paths.
Result<void> check_complete(const CertFiles& files);
// Replaces certificate and key (PEM). Identity::load() finds a matching pair at any time, even after a crash
// during the replacement: the new key is stored in KEY.new until the new certificate is written. Blocks on
// disk I/O. Errors: as write_file_durably().
Result<void> replace_pair(const std::string& certificate_file, const std::string& certificate,
                          const std::string& key_file, const std::string& key);

class Identity {
 public:
  using OnError = std::function<void(const Error&)>;
  // Loads the identity. `on_error` receives the problem if a new version of the files is not usable.
  static Result<std::shared_ptr<Identity>> load(CertFiles files, OnError on_error = {});

  // Creates an SSL object for one connection, which may accept or dial.
  Result<UniqueSsl> make_ssl();
  [[nodiscard]] const CertFiles& files() const noexcept { return files_; }
  // Checks now whether the files have changed, and reads changed files again.
  void refresh();
  // Returns the peer that the certificate names. New versions of the certificate name the same peer.
  [[nodiscard]] const Peer& subject() const noexcept { return subject_; }
  // Returns the time at which the certificate in use expires, in seconds since 1970.
  [[nodiscard]] std::int64_t expires_unix_s() const noexcept { return expires_unix_s_; }

 private:
  // The attributes that distinguish one version of a file from another.
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    std::int64_t size = -1;
    std::int64_t changed_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  using Stamps = std::array<Stamp, 3>;
  Identity(CertFiles files, OnError on_error) : files_(std::move(files)), on_error_(std::move(on_error)) {}
  [[nodiscard]] Stamps stamps() const;
  Result<void> read();

  CertFiles files_;
  OnError on_error_;
  UniqueSslContext context_;
  Stamps seen_;  // the last version that was read, usable or not
  Peer subject_;
  std::int64_t expires_unix_s_ = 0;
};

}  // namespace ckpt::tls
