// SPDX-License-Identifier: Apache-2.0
// The encoding and checking of a checkpoint store's files (docs/image-format.md "Stored images"). All values
// are little endian, like the supported processors. Every byte of every file is under a checksum (XXH3-64) or
// must be zero, so that a flipped bit anywhere is found.
//
//   pack:   PackHead, then records one behind the other, then an IndexEntry for each, then PackTail
//   record: RecordHead, its payload, zeroes up to a multiple of 16
//   small file (checkpoint store, job, version): SmallHead, body
//
// Threads: pure functions. Errors: kCorrupt for bytes that no checkpoint store wrote, kNotSupported for a
// newer format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/store/local/content.h"

namespace ckpt::checkpoint_store {

inline constexpr std::uint32_t kStoredFormat = 1;

// The limits of chunk sizes, which are powers of two from 256 bytes to 16 MiB.
inline constexpr std::uint64_t kMinChunkBytes = 256;
inline constexpr std::uint64_t kMaxChunkBytes = 16 << 20;
inline constexpr std::uint64_t kRecordAlignment = 16;
// The number of chunks that one list record names.
inline constexpr std::size_t kListChunks = 256;

// The packing of a record. The values are stored on the disk: they are stable and never reused.
enum class Packing : std::uint8_t { kInvalid = 0, kRaw = 1, kZstd = 2, kPlanes2 = 3, kPlanes4 = 4 };
[[nodiscard]] constexpr bool is_known(Packing packing) {
  return packing >= Packing::kRaw && packing <= Packing::kPlanes4;
}

[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

struct PackHead {
  std::uint64_t magic = 0;
  std::uint32_t format = 0;
  std::uint32_t zero = 0;
  std::uint64_t number = 0;
  std::uint64_t head_hash = 0;  // the hash of the preceding fields
};
static_assert(sizeof(PackHead) == 32);

struct RecordHead {
  std::uint32_t magic = 0;
  RecordKind kind{};
  Packing packing{};
  std::uint16_t zero = 0;
  std::uint32_t stored_bytes = 0;  // the size of the stored payload
  std::uint32_t plain_bytes = 0;   // the size of the unpacked payload
  ContentId id;
  std::uint64_t payload_hash = 0;
  std::uint64_t head_hash = 0;  // the hash of the preceding fields
};
static_assert(sizeof(RecordHead) == 48);

struct IndexEntry {
  ContentId id;
  std::uint64_t offset = 0;  // the offset of the record in its pack
  std::uint32_t stored_bytes = 0;
  RecordKind kind{};
  Packing packing{};
  std::uint16_t zero = 0;
};
static_assert(sizeof(IndexEntry) == 32);

struct PackTail {
  std::uint64_t magic = 0;
  std::uint64_t index_offset = 0;
  std::uint64_t count = 0;
  std::uint64_t index_hash = 0;
  std::uint64_t tail_hash = 0;  // the hash of the preceding fields
};
static_assert(sizeof(PackTail) == 40);

// Returns the size of a record with its head, payload and padding.
[[nodiscard]] constexpr std::uint64_t record_bytes(std::uint64_t stored_bytes) {
  const std::uint64_t bytes = sizeof(RecordHead) + stored_bytes;
  return (bytes + kRecordAlignment - 1) / kRecordAlignment * kRecordAlignment;
}

[[nodiscard]] PackHead make_pack_head(std::uint64_t number);
[[nodiscard]] RecordHead make_record_head(RecordKind kind, Packing packing, const ContentId& id,
                                          std::uint64_t plain_bytes, std::span<const std::byte> payload);
[[nodiscard]] PackTail make_pack_tail(std::uint64_t index_offset, std::span<const IndexEntry> index);
[[nodiscard]] IndexEntry make_index_entry(const RecordHead& head, std::uint64_t offset);

Result<void> check_pack_head(std::span<const std::byte> bytes, std::uint64_t number);
// Reads the head of a record. Checks that its lengths are bounded and that its kind and packing are known.
// The payload is not checked.
Result<RecordHead> read_record_head(std::span<const std::byte> bytes);
// Checks a whole record, whose size is record_bytes(): the payload's checksum and the padding.
Result<std::span<const std::byte>> check_payload(const RecordHead& head, std::span<const std::byte> record);
// Reads the tail. `bytes` are the last bytes of a pack of `pack_bytes`.
Result<PackTail> read_pack_tail(std::span<const std::byte> bytes, std::uint64_t pack_bytes);
// Reads the entries. Checks that every entry is inside the pack and that none overlaps the entry before it.
Result<std::vector<IndexEntry>> read_index(const PackTail& tail, std::span<const std::byte> bytes);

enum class SmallFile : std::uint64_t {
  kCheckpointStore = 0x31544c'55'41'56'50'47,  // the magic of the checkpoint store's own file: the bytes
                                               // "GPVAULT1"
  kJob = 0x31'42'4f'4a'56'50'47,               // the magic of a job's file: the bytes "GPVJOB1"
  kVersion = 0x31'52'45'56'56'50'47,           // the magic of a version's file: the bytes "GPVVER1"
};
inline constexpr std::uint64_t kMaxSmallFileBytes = std::uint64_t{256} << 20;

struct SmallHead {
  std::uint64_t magic;
  std::uint32_t format;
  std::uint32_t zero;
  std::uint64_t body_bytes;
  std::uint64_t body_hash;
  std::uint64_t head_hash;  // the hash of the preceding fields
};
static_assert(sizeof(SmallHead) == 40);

[[nodiscard]] std::vector<std::byte> make_small_file(SmallFile kind, std::span<const std::byte> body);
// Returns the body. Returns kNotSupported for an intact file of a different format.
Result<std::span<const std::byte>> read_small_file(SmallFile kind, std::span<const std::byte> bytes);

}  // namespace ckpt::checkpoint_store
