// SPDX-License-Identifier: Apache-2.0
// Section "codecs": what each encoding makes of the memory of a training job, on one core, beside what zstd's Huffman stage made of
// it in the reference measurement (ratio, encode and decode rates of another processor's core). Rates are by processor time.
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "libckpt/codec/coder.h"
#include "tools/bench/bench.h"
#include "tools/bench/float_data.h"
#include "tools/bench/measure.h"

namespace ckpt::bench {
namespace {

using codec::Encoding;
using Bytes = std::span<const std::byte>;

constexpr std::size_t kMostParameters = std::size_t{2} << 20;
constexpr std::size_t kChunkSizes[] = {std::size_t{64} << 10, std::size_t{1} << 20};

struct Reference {
  double ratio, encode, decode;  // GB/s; 0: none
};
struct CodecCase {
  FloatClass kind;
  Encoding encoding;
  Reference reference;
};
// Real training, lr 3e-4, chunks of 4 MiB, one Zen 4 core: byte planes, then the difference to the step before.
constexpr CodecCase kCases[] = {
    {FloatClass::kWeights, Encoding::kPlanes4, {1.20, 2.23, 5.3}},
    {FloatClass::kHalfWeights, Encoding::kPlanes2, {1.50, 1.31, 3.4}},
    {FloatClass::kFirstMoment, Encoding::kPlanes4, {1.19, 2.34, 5.2}},
    {FloatClass::kSecondMoment, Encoding::kPlanes4, {1.24, 1.24, 2.4}},
    {FloatClass::kGradients, Encoding::kPlanes2, {1.47, 1.43, 3.8}},
    {FloatClass::kWeights, Encoding::kDifference4, {1.61, 1.51, 0}},
    {FloatClass::kHalfWeights, Encoding::kDifference2, {4.03, 0.96, 0}},
    {FloatClass::kFirstMoment, Encoding::kDifference4, {1.22, 1.62, 0}},
    {FloatClass::kSecondMoment, Encoding::kDifference4, {1.50, 2.21, 0}},
    {FloatClass::kGradients, Encoding::kDifference2, {1.37, 1.48, 0}},
};

struct CodecRuns {
  Runs ratio, encode, decode;
};

// One case: all chunks of one class through one encoding and back.
class CodecRun {
 public:
  CodecRun(const CodecCase& what, const TrainingData& data, std::size_t chunk_bytes)
      : what_(what),
        now_(bytes_of(data.now, what.kind)),
        before_(bytes_of(data.before, what.kind)),
        chunk_bytes_(chunk_bytes),
        wire_(now_.size()),
        back_(now_.size()) {
    pieces_.reserve(now_.size() / chunk_bytes + 1);
  }

  // Sampling belongs to encoding: a lane does both.
  Result<void> run(codec::Coder& coder, CodecRuns* kept) {
    const Nanos start = thread_cpu_ns();
    encode_all(coder);
    const Nanos encoded = thread_cpu_ns();
    CKPT_TRYV(decode_all(coder));
    const Nanos decoded = thread_cpu_ns();
    if (std::memcmp(back_.data(), now_.data(), now_.size()) != 0)
      return Error(ErrorCode::kCorrupt, std::string(name_of(what_.kind)) + " was decoded to something else");
    if (kept == nullptr) return ok();
    kept->ratio.push_back(static_cast<double>(now_.size()) /
                          static_cast<double>(std::max<std::size_t>(used_, 1)));
    kept->encode.push_back(rate_of(now_.size(), encoded - start));
    kept->decode.push_back(rate_of(now_.size(), decoded - encoded));
    return ok();
  }
  [[nodiscard]] const CodecCase& what() const { return what_; }

 private:
  struct Piece {
    std::size_t at, bytes;
    Encoding encoding;
  };
  Bytes chunk(Bytes all, std::size_t at) const {
    return all.subspan(at, std::min(chunk_bytes_, all.size() - at));
  }

  void encode_all(codec::Coder& coder) {
    used_ = 0;
    pieces_.clear();
    for (std::size_t at = 0; at < now_.size(); at += chunk_bytes_) {
      const Bytes plain = chunk(now_, at);
      const Bytes previous = codec::needs_previous(what_.encoding) ? chunk(before_, at) : Bytes{};
      (void)coder.estimate(plain, previous);
      const auto room = std::span(wire_).subspan(used_, plain.size());
      const auto size = coder.encode(what_.encoding, plain, previous, room);
      if (!size) std::memcpy(room.data(), plain.data(), plain.size());
      pieces_.push_back({used_, size.value_or(plain.size()), size ? what_.encoding : Encoding::kRaw});
      used_ += pieces_.back().bytes;
    }
  }
  Result<void> decode_all(codec::Coder& coder) {
    std::size_t at = 0;
    for (const Piece& piece : pieces_) {
      const auto out = std::span(back_).subspan(at, std::min(chunk_bytes_, back_.size() - at));
      const Bytes previous = codec::needs_previous(piece.encoding) ? chunk(before_, at) : Bytes{};
      CKPT_TRYV(coder.decode(piece.encoding, Bytes(wire_).subspan(piece.at, piece.bytes), previous, out));
      at += out.size();
    }
    return ok();
  }

  const CodecCase& what_;
  const Bytes now_, before_;
  const std::size_t chunk_bytes_;
  std::vector<std::byte> wire_, back_;
  std::vector<Piece> pieces_;
  std::size_t used_ = 0;
};

// How fast this core is beside the reference's, by the same work: zstd's level 1 on the fp32 weights as they are.
struct CoreScale {
  double encode = 1, decode = 1;
};
constexpr Reference kPlainZstd{1.08, 0.95, 1.5};

Result<CoreScale> measure_core(const BenchOptions& options, const TrainingData& data, Section& section) {
  const Bytes plain = bytes_of(data.now, FloatClass::kWeights);
  std::vector<std::byte> wire(ZSTD_compressBound(plain.size())), back(plain.size());
  CodecRuns runs;
  for (unsigned pair = 0; pair <= options.pairs; ++pair) {
    const Nanos start = thread_cpu_ns();
    const std::size_t size = ZSTD_compress(wire.data(), wire.size(), plain.data(), plain.size(), 1);
    const Nanos encoded = thread_cpu_ns();
    const std::size_t decoded =
        ZSTD_isError(size) ? 0 : ZSTD_decompress(back.data(), back.size(), wire.data(), size);
    const Nanos end = thread_cpu_ns();
    if (decoded != plain.size())
      return Error(ErrorCode::kInternal, "zstd did not give back what it was given");
    if (pair == 0) continue;
    runs.ratio.push_back(static_cast<double>(plain.size()) / static_cast<double>(size));
    runs.encode.push_back(rate_of(plain.size(), encoded - start));
    runs.decode.push_back(rate_of(plain.size(), end - encoded));
  }
  const CoreScale scale{spread_of(runs.encode).median / kPlainZstd.encode,
                        spread_of(runs.decode).median / kPlainZstd.decode};
  section.add_row(
      "this core: plain zstd level 1, weights fp32",
      {spread_of(runs.ratio), spread_of(runs.encode), spread_of(runs.decode),
       single(spread_of(runs.ratio).median / kPlainZstd.ratio), single(scale.encode), single(scale.decode)});
  return scale;
}

// The worst of all classes, each beside its reference.
struct Worst {
  double ratio = std::numeric_limits<double>::infinity();
  double encode = ratio, decode = ratio;
  void add(const CodecRuns& runs, const Reference& reference) {
    ratio = std::min(ratio, spread_of(runs.ratio).median / reference.ratio);
    encode = std::min(encode, spread_of(runs.encode).median / reference.encode);
    if (reference.decode > 0) decode = std::min(decode, spread_of(runs.decode).median / reference.decode);
  }
  // Rates also as they would be on the reference's core.
  void report(Section& section, const std::string& what, const CoreScale& scale) const {
    section.add_goal(what + ", ratio / reference, worst class", ratio, Relation::kAtLeast, 1);
    section.add_goal(what + ", encode rate / reference, worst class", encode, Relation::kAtLeast, 1);
    section.add_goal(what + ", the same for cores of equal speed", encode / scale.encode, Relation::kAtLeast,
                     1);
    if (!std::isfinite(decode)) return;
    section.add_goal(what + ", decode rate / reference, worst class", decode, Relation::kAtLeast, 1);
    section.add_goal(what + ", the same for cores of equal speed", decode / scale.decode, Relation::kAtLeast,
                     1);
  }
};

std::string size_name(std::size_t bytes) {
  return bytes >= (1 << 20) ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
}

Cell beside(const Runs& runs, double reference) {
  if (reference == 0) return std::nullopt;
  return single(spread_of(runs).median / reference);
}

Result<void> measure_chunk_size(const BenchOptions& options, const TrainingData& data,
                                std::size_t chunk_bytes, const CoreScale& scale, Section& section) {
  CKPT_TRY(coder, codec::Coder::create(chunk_bytes));
  std::vector<std::unique_ptr<CodecRun>> cases;
  for (const CodecCase& what : kCases) cases.push_back(std::make_unique<CodecRun>(what, data, chunk_bytes));
  std::vector<CodecRuns> runs(cases.size());
  for (const auto& one : cases) {
    CKPT_TRYV(one->run(*coder, nullptr));
  }
  for (unsigned pair = 0; pair < options.pairs; ++pair)
    for (std::size_t i = 0; i < cases.size(); ++i) {
      CKPT_TRYV(cases[i]->run(*coder, &runs[i]));
    }
  Worst planes, difference;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const CodecCase& what = cases[i]->what();
    const Reference& reference = what.reference;
    section.add_row(size_name(chunk_bytes) + ", " + std::string(name_of(what.kind)) + ", " +
                        std::string(codec::to_string(what.encoding)),
                    {spread_of(runs[i].ratio), spread_of(runs[i].encode), spread_of(runs[i].decode),
                     beside(runs[i].ratio, reference.ratio), beside(runs[i].encode, reference.encode),
                     beside(runs[i].decode, reference.decode)});
    (codec::needs_previous(what.encoding) ? difference : planes).add(runs[i], reference);
  }
  planes.report(section, size_name(chunk_bytes) + ", byte planes", scale);
  difference.report(section, size_name(chunk_bytes) + ", differences", scale);
  return ok();
}

}  // namespace

Result<void> bench_codecs(const BenchOptions& options, Report& report) {
  Section& section = report.add_section("codecs",
                                        "Encodings of a training job's memory (Adam, one step between the "
                                        "versions) on one core by processor time; sampling "
                                        "belongs to encoding");
  section.set_columns({{"ratio", ""},
                       {"encode", "GB/s"},
                       {"decode", "GB/s"},
                       {"ratio / reference", ""},
                       {"encode / reference", ""},
                       {"decode / reference", ""}});
  // 16 bytes a parameter.
  const TrainingData data =
      make_training_data(std::clamp<std::size_t>(options.bytes / 64, 1 << 18, kMostParameters), {});
  CKPT_TRY(scale, measure_core(options, data, section));
  for (const std::size_t chunk_bytes : kChunkSizes) {
    CKPT_TRYV(measure_chunk_size(options, data, chunk_bytes, scale, section));
  }
  section.add_note(
      "the reference is real training data in chunks of 4 MiB on a Zen 4 core; plain zstd says how fast this "
      "core is beside it");
  return ok();
}

}  // namespace ckpt::bench
