// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/version_reader.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "libckpt/base/machine/cores.h"

namespace ckpt::checkpoint_store {
namespace {

constexpr std::uint64_t kMaxRunBytes = 4 << 20;
// The largest gap between two wanted records in one read. Reading the gap is cheaper than a second read.
constexpr std::uint64_t kMaxGapBytes = 64 << 10;
constexpr unsigned kMaxThreads = 8;
// The number of runs by which reads are announced to the disk ahead of time. The disk works while other runs
// are unpacked.
constexpr std::size_t kRunsAhead = 8;

struct Wanted {
  ContentId id;
  Place place;
  std::uint32_t region = 0;
  std::uint64_t chunk = 0;
};

struct Run {
  std::size_t first = 0, count = 0;  // the position of the run's first record in the list of wanted records,
                                     // and the number of records
  std::uint64_t offset = 0, bytes = 0;
};

std::string named(const Version& version, std::uint32_t region, std::uint64_t chunk) {
  const Region& r = version.regions[region];
  return "Chunk " + std::to_string(chunk) + " of region " + std::to_string(r.id) +
         (r.name.empty() ? "" : " \"" + r.name + "\"") + " of rank " + std::to_string(r.rank) +
         " in version " + std::to_string(version.number) + " of job " + version.job;
}

Error damaged(const Version& version, std::uint32_t region, std::uint64_t chunk, Error reason) {
  const ErrorCode code = reason.code();
  return Error(code, named(version, region, chunk) + " cannot be read").caused_by(std::move(reason));
}

// One reading of all regions of a version.
class RegionReading {
 public:
  RegionReading(JobStore& store, const Version& version, ChunkSink& sink)
      : store_(store), version_(version), sink_(sink) {}

  Result<void> run(unsigned threads) {
    CKPT_TRYV(plan());
    cut_into_runs();
    for (std::size_t i = 0; i < kRunsAhead; ++i) expect(i);
    std::vector<std::thread> others;
    for (unsigned i = 1; i < std::min<std::size_t>(threads, runs_.size()); ++i)
      others.emplace_back([this] { work(); });
    work();
    for (std::thread& other : others) other.join();
    if (error_) return std::move(*error_);
    return ok();
  }

 private:
  Result<void> plan() {
    CKPT_TRY(coder, store_.coders().borrow(kBlobChunkBytes));
    for (std::uint32_t r = 0; r < version_.regions.size(); ++r) {
      const ChunkList& list = version_.regions[r].list;
      for (std::uint64_t block = 0; block < list.block_count(); ++block) {
        auto ids = store_.read_list(*coder, list, block);
        if (!ids) return damaged(version_, r, block * kListChunks, std::move(ids).error());
        for (std::size_t i = 0; i < ids->size(); ++i) {
          CKPT_TRYV(plan_chunk(r, block * kListChunks + i, (*ids)[i]));
        }
      }
    }
    std::sort(wanted_.begin(), wanted_.end(),
              [](const Wanted& a, const Wanted& b) { return a.place < b.place; });
    return ok();
  }

  Result<void> plan_chunk(std::uint32_t region, std::uint64_t chunk, const ContentId& id) {
    if (id.is_zero())
      return sink_.zero_chunk(region, chunk, version_.regions[region].list.bytes_of_chunk(chunk));
    const auto places = store_.places(id, RecordKind::kChunk);
    if (places.empty()) {
      store_.note_damaged(id);
      return damaged(version_, region, chunk,
                     {ErrorCode::kCorrupt, "The chunk's content was not found in any pack"});
    }
    wanted_.push_back({id, places[0], region, chunk});
    return ok();
  }

  void cut_into_runs() {
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const Place& place = wanted_[i].place;
      const std::uint64_t end = place.offset + record_bytes(place.stored_bytes);
      if (!runs_.empty()) {
        Run& last = runs_.back();
        const Place& before = wanted_[last.first].place;
        if (before.pack == place.pack && place.offset <= last.offset + last.bytes + kMaxGapBytes &&
            end - last.offset <= kMaxRunBytes) {
          last.bytes = std::max(last.bytes, end - last.offset);
          last.count++;
          continue;
        }
      }
      runs_.push_back({i, 1, place.offset, end - place.offset});
    }
  }

  void expect(std::size_t run) {
    if (run >= runs_.size()) return;
    if (auto file = store_.open_pack(wanted_[runs_[run].first].place.pack))
      (*file)->expect(runs_[run].offset, runs_[run].bytes);
  }

  void work() {
    auto coder = store_.coders().borrow(version_.chunk_bytes);
    if (!coder) return fail(std::move(coder).error());
    std::vector<std::byte> bytes, plain(version_.chunk_bytes);
    while (!stopped_) {
      const std::size_t next = next_run_++;
      if (next >= runs_.size()) return;
      expect(next + kRunsAhead);
      if (auto done = read_run(**coder, runs_[next], bytes, plain); !done)
        return fail(std::move(done).error());
    }
  }

  Result<void> read_run(RecordCoder& coder, const Run& run, std::vector<std::byte>& bytes,
                        std::vector<std::byte>& plain) {
    bytes.resize(run.bytes);
    // A pack may have been removed by a collection meanwhile. Its records are then read from other packs, one
    // by one.
    if (auto file = store_.open_pack(wanted_[run.first].place.pack)) {
      CKPT_TRY(count, (*file)->read_at(run.offset, bytes));
      bytes.resize(count);
    } else if (file.error().code() == ErrorCode::kNotFound) {
      bytes.clear();
    } else {
      return std::move(file).error();
    }
    for (std::size_t i = run.first; i < run.first + run.count; ++i) {
      CKPT_TRYV(deliver(coder, wanted_[i], run, bytes, plain));
    }
    return ok();
  }

  Result<void> deliver(RecordCoder& coder, const Wanted& wanted, const Run& run,
                       std::span<const std::byte> bytes, std::vector<std::byte>& plain) {
    const std::uint64_t count = version_.regions[wanted.region].list.bytes_of_chunk(wanted.chunk);
    const auto out = std::span(plain).first(count);
    const std::uint64_t at = wanted.place.offset - run.offset;
    const std::uint64_t length = record_bytes(wanted.place.stored_bytes);
    const auto record =
        at + length <= bytes.size() ? bytes.subspan(at, length) : std::span<const std::byte>{};
    const auto head = read_record_head(record);
    const bool intact =
        head && head->id == wanted.id && head->kind == RecordKind::kChunk && coder.open(*head, record, out);
    if (!intact) {
      // The record may have been moved, or another place may have a copy.
      auto read = store_.read_record(coder, wanted.id, RecordKind::kChunk, out);
      if (!read) return damaged(version_, wanted.region, wanted.chunk, std::move(read).error());
    }
    return sink_.chunk(wanted.region, wanted.chunk, out);
  }

  void fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    stopped_ = true;
  }

  JobStore& store_;
  const Version& version_;
  ChunkSink& sink_;
  std::vector<Wanted> wanted_;
  std::vector<Run> runs_;
  std::atomic<std::size_t> next_run_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

Result<void> VersionReader::read_chunk(std::uint32_t region, std::uint64_t chunk, std::span<std::byte> out) {
  if (region >= version_->regions.size() || chunk >= version_->regions[region].list.chunk_count() ||
      out.size() != version_->regions[region].list.bytes_of_chunk(chunk))
    return Error(ErrorCode::kInvalidArgument, "The chunk does not exist, or it has a different size");
  const ChunkList& list = version_->regions[region].list;
  CKPT_TRY(coder, store_->coders().borrow(version_->chunk_bytes));
  auto ids = store_->read_list(*coder, list, chunk / kListChunks);
  if (!ids) return damaged(*version_, region, chunk, std::move(ids).error());
  const ContentId id = (*ids)[chunk % kListChunks];
  if (id.is_zero()) {
    std::fill(out.begin(), out.end(), std::byte{0});
    return ok();
  }
  auto read = store_->read_record(*coder, id, RecordKind::kChunk, out);
  if (!read) return damaged(*version_, region, chunk, std::move(read).error());
  return ok();
}

Result<void> VersionReader::read_regions(ChunkSink& sink, const ReadOptions& options) {
  const unsigned threads =
      options.threads != 0 ? options.threads : std::clamp(usable_cores(), 1U, kMaxThreads);
  return RegionReading(*store_, *version_, sink).run(threads);
}

const Blob* VersionReader::find_blob(const std::string& name) const {
  for (const Blob& blob : version_->blobs)
    if (blob.name == name) return &blob;
  return nullptr;
}

Result<void> VersionReader::read_blob(const std::string& name,
                                      const std::function<Result<void>(std::span<const std::byte>)>& piece) {
  const Blob* blob = find_blob(name);
  if (blob == nullptr)
    return Error(ErrorCode::kNotFound, "Version " + std::to_string(version_->number) + " of job " +
                                           version_->job + " has no blob " + name);
  CKPT_TRY(coder, store_->coders().borrow(kBlobChunkBytes));
  const auto broken = [&](Error reason) {
    const ErrorCode code = reason.code();
    return Error(code, "Blob " + name + " in version " + std::to_string(version_->number) + " of job " +
                           version_->job + " cannot be read")
        .caused_by(std::move(reason));
  };
  std::vector<std::byte> plain(kBlobChunkBytes);
  for (std::uint64_t block = 0; block < blob->list.block_count(); ++block) {
    auto ids = store_->read_list(*coder, blob->list, block);
    if (!ids) return broken(std::move(ids).error());
    for (std::size_t i = 0; i < ids->size(); ++i) {
      const auto out = std::span(plain).first(blob->list.bytes_of_chunk(block * kListChunks + i));
      const ContentId& id = (*ids)[i];
      if (id.is_zero()) {
        std::fill(out.begin(), out.end(), std::byte{0});
      } else if (auto read = store_->read_record(*coder, id, RecordKind::kChunk, out); !read) {
        return broken(std::move(read).error());
      }
      CKPT_TRYV(piece(out));
    }
  }
  return ok();
}

Result<std::vector<std::byte>> VersionReader::read_blob(const std::string& name, std::uint64_t max_bytes) {
  const Blob* blob = find_blob(name);
  if (blob != nullptr && blob->list.bytes > max_bytes)
    return Error(ErrorCode::kRefused, "Blob " + name + " has " + std::to_string(blob->list.bytes) +
                                          " bytes, but at most " + std::to_string(max_bytes) +
                                          " were requested");
  std::vector<std::byte> bytes;
  if (blob != nullptr) bytes.reserve(blob->list.bytes);
  CKPT_TRYV(read_blob(name, [&bytes](std::span<const std::byte> piece) -> Result<void> {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return ok();
  }));
  return bytes;
}

}  // namespace ckpt::checkpoint_store
