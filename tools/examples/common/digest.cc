// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/common/digest.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

Digest::Digest() : state_(XXH3_createState()) {
  XXH3_128bits_reset(state_);
}

Digest::~Digest() {
  XXH3_freeState(state_);
}

void Digest::add(const void* data, std::size_t bytes) {
  XXH3_128bits_update(state_, data, bytes);
}

void Digest::add_device(CUdeviceptr data, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  std::vector<unsigned char> buffer(std::min(kPiece, bytes));
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes - at);
    download(buffer.data(), data + at, piece);
    add(buffer.data(), piece);
  }
}

std::string Digest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_);
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace ckpt::examples
