// SPDX-License-Identifier: Apache-2.0
// Beginnings of backups, with the input's header or a header with a corrected checksum. An accepted beginning
// has parts that end exactly at the end of the file.
#include "libckpt/store/backup/backup_file.h"

#include <string>

#include "libckpt/protocol/wire/codec.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

void check(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  const auto parsed = backup::parse_beginning(bytes, file_bytes);
  if (!parsed.has_value()) return;
  const backup::Beginning& beginning = *parsed;
  FUZZ_CHECK(beginning.header_end <= bytes.size());
  FUZZ_CHECK(beginning.contents.sizes.size() == backup::kParts.size());
  std::uint64_t end = beginning.header_end;
  for (const std::uint64_t part : beginning.contents.sizes) {
    const std::uint64_t blocks = part / backup::kBlockBytes + (part % backup::kBlockBytes == 0 ? 0 : 1);
    FUZZ_CHECK(part <= file_bytes);
    end += part + blocks * sizeof(std::uint32_t);
  }
  FUZZ_CHECK(end == file_bytes);
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  fuzz::Input input(data, size);
  const auto file_bytes = input.number<std::uint64_t>();
  const bool as_it_is = input.number<std::uint8_t>() % 2 == 0;
  const auto rest = input.rest();
  if (as_it_is) {
    fuzz::check(rest, file_bytes);
    return 0;
  }
  std::string text(backup::kMagic);
  const std::uint32_t numbers[2] = {static_cast<std::uint32_t>(rest.size()), wire::crc32(rest)};
  text.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  text.append(reinterpret_cast<const char*>(rest.data()), rest.size());
  fuzz::check(std::as_bytes(std::span(text)), file_bytes);
  return 0;
}
