// SPDX-License-Identifier: Apache-2.0
// The section "codecs": the compression of a training job's memory by each encoding, on one core. The
// reference measurement's coding compresses the same bytes in the same run. Rates are by processor time.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>

#include "libckpt/datapath/codec/coder.h"
#include "tools/bench/bench.h"
#include "tools/bench/datapath/reference_codec.h"
#include "tools/bench/measuring/float_data.h"
#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {
namespace {

using codec::Encoding;
using Bytes = std::span<const std::byte>;

constexpr std::size_t kMaxParameters = std::size_t{2} << 20;
// The goal is a ratio to the reference of at least 0.97. The distance to 1 allows for the variation between
// runs.
constexpr double kGoal = 0.97;
constexpr std::size_t kChunkSizes[] = {std::size_t{64} << 10, std::size_t{1} << 20};

struct CodecCase {
  FloatClass kind;
  Encoding encoding;
};
constexpr CodecCase kCases[] = {
    {FloatClass::kWeights, Encoding::kPlanes4},          {FloatClass::kHalfWeights, Encoding::kPlanes2},
    {FloatClass::kFirstMoment, Encoding::kPlanes4},      {FloatClass::kSecondMoment, Encoding::kPlanes4},
    {FloatClass::kGradients, Encoding::kPlanes2},        {FloatClass::kWeights, Encoding::kDifference4},
    {FloatClass::kHalfWeights, Encoding::kDifference2},  {FloatClass::kFirstMoment, Encoding::kDifference4},
    {FloatClass::kSecondMoment, Encoding::kDifference4}, {FloatClass::kGradients, Encoding::kDifference2},
};
constexpr bool is_half(FloatClass kind) {
  return kind == FloatClass::kHalfWeights || kind == FloatClass::kGradients;
}

struct CodecRuns {
  Runs ratio, encode, decode;
};

// A method of coding one class of memory: libckpt's with chunks of one size, or the reference's with its own
// chunk size.
class Coding {
 public:
  virtual ~Coding() = default;
  // Encodes a chunk. Returns the number of bytes written to `out`.
  virtual Result<std::size_t> encode(Bytes chunk, Bytes previous, std::span<std::byte> out) = 0;
  // Decodes a chunk. Chunks must be decoded in the order in which they were encoded.
  virtual Result<void> decode(Bytes wire, Bytes previous, std::span<std::byte> out) = 0;
};

// libckpt's coding. Sampling is part of encoding, because a lane does both. A chunk that does not become
// shorter is sent raw.
class OurCoding : public Coding {
 public:
  OurCoding(codec::Coder& coder, Encoding encoding) : coder_(coder), encoding_(encoding) {}
  Result<std::size_t> encode(Bytes chunk, Bytes previous, std::span<std::byte> out) override {
    (void)coder_.estimate(chunk, previous);
    const auto size = coder_.encode(encoding_, chunk, previous, out);
    if (!size) std::memcpy(out.data(), chunk.data(), chunk.size());
    return size.value_or(chunk.size());
  }
  Result<void> decode(Bytes wire, Bytes previous, std::span<std::byte> out) override {
    // A result as long as the chunk is raw, because a useful encoding is always shorter.
    const Encoding encoding = wire.size() == out.size() ? Encoding::kRaw : encoding_;
    return coder_.decode(encoding, wire, previous, out);
  }

 private:
  codec::Coder& coder_;
  const Encoding encoding_;
};

class ReferenceCoding : public Coding {
 public:
  explicit ReferenceCoding(std::unique_ptr<ReferenceCodec> codec) : codec_(std::move(codec)) {}
  Result<std::size_t> encode(Bytes chunk, Bytes previous, std::span<std::byte> out) override {
    return codec_->encode(chunk, previous, out);
  }
  Result<void> decode(Bytes wire, Bytes previous, std::span<std::byte> out) override {
    return codec_->decode(wire, previous, out);
  }

 private:
  const std::unique_ptr<ReferenceCodec> codec_;
};

// A run of all chunks of one class through one coding and back.
class CodecRun {
 public:
  CodecRun(std::unique_ptr<Coding> coding, const CodecCase& what, const TrainingData& data,
           std::size_t chunk_bytes)
      : coding_(std::move(coding)),
        what_(what),
        now_(bytes_of(data.now, what.kind)),
        before_(codec::needs_previous(what.encoding) ? bytes_of(data.before, what.kind) : Bytes{}),
        chunk_bytes_(chunk_bytes),
        wire_(ReferenceCodec::bound(now_.size())),
        back_(now_.size()) {
    sizes_.reserve(now_.size() / chunk_bytes + 1);
  }

  Result<void> run(bool keep) {
    const Nanos start = thread_cpu_ns();
    CKPT_TRYV(encode_all());
    const Nanos encoded = thread_cpu_ns();
    CKPT_TRYV(decode_all());
    const Nanos decoded = thread_cpu_ns();
    if (std::memcmp(back_.data(), now_.data(), now_.size()) != 0)
      return Error(ErrorCode::kCorrupt,
                   std::string(name_of(what_.kind)) + " was decoded to different data than was encoded");
    if (!keep) return ok();
    runs_.ratio.push_back(static_cast<double>(now_.size()) /
                          static_cast<double>(std::max<std::size_t>(used_, 1)));
    runs_.encode.push_back(rate_of(now_.size(), encoded - start));
    runs_.decode.push_back(rate_of(now_.size(), decoded - encoded));
    return ok();
  }
  [[nodiscard]] const CodecRuns& runs() const { return runs_; }

 private:
  template <class T>
  std::span<T> chunk(std::span<T> all, std::size_t at) const {
    return all.empty() ? all : all.subspan(at, std::min(chunk_bytes_, all.size() - at));
  }
  Result<void> encode_all() {
    used_ = 0;
    sizes_.clear();
    for (std::size_t at = 0; at < now_.size(); at += chunk_bytes_) {
      CKPT_TRY(size, coding_->encode(chunk(now_, at), chunk(before_, at), std::span(wire_).subspan(used_)));
      sizes_.push_back(size);
      used_ += size;
    }
    return ok();
  }
  Result<void> decode_all() {
    std::size_t at = 0, used = 0;
    for (const std::size_t size : sizes_) {
      CKPT_TRYV(
          coding_->decode(Bytes(wire_).subspan(used, size), chunk(before_, at), chunk(std::span(back_), at)));
      at += chunk_bytes_;
      used += size;
    }
    return ok();
  }

  const std::unique_ptr<Coding> coding_;
  const CodecCase& what_;
  const Bytes now_, before_;
  const std::size_t chunk_bytes_;
  std::vector<std::byte> wire_, back_;
  std::vector<std::size_t> sizes_;
  std::size_t used_ = 0;
  CodecRuns runs_;
};

// The spreads of libckpt's figures relative to the reference's, computed pair by pair.
struct Beside {
  Spread ratio, encode, decode;
};
Beside beside(const CodecRuns& ours, const CodecRuns& reference) {
  return {spread_of(ratios_of(ours.ratio, reference.ratio)),
          spread_of(ratios_of(ours.encode, reference.encode)),
          spread_of(ratios_of(ours.decode, reference.decode))};
}

// The worst medians, over all classes, of libckpt's figures relative to the reference's.
struct Worst {
  double ratio = std::numeric_limits<double>::infinity();
  double encode = ratio, decode = ratio;
  void add(const Beside& found) {
    ratio = std::min(ratio, found.ratio.median);
    encode = std::min(encode, found.encode.median);
    decode = std::min(decode, found.decode.median);
  }
  void report(Section& section, const std::string& what) const {
    section.add_goal(what + ", ratio / reference, worst class", ratio, Relation::kAtLeast, kGoal);
    section.add_goal(what + ", encode rate / reference, worst class", encode, Relation::kAtLeast, kGoal);
    section.add_goal(what + ", decode rate / reference, worst class", decode, Relation::kAtLeast, kGoal);
  }
};

std::string size_name(std::size_t bytes) {
  return bytes >= (1 << 20) ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
}

// Measures one class: the reference first, then libckpt with each chunk size.
Result<void> measure_case(const BenchOptions& options, const TrainingData& data, const CodecCase& what,
                          std::span<const std::unique_ptr<codec::Coder>> coders, std::span<Worst> worst,
                          Section& section) {
  CKPT_TRY(reference,
           ReferenceCodec::create(is_half(what.kind) ? 2 : 4, codec::needs_previous(what.encoding)));
  std::deque<CodecRun> all;  // a deque, because the elements of a deque do not move in memory
  all.emplace_back(std::make_unique<ReferenceCoding>(std::move(reference)), what, data, kReferenceChunkBytes);
  for (std::size_t i = 0; i < coders.size(); ++i)
    all.emplace_back(std::make_unique<OurCoding>(*coders[i], what.encoding), what, data, kChunkSizes[i]);
  for (unsigned pair = 0; pair <= options.pairs; ++pair)
    for (CodecRun& run : all) {
      CKPT_TRYV(run.run(pair > 0));
    }
  const std::string name =
      std::string(name_of(what.kind)) + ", " + std::string(codec::to_string(what.encoding)) + ": ";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const CodecRuns& runs = all[i].runs();
    std::vector<Cell> cells{spread_of(runs.ratio), spread_of(runs.encode), spread_of(runs.decode)};
    if (i > 0) {
      const Beside found = beside(runs, all.front().runs());
      worst[i - 1].add(found);
      cells.insert(cells.end(), {found.ratio, found.encode, found.decode});
    }
    section.add_row(
        name + (i == 0 ? "reference, " + size_name(kReferenceChunkBytes) : size_name(kChunkSizes[i - 1])),
        std::move(cells));
  }
  return ok();
}

}  // namespace

Result<void> bench_codecs(const BenchOptions& options, Report& report) {
  Section& section =
      report.add_section("codecs",
                         "Encodings of a training job's memory (Adam, one step between the "
                         "versions) on one core by processor time, interleaved with the reference "
                         "measurement's way of coding the same bytes; sampling belongs to encoding");
  section.set_columns({{"ratio", ""},
                       {"encode", "GB/s"},
                       {"decode", "GB/s"},
                       {"ratio / reference", ""},
                       {"encode / reference", ""},
                       {"decode / reference", ""}});
  // A parameter takes 16 bytes in each of the two states.
  const TrainingData data =
      make_training_data(std::clamp<std::size_t>(options.bytes / 64, 1 << 18, kMaxParameters), {});
  std::vector<std::unique_ptr<codec::Coder>> coders;
  for (const std::size_t chunk_bytes : kChunkSizes) {
    CKPT_TRY(coder, codec::Coder::create(chunk_bytes));
    coders.push_back(std::move(coder));
  }
  std::array<Worst, std::size(kChunkSizes)> planes, differences;
  for (const CodecCase& what : kCases) {
    auto& worst = codec::needs_previous(what.encoding) ? differences : planes;
    CKPT_TRYV(measure_case(options, data, what, coders, worst, section));
  }
  for (std::size_t i = 0; i < std::size(kChunkSizes); ++i) {
    planes[i].report(section, size_name(kChunkSizes[i]) + ", byte planes");
    differences[i].report(section, size_name(kChunkSizes[i]) + ", differences");
  }
  section.add_note(
      "reference: sign rotated to the lowest bit or zigzag of the difference, byte planes, planes of more "
      "than 7.7 bits "
      "stored, else zstd's level -100 with Huffman for all literals, in chunks of 4 MiB");
  return ok();
}

}  // namespace ckpt::bench
