// SPDX-License-Identifier: Apache-2.0
// CRIU 4's image files as bytes. An image file is a magic followed by records. Each record is a size of four
// bytes and a protobuf message (criu_images.proto).
// Threads: any. Errors: kCorrupt for a malformed image.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::uint32_t kImageMagic = 0x54564319;

[[nodiscard]] Error strange_image(const std::string& what);
// Returns the 32-bit word at byte `at`, or 0 beyond the end.
[[nodiscard]] std::uint32_t word_at(const std::string& bytes, std::size_t at);
void put_word(std::string& to, std::uint32_t value);
// Returns the records of an image file from byte `begin` on. There is at least one record, or else the error
// is kCorrupt.
Result<std::vector<std::string>> records_of(const std::string& image, std::size_t begin);
void put_record(std::string& image, const std::string& record);

template <class Entry>
Result<Entry> parse_record(const std::string& record, const char* image) {
  Entry entry;
  if (!entry.ParsePartialFromString(record))
    return strange_image(std::string(image) + " has a malformed record");
  if (!entry.IsInitialized()) return strange_image(std::string(image) + " lacks a field");
  return entry;
}

}  // namespace ckpt::agent::host
