// SPDX-License-Identifier: Apache-2.0
// The serial numbers of certificates that are refused although they are valid. A serial number is written as
// OpenSSL prints it, but in lower-case hexadecimal digits without leading zeros.
// Threads: one. Ownership: a value that all components share that admit peers. Errors: kInvalidArgument for
// text that is not a serial number, kRefused for too many.
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

inline constexpr std::size_t kMaxSerialDigits = 64;  // the maximum number of digits, which is more than the
                                                     // 40 that RFC 5280 allows

// Returns a serial number in the notation of this file. Accepts forms such as "AB:0C" and "0xab0c".
Result<std::string> serial_of_text(std::string_view text);
[[nodiscard]] std::string serial_of(const X509* certificate);
// Returns the time at which the certificate expires, in seconds since 1970. Returns 0 if the time is not
// known.
[[nodiscard]] std::int64_t end_of(const X509* certificate);

class DeniedSerials {
 public:
  static constexpr std::size_t kMax = 4096;

  [[nodiscard]] bool contains(const std::string& serial) const { return serials_.contains(serial); }
  [[nodiscard]] const std::set<std::string>& all() const noexcept { return serials_; }
  // Denies these serials and no others. On an error the former serials remain denied.
  Result<void> replace(const std::vector<std::string>& serials);

 private:
  std::set<std::string> serials_;
};

}  // namespace ckpt::tls
