// SPDX-License-Identifier: Apache-2.0
// Certificates that are refused although they are valid, by their serial numbers. Written as OpenSSL shows them,
// in small hexadecimal digits without leading zeros.
// Threads: one. Ownership: a value that those share who admit peers. Errors: kInvalidArgument for what is no
// serial number, kRefused for too many.
#pragma once

#include <openssl/x509.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::tls {

inline constexpr std::size_t kMaxSerialDigits = 64;  // RFC 5280 allows 40

// "AB:0C", "0xab0c" and the like.
Result<std::string> serial_of_text(std::string_view text);
[[nodiscard]] std::string serial_of(const X509* certificate);
// When it ends, in seconds since 1970; 0: not known.
[[nodiscard]] std::int64_t end_of(const X509* certificate);

class DeniedSerials {
 public:
  static constexpr std::size_t kMax = 4096;

  [[nodiscard]] bool contains(const std::string& serial) const { return serials_.contains(serial); }
  [[nodiscard]] const std::set<std::string>& all() const noexcept { return serials_; }
  // Denies these serials and no others. On an error the former ones stay.
  Result<void> replace(const std::vector<std::string>& serials);

 private:
  std::set<std::string> serials_;
};

}  // namespace ckpt::tls
