// SPDX-License-Identifier: Apache-2.0
// Shared parts of the checkpoint store's tests: a job's content as plain bytes, its changes, and its restore
// into memory.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "libckpt/store/local/checkpoint_store.h"

namespace ckpt::checkpoint_store::test {

using Bytes = std::vector<std::byte>;
inline constexpr std::uint64_t kTestChunk = 256;

template <class T>
T must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().to_string();
    std::abort();
  }
  return *std::move(result);
}
inline void must(Result<void> result) {
  ASSERT_TRUE(result.has_value()) << result.error().to_string();
}

inline Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// All regions and blobs of one version.
struct Content {
  std::map<std::uint64_t, Bytes> regions;
  std::map<std::string, Bytes> blobs;
  bool operator==(const Content&) const = default;
};

// Gives a few chunks of each region new content: random bytes, zeroes, or the content of another chunk.
inline void change(Content& content, std::mt19937_64& random, std::uint64_t chunk_bytes = kTestChunk) {
  for (auto& [id, bytes] : content.regions) {
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t chunks = bytes.size() / chunk_bytes;
      const std::uint64_t at = random() % chunks * chunk_bytes;
      const std::uint64_t from = random() % chunks * chunk_bytes;
      switch (random() % 4) {
        case 0:
          std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), chunk_bytes, std::byte{0});
          break;
        case 1:
          std::copy_n(Bytes(bytes).begin() + static_cast<std::ptrdiff_t>(from), chunk_bytes,
                      bytes.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        default:
          for (std::uint64_t b = 0; b < chunk_bytes; ++b) bytes[at + b] = static_cast<std::byte>(random());
      }
    }
  }
  content.blobs["host"] = random_bytes(100 + random() % 1000, random());
}

// Writes the chunks that differ from `before`, and retains the other chunks.
inline Result<void> put_content(VersionWriter& writer, const Content& content, const Content* before,
                                std::uint64_t chunk_bytes = kTestChunk) {
  for (const auto& [id, bytes] : content.regions) {
    CKPT_TRY(region, writer.add_region(Region(0, id, 1, bytes.size(), "r" + std::to_string(id))));
    const Bytes* old = before != nullptr && before->regions.contains(id) ? &before->regions.at(id) : nullptr;
    for (std::uint64_t at = 0; at < bytes.size(); at += chunk_bytes) {
      const auto chunk =
          std::span(bytes).subspan(at, std::min<std::uint64_t>(chunk_bytes, bytes.size() - at));
      const bool same =
          old != nullptr && old->size() == bytes.size() &&
          std::equal(chunk.begin(), chunk.end(), old->begin() + static_cast<std::ptrdiff_t>(at));
      if (same) continue;
      CKPT_TRYV(writer.put_chunk(region, at / chunk_bytes, chunk));
    }
    CKPT_TRYV(writer.reuse_rest(region));
    for (const std::uint64_t chunk : writer.missing(region)) {
      const std::uint64_t at = chunk * chunk_bytes;
      CKPT_TRYV(writer.put_chunk(
          region, chunk,
          std::span(bytes).subspan(at, std::min<std::uint64_t>(chunk_bytes, bytes.size() - at))));
    }
  }
  for (const auto& [name, bytes] : content.blobs) {
    CKPT_TRYV(writer.put_blob(name, bytes));
  }
  return ok();
}

inline Result<std::shared_ptr<const Version>> write_version(CheckpointStore& checkpoint_store,
                                                            const std::string& job, const Content& content,
                                                            const Content* before,
                                                            std::uint64_t chunk_bytes = kTestChunk) {
  VersionInput input;
  input.chunk_bytes = chunk_bytes;
  if (before == nullptr) input.parent = 0;
  CKPT_TRY(writer, checkpoint_store.begin_version(job, input));
  CKPT_TRYV(put_content(*writer, content, before, chunk_bytes));
  return writer->commit({});
}

class MemoryTarget : public RestoreTarget {
 public:
  Result<void> begin(const Version& version) override {
    content = {};
    regions_.clear();
    chunk_bytes_ = version.chunk_bytes;
    for (const Region& region : version.regions) {
      content.regions[region.id].assign(region.list.bytes, std::byte{0xA5});
      regions_.push_back(&content.regions[region.id]);
    }
    begun++;
    return ok();
  }
  Result<void> chunk(std::uint32_t region, std::uint64_t chunk, std::span<const std::byte> bytes) override {
    std::copy(bytes.begin(), bytes.end(),
              regions_[region]->begin() + static_cast<std::ptrdiff_t>(chunk * chunk_bytes_));
    return ok();
  }
  Result<void> zero_chunk(std::uint32_t region, std::uint64_t chunk, std::uint64_t bytes) override {
    return this->chunk(region, chunk, Bytes(bytes));
  }
  Result<void> finish(VersionReader& reader) override {
    for (const Blob& blob : reader.version().blobs) {
      CKPT_TRY(bytes, reader.read_blob(blob.name, 1 << 30));
      content.blobs[blob.name] = std::move(bytes);
    }
    return ok();
  }

  Content content;
  int begun = 0;

 private:
  std::vector<Bytes*> regions_;
  std::uint64_t chunk_bytes_ = 0;
};

// Restores exactly this version, or returns the error.
inline Result<Content> restore_exactly(CheckpointStore& checkpoint_store, const std::string& job,
                                       std::uint64_t number) {
  MemoryTarget target;
  CKPT_TRY(report, checkpoint_store.restore(job, number, target, {.threads = 2}));
  if (!report.skipped.empty()) return report.skipped.front().reason;
  return std::move(target.content);
}

}  // namespace ckpt::checkpoint_store::test
