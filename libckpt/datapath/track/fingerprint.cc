// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/fingerprint.h"

#include <string.h>
#include <bit>
#include <cstring>

#include "libckpt/datapath/track/fingerprint_host.h"

namespace ckpt::track {
namespace {

static_assert(std::endian::native == std::endian::little, "fingerprints are defined on little-endian words");

// The ChaCha20 keystream (RFC 8439) with nonce = (purpose, 0, 0), read as little-endian words.
class KeyStream {
 public:
  KeyStream(const FingerprintKey& key, std::uint32_t purpose) noexcept {
    constexpr std::uint32_t kSigma[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    std::memcpy(state_, kSigma, sizeof kSigma);
    std::memcpy(state_ + 4, key.data(), key.size());
    state_[12] = 0;
    state_[13] = purpose;
    state_[14] = 0;
    state_[15] = 0;
  }
  ~KeyStream() {
    ::explicit_bzero(state_, sizeof state_);
    ::explicit_bzero(block_, sizeof block_);
  }
  KeyStream(const KeyStream&) = delete;
  KeyStream& operator=(const KeyStream&) = delete;

  std::uint32_t next32() noexcept {
    if (used_ == 16) refill();
    return block_[used_++];
  }
  std::uint64_t next64() noexcept {
    const std::uint64_t low = next32();
    return low | static_cast<std::uint64_t>(next32()) << 32;
  }
  // Returns the next 64 bits modulo 2^61, and 0 for p.
  std::uint64_t next_field_element() noexcept { return reduce_once(next64() & kPrime); }

 private:
  static void quarter_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d) noexcept {
    a += b, d = std::rotl(d ^ a, 16);
    c += d, b = std::rotl(b ^ c, 12);
    a += b, d = std::rotl(d ^ a, 8);
    c += d, b = std::rotl(b ^ c, 7);
  }
  void refill() noexcept {
    std::uint32_t* x = block_;
    std::memcpy(x, state_, sizeof state_);
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < 4; ++i) quarter_round(x[i], x[i + 4], x[i + 8], x[i + 12]);
      for (int i = 0; i < 4; ++i)
        quarter_round(x[i], x[4 + (i + 1) % 4], x[8 + (i + 2) % 4], x[12 + (i + 3) % 4]);
    }
    for (int i = 0; i < 16; ++i) x[i] += state_[i];
    ++state_[12];
    used_ = 0;
  }

  std::uint32_t state_[16]{};
  std::uint32_t block_[16]{};
  unsigned used_ = 16;
};

constexpr FingerprintImplementation kImplementations[] = {
    {"scalar", kFingerprintScalar},
    {"avx2", kFingerprintAvx2},
    {"avx512", kFingerprintAvx512},
};

}  // namespace

FingerprintParams::FingerprintParams(const FingerprintKey& key, FingerprintPurpose purpose) : tables_{} {
  KeyStream stream(key, static_cast<std::uint32_t>(purpose));
  for (std::uint32_t& word : tables_.nh) word = stream.next32();
  for (auto& lane : tables_.mix) {
    for (std::uint64_t& factor : lane) factor = stream.next_field_element();
  }
  for (std::uint64_t& point : tables_.point) point = stream.next_field_element();
  for (int lane = 0; lane < 2; ++lane) {
    tables_.power[lane][0] = 1;
    for (std::uint32_t e = 1; e <= kMaxPower; ++e)
      tables_.power[lane][e] = multiply_mod(tables_.power[lane][e - 1], tables_.point[lane]);
  }
  alignas(64) static constexpr unsigned char kZeroes[kBlockBytes] = {};
  const BlockSums sums = nh_block_scalar(tables_, kZeroes);
  for (int lane = 0; lane < 2; ++lane) tables_.zero_block[lane] = compress(tables_, lane, sums);
}

FingerprintParams::~FingerprintParams() {
  ::explicit_bzero(&tables_, sizeof tables_);
}

std::shared_ptr<const FingerprintParams> FingerprintParams::expand(const FingerprintKey& key,
                                                                   FingerprintPurpose purpose) {
  return std::shared_ptr<const FingerprintParams>(new FingerprintParams(key, purpose));
}

Fingerprint fingerprint(const FingerprintParams& params, std::span<const std::byte> bytes) noexcept {
  return fingerprint_host(params.tables(), bytes.data(), bytes.size());
}

Fingerprint fingerprint(const FingerprintParams& params, std::span<const std::byte> bytes,
                        std::span<std::uint32_t> marks) noexcept {
  return fingerprint_host(params.tables(), bytes.data(), bytes.size(), marks.data());
}

std::uint32_t mark_of_zeroes(const FingerprintParams& params) noexcept {
  return mark_of(params.tables().zero_block[0]);
}

Fingerprint fingerprint_of_zeroes(const FingerprintParams& params, std::uint64_t bytes) noexcept {
  const FingerprintTables& tables = params.tables();
  Chain chain;
  for (std::uint64_t done = 0; done < bytes; done += kBlockBytes)
    chain.add(tables, tables.zero_block[0], tables.zero_block[1]);
  return chain.finish(tables, bytes);
}

std::span<const FingerprintImplementation> fingerprint_implementations() noexcept {
  const std::span all(kImplementations);
  return all.first(has_avx512() ? 3 : __builtin_cpu_supports("avx2") ? 2 : 1);
}

}  // namespace ckpt::track
