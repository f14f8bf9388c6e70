// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/version.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

namespace ckpt::checkpoint_store {
namespace {

constexpr std::size_t kMaxNameBytes = 255;
constexpr std::size_t kMaxJobNameBytes = 128;
constexpr std::uint64_t kMaxListBytes = std::uint64_t{1} << 50;

Error corrupt(std::string what) {
  return {ErrorCode::kCorrupt, std::move(what)};
}

// Decodes a body. A body that passes its checksum but cannot be decoded was written in this form. It is
// reported as damaged nevertheless.
template <class T>
Result<T> decode_body(SmallFile kind, std::span<const std::byte> file) {
  CKPT_TRY(body, read_small_file(kind, file));
  auto decoded = wire::decode<T>(body);
  if (decoded) return decoded;
  const ErrorCode code = decoded.error().code();
  return Error(code == ErrorCode::kNotSupported ? code : ErrorCode::kCorrupt,
               "The file's body cannot be decoded")
      .caused_by(std::move(decoded).error());
}

Result<void> check_list(const ChunkList& list, std::uint64_t chunk_bytes) {
  if (list.chunk_bytes != chunk_bytes || list.bytes > kMaxListBytes ||
      list.blocks.size() != list.block_count() * sizeof(ContentId))
    return corrupt("A version has a list whose length does not match its memory");
  return ok();
}

Result<void> check_version(const Version& version) {
  if (version.number == 0 || version.parent >= version.number || !is_chunk_size(version.chunk_bytes) ||
      version.content_key.size() != kContentKeyBytes)
    return corrupt("A version has invalid numbers");
  if (auto name = check_job_name(version.job); !name) return corrupt(name.error().message());
  std::set<std::pair<std::uint32_t, std::uint64_t>> ids;
  for (const Region& region : version.regions) {
    if (!ids.insert({region.rank, region.id}).second) return corrupt("A version names a region twice");
    if (region.list.bytes == 0) return corrupt("A version has an empty region");
    CKPT_TRYV(check_list(region.list, version.chunk_bytes));
  }
  std::set<std::string_view> names;
  for (const Blob& blob : version.blobs) {
    if (blob.name.empty() || blob.name.size() > kMaxNameBytes || !names.insert(blob.name).second)
      return corrupt("A version has a blob without a name, or two blobs of the same name");
    CKPT_TRYV(check_list(blob.list, kBlobChunkBytes));
  }
  return ok();
}

}  // namespace

std::uint64_t ChunkList::bytes_of_chunk(std::uint64_t chunk) const {
  return std::min(chunk_bytes, bytes - chunk * chunk_bytes);
}

std::uint64_t ChunkList::chunks_of_block(std::uint64_t block) const {
  return std::min<std::uint64_t>(kListChunks, chunk_count() - block * kListChunks);
}

ContentId ChunkList::block(std::uint64_t index) const {
  ContentId id;
  std::memcpy(&id, blocks.data() + index * sizeof id, sizeof id);
  return id;
}

std::uint64_t Version::state_bytes() const {
  std::uint64_t bytes = 0;
  for (const Region& region : regions) bytes += region.list.bytes;
  return bytes;
}

std::uint64_t Version::blob_bytes() const {
  std::uint64_t bytes = 0;
  for (const Blob& blob : blobs) bytes += blob.list.bytes;
  return bytes;
}

ContentKey Version::key() const {
  ContentKey key{};
  std::copy_n(content_key.begin(), std::min(content_key.size(), key.size()), key.begin());
  return key;
}

std::vector<std::byte> encode_version(const Version& version) {
  return make_small_file(SmallFile::kVersion, wire::encode(version));
}

Result<Version> decode_version(std::span<const std::byte> file) {
  CKPT_TRY(version, decode_body<Version>(SmallFile::kVersion, file));
  CKPT_TRYV(check_version(version));
  return version;
}

std::vector<std::byte> encode_job(const JobRecord& record) {
  return make_small_file(SmallFile::kJob, wire::encode(record));
}

Result<JobRecord> decode_job(std::span<const std::byte> file) {
  CKPT_TRY(record, decode_body<JobRecord>(SmallFile::kJob, file));
  if (record.content_key.size() != kContentKeyBytes) return corrupt("A job record has no key");
  return record;
}

Result<std::vector<ContentId>> decode_list(std::span<const std::byte> plain, std::uint64_t chunks) {
  if (plain.size() != chunks * sizeof(ContentId)) return corrupt("A list's length does not match its memory");
  std::vector<ContentId> ids(chunks);
  if (chunks != 0) std::memcpy(ids.data(), plain.data(), plain.size());
  return ids;
}

Result<void> check_job_name(const std::string& job) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (job.empty() || job.size() > kMaxJobNameBytes || job[0] == '.' ||
      !std::all_of(job.begin(), job.end(), allowed))
    return Error(ErrorCode::kInvalidArgument,
                 "The job name is not valid in a checkpoint store: use letters, digits, '.', '_' and '-', at "
                 "most 128");
  return ok();
}

bool is_chunk_size(std::uint64_t bytes) {
  return bytes >= kMinChunkBytes && bytes <= kMaxChunkBytes && std::has_single_bit(bytes);
}

}  // namespace ckpt::checkpoint_store
