// SPDX-License-Identifier: Apache-2.0
// The identity of this process in its cluster: its certificate and key, and the CA certificates that it
// believes, from three PEM files. Its connections are TLS 1.3 with both sides verified, without tickets,
// resumption or renegotiation. The files are checked before each new connection, and read when they have
// changed. If the new version is not usable, the former stays in use, and the error is told once.
// Threads: one. Ownership: shared; connections keep what they need of it. Errors: kNotFound, kRefused (a key
// that others can read), kInvalidArgument (not PEM, or not belonging together).
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
  std::string ca;           // one or more certificates that are believed
  std::string certificate;  // this process's own first, then those between it and the CA
  std::string key;          // mode 0600 or 0400, of this process's user or of root
  friend bool operator==(const CertFiles&, const CertFiles&) = default;
  [[nodiscard]] bool empty() const { return ca.empty() && certificate.empty() && key.empty(); }
};
// Nothing, or all three as absolute paths.
Result<void> check_complete(const CertFiles& files);
// Replaces certificate and key (PEM). Identity::load() finds a pair at any time, also after a crash in between: the
// new key stands in KEY.new until the certificate is there. Blocks for the disk. Errors: as write_file_durably().
Result<void> replace_pair(const std::string& certificate_file, const std::string& certificate,
                          const std::string& key_file, const std::string& key);

class Identity {
 public:
  using Tell = std::function<void(const Error&)>;
  // `tell` gets what is wrong with a new version of the files.
  static Result<std::shared_ptr<Identity>> load(CertFiles files, Tell tell = {});

  // For one connection, of a side that accepts or that dials.
  Result<UniqueSsl> make_ssl();
  [[nodiscard]] const CertFiles& files() const noexcept { return files_; }
  // Looks at the files now.
  void refresh();
  // The peer that the certificate names; new versions name the same.
  [[nodiscard]] const Peer& subject() const noexcept { return subject_; }
  // When the certificate in use ends, in seconds since 1970.
  [[nodiscard]] std::int64_t expires_unix_s() const noexcept { return expires_unix_s_; }

 private:
  // The facts that tell one version of a file from another.
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    std::int64_t size = -1;
    std::int64_t changed_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  using Stamps = std::array<Stamp, 3>;
  Identity(CertFiles files, Tell tell) : files_(std::move(files)), tell_(std::move(tell)) {}
  [[nodiscard]] Stamps stamps() const;
  Result<void> read();

  CertFiles files_;
  Tell tell_;
  UniqueSslContext context_;
  Stamps seen_;  // the last version that was tried
  Peer subject_;
  std::int64_t expires_unix_s_ = 0;
};

}  // namespace ckpt::tls
