// SPDX-License-Identifier: Apache-2.0
// A version: one consistent state of a job, all ranks together, as a list of its parts. Its bytes are in
// packs. This small file is written last and makes them a version. Memory and host state are lists: runs of
// chunks, named in blocks of 256 chunks. The blocks are content themselves, so an unchanged block uses no
// space in the next version.
//
// Threads: plain values. Errors: decode returns kCorrupt, or kNotSupported for data of a newer build.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/codec.h"
#include "libckpt/store/local/content.h"
#include "libckpt/store/local/format.h"

namespace ckpt::checkpoint_store {

// The size of the pieces into which host state is divided, whatever the size of memory's chunks.
inline constexpr std::uint64_t kBlobChunkBytes = 64 << 10;

struct ChunkList {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint64_t bytes = 0;
  std::uint64_t chunk_bytes = 0;
  std::vector<std::byte> blocks;  // the ContentIds of all list records, in order
  template <class A>
  decltype(auto) fields(A& a) {
    return a(bytes, chunk_bytes, blocks);
  }
  [[nodiscard]] std::uint64_t chunk_count() const { return (bytes + chunk_bytes - 1) / chunk_bytes; }
  [[nodiscard]] std::uint64_t block_count() const { return (chunk_count() + kListChunks - 1) / kListChunks; }
  [[nodiscard]] std::uint64_t bytes_of_chunk(std::uint64_t chunk) const;
  [[nodiscard]] std::uint64_t chunks_of_block(std::uint64_t block) const;
  [[nodiscard]] ContentId block(std::uint64_t index) const;
};

// A run of device memory, which the engine calls a region. It is named by (rank, id); the caller chooses ids.
struct Region {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  Region() = default;
  Region(std::uint32_t rank_number, std::uint64_t region_id, std::uint64_t region_generation,
         std::uint64_t region_bytes, std::string label = {})
      : rank(rank_number), id(region_id), generation(region_generation), name(std::move(label)) {
    list.bytes = region_bytes;
  }
  std::uint32_t rank = 0;
  std::uint64_t id = 0;
  std::uint64_t generation = 0;
  std::string name;
  ChunkList list;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(rank, id, generation, name, list);
  }
};

// Bytes that belong to a version and are not device memory: host state of a rank, its plan, a dumped process.
struct Blob {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string name;
  ChunkList list;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(name, list);
  }
};

struct Label {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  Label() = default;
  Label(std::string label_name, std::string label_value)
      : name(std::move(label_name)), value(std::move(label_value)) {}
  std::string name;
  std::string value;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(name, value);
  }
};

struct Version {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string job;
  std::uint64_t number = 0;
  std::uint64_t parent = 0;     // the number of the parent version; 0 if there is none
  std::int64_t created_ms = 0;  // the Unix time of creation
  std::uint64_t incarnation = 0;
  std::uint64_t step = 0;  // the job's own step count; 0 if the job has none
  std::vector<Label> labels;
  std::uint64_t chunk_bytes = 0;
  std::vector<std::byte> job_record;  // the description for starting the job again, which the checkpoint
                                      // store does not read
  std::vector<std::byte> content_key;
  std::vector<Region> regions;
  std::vector<Blob> blobs;
  std::uint64_t new_chunks = 0;  // the number of chunks that no earlier version had
  std::uint64_t new_plain_bytes = 0;
  std::uint64_t written_bytes = 0;  // the bytes written into packs for this version, lists and heads included
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, number, parent, created_ms, incarnation, step, labels, chunk_bytes, job_record, content_key,
             regions, blobs, new_chunks, new_plain_bytes, written_bytes);
  }
  [[nodiscard]] std::uint64_t state_bytes() const;  // returns the bytes of the regions
  [[nodiscard]] std::uint64_t blob_bytes() const;
  [[nodiscard]] ContentKey key() const;
};

[[nodiscard]] std::vector<std::byte> encode_version(const Version& version);
// Decodes a version's file. Checks everything that readers rely on.
Result<Version> decode_version(std::span<const std::byte> file);

// The record of a job, stored next to its versions. Each version also has the key, so that one damaged file
// makes no version unreadable.
struct JobRecord {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string job;
  std::vector<std::byte> content_key;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, content_key);
  }
};
[[nodiscard]] std::vector<std::byte> encode_job(const JobRecord& record);
Result<JobRecord> decode_job(std::span<const std::byte> file);

// Decodes the plain bytes of a list record into chunk names.
Result<std::vector<ContentId>> decode_list(std::span<const std::byte> plain, std::uint64_t chunks);

// Checks a name, which is also a folder's name: letters, digits, '.', '_' and '-', at most 128, not beginning
// with a dot.
Result<void> check_job_name(const std::string& job);
[[nodiscard]] bool is_chunk_size(std::uint64_t bytes);

}  // namespace ckpt::checkpoint_store
