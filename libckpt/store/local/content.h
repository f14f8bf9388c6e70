// SPDX-License-Identifier: Apache-2.0
// The names of content in a checkpoint store: the first 16 bytes of an HMAC-SHA256 under a key of the job. It
// covers the kind of record and its plain bytes. Equal content of one job (its versions, its ranks) has one
// name and is stored once. Without the key, neither names nor stored bytes reveal whether two jobs have equal
// content. Nor can anyone find two contents with the same name without the key.
//
// Among n stored contents, two different ones share a name with a probability below n^2 * 2^-129 (n = 2^30:
// 2^-69).
// Threads: ContentHasher belongs to one thread at a time; the other types are plain values. Sizes are bytes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "libckpt/base/result.h"

namespace ckpt::checkpoint_store {

inline constexpr std::size_t kContentKeyBytes = 32;
using ContentKey = std::array<std::byte, kContentKeyBytes>;

struct ContentId {
  std::array<std::byte, 16> bytes{};
  auto operator<=>(const ContentId&) const = default;
  [[nodiscard]] bool is_zero() const { return *this == ContentId{}; }
  [[nodiscard]] std::uint64_t prefix() const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};
static_assert(sizeof(ContentId) == 16);
[[nodiscard]] std::string to_hex(const ContentId& id);

// The name of a chunk of zeros, for which nothing is stored. HMAC never gives this value to stored content.
inline constexpr ContentId kZeroContent{};

// The kind of a record. The values are stored on the disk: they are stable and never reused.
enum class RecordKind : std::uint8_t { kInvalid = 0, kChunk = 1, kList = 2 };
[[nodiscard]] constexpr bool is_known(RecordKind kind) {
  return kind == RecordKind::kChunk || kind == RecordKind::kList;
}

class ContentHasher {
 public:
  static Result<std::unique_ptr<ContentHasher>> create(const ContentKey& key);
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  Result<ContentId> id_of(RecordKind kind, std::span<const std::byte> plain);

 private:
  struct State;
  explicit ContentHasher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Creates a new random key.
Result<ContentKey> make_content_key();

}  // namespace ckpt::checkpoint_store
