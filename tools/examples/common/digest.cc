// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/common/digest.h"

#include <cstdio>

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

std::string Digest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_);
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace ckpt::examples
