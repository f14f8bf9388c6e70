// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <vector>

namespace ckpt {

Result<void> fill_random(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      return Error::from_errno("getrandom");
    }
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return ok();
}

Result<std::string> random_hex(std::size_t bytes) {
  std::vector<std::byte> raw(bytes);
  CKPT_TRYV(fill_random(raw));
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::byte value : raw) {
    text += kDigits[static_cast<unsigned>(value) >> 4];
    text += kDigits[static_cast<unsigned>(value) & 15];
  }
  return text;
}

}  // namespace ckpt
