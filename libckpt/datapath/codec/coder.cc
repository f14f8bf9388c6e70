// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/coder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "libckpt/datapath/codec/entropy.h"
#include "libckpt/datapath/codec/plane_packer.h"
#include "libckpt/datapath/codec/planes.h"
#include "libckpt/datapath/codec/seven_bits.h"
#include "libckpt/datapath/codec/sparse_plane.h"

namespace ckpt::codec {
namespace {

// The entropy above which packing a plane costs more than it saves.
constexpr double kMaxPackedBits = 7.7;
// The entropy below which a plane has runs. Huffman codes need a whole bit per byte there, and finding
// matches is cheaper than building a Huffman table.
constexpr double kMaxRunBits = 0.5;
// The entropy above which the lowest plane may be noise except for its sign bit. Seven-bit packing is tried
// then.
constexpr double kMinSevenBits = 6.75;
// The way in which a plane is stored, in the top bits of its length.
constexpr std::uint32_t kPackedFlag = 1U << 31, kSevenFlag = 1U << 30, kSparseFlag = kPackedFlag | kSevenFlag;
constexpr std::uint32_t kLengthMask = kSevenFlag - 1;
// The minimum ratio that is worth the header and the work.
constexpr double kMinRatio = 1.02;
// The factor by which the gain with 4-byte words must exceed the gain with 2-byte halves. Pairs of half
// floats look as good as words: their exponents fill two planes of four instead of one of two. That matters
// for plain planes only, because the difference of words carries from one half into the other.
constexpr double kWiderMustWin = 1.03;

constexpr std::size_t width_of(Encoding encoding) {
  switch (encoding) {
    case Encoding::kPlanes2:
    case Encoding::kDifference2:
      return 2;
    case Encoding::kPlanes4:
    case Encoding::kDifference4:
      return 4;
    default:
      return 0;
  }
}

// Returns the packed size of a plane of this entropy, in bits per byte. Huffman codes waste some, and need at
// least one bit.
double packed_bits(double entropy) {
  if (entropy > kMaxPackedBits) return 8;
  if (entropy > kMaxRunBits) return std::max(1.02, entropy * 1.01 + 0.02);
  return std::min(1.02, entropy * 1.4 + 0.02);
}

// The bytes of a plane's length in the header and of zstd's own header.
constexpr double kOverhead = 24;

double ratio_of(std::size_t width, const PlaneEntropy& entropy, std::size_t bytes) {
  double bits = 0;
  for (std::size_t p = 0; p < width; ++p) bits += packed_bits(entropy[p]);
  const double plain = static_cast<double>(bytes);
  return plain / (plain * bits / (8.0 * static_cast<double>(width)) + kOverhead * static_cast<double>(width));
}

Error corrupt(Encoding encoding, std::size_t in, std::size_t out, std::string_view reason) {
  return Error(ErrorCode::kCorrupt, "A chunk of " + std::to_string(out) + " bytes cannot be decoded from " +
                                        std::to_string(in) + " bytes in encoding " +
                                        std::string(to_string(encoding)) + ": " + std::string(reason));
}

}  // namespace

struct Coder::State {
  State(PlanePacker made, std::size_t bytes, std::unique_ptr<std::byte[]> memory)
      : packer(std::move(made)), max_chunk_bytes(bytes), scratch(std::move(memory)) {}

  PlanePacker packer;
  EntropySampler sampler;
  const std::size_t max_chunk_bytes;
  const std::unique_ptr<std::byte[]> scratch;  // the unpacked form of the chunk's planes that are stored
                                               // packed

  // The entropies that estimate() took, for the following encode() of the same memory. If that memory has
  // changed meanwhile, other planes are packed: the result is larger, but correct.
  struct Sample {
    const std::byte* chunk = nullptr;
    std::size_t bytes = 0;
    PlaneEntropy entropy{};
  };
  std::array<Sample, 4> samples;  // the remembered samples, indexed by sample_index()
  static std::size_t sample_index(std::size_t width, bool difference) {
    return (width == 4 ? 1 : 0) + (difference ? 2 : 0);
  }

  void remember(std::size_t width, bool difference, std::span<const std::byte> chunk,
                const PlaneEntropy& entropy) noexcept {
    samples[sample_index(width, difference)] = {chunk.data(), chunk.size(), entropy};
  }
  // Returns the sample that estimate() took of this memory, or takes a new sample. Forgets all remembered
  // samples.
  PlaneEntropy take_sample(std::size_t width, std::span<const std::byte> chunk,
                           std::span<const std::byte> previous) noexcept {
    const Sample& found = samples[sample_index(width, !previous.empty())];
    const bool fits = found.chunk == chunk.data() && found.bytes == chunk.size();
    const PlaneEntropy entropy = fits ? found.entropy : sampler.sample(width, chunk, previous);
    for (Sample& sample : samples) sample.chunk = nullptr;
    return entropy;
  }

  // Packs a plane. Returns its length in the header's form, combined with the flags of the packing used
  // (kPackedFlag, kSevenFlag).
  std::optional<std::uint32_t> pack(std::span<const std::byte> plane, double entropy, bool noise,
                                    std::span<std::byte> out) noexcept;
  [[nodiscard]] bool unpack(std::uint32_t length, std::span<const std::byte> packed,
                            std::span<std::byte> plane) noexcept;
  std::optional<std::size_t> encode(std::size_t width, std::span<const std::byte> chunk,
                                    std::span<const std::byte> previous, std::span<std::byte> out) noexcept;
};

Coder::Coder(std::unique_ptr<State> state) : state_(std::move(state)) {}
Coder::~Coder() = default;

Result<std::unique_ptr<Coder>> Coder::create(std::size_t max_chunk_bytes) {
  // Lengths have 30 bits on the wire.
  if (max_chunk_bytes == 0 || max_chunk_bytes > kLengthMask) {
    return Error(ErrorCode::kInvalidArgument,
                 "There is no coder for chunks of " + std::to_string(max_chunk_bytes) + " bytes");
  }
  CKPT_TRY(packer, PlanePacker::create(max_chunk_bytes / 2 + 1));
  std::unique_ptr<std::byte[]> scratch(new (std::nothrow) std::byte[max_chunk_bytes]);
  if (!scratch) return Error(ErrorCode::kOutOfMemory, "There is no memory for a codec's scratch buffer");
  return std::unique_ptr<Coder>(
      new Coder(std::make_unique<State>(std::move(packer), max_chunk_bytes, std::move(scratch))));
}

Estimate Coder::estimate(std::span<const std::byte> chunk, std::span<const std::byte> previous) noexcept {
  Estimate best;
  if (chunk.size() < 4) return best;
  const auto consider = [&](Encoding encoding, Encoding& kind, double& kind_ratio,
                            const PlaneEntropy& entropy) {
    const std::size_t width = width_of(encoding);
    state_->remember(width, needs_previous(encoding), chunk, entropy);
    const double ratio = ratio_of(width, entropy, chunk.size());
    if (ratio < kMinRatio || ratio <= kind_ratio * kWiderMustWin) return;
    kind = encoding;
    kind_ratio = ratio;
    if (ratio > best.ratio) {
      best.encoding = encoding;
      best.ratio = ratio;
    }
  };
  const EntropySampler::Both plain = state_->sampler.sample_both(chunk);
  consider(Encoding::kPlanes2, best.planes, best.planes_ratio, plain.halves);
  consider(Encoding::kPlanes4, best.planes, best.planes_ratio, plain.words);
  if (previous.size() != chunk.size()) return best;
  // If planes of one width gain, they show the width of the elements. Differences of the other width are then
  // not tried.
  if (best.planes != Encoding::kPlanes4) {
    consider(Encoding::kDifference2, best.difference, best.difference_ratio,
             state_->sampler.sample(2, chunk, previous));
  }
  if (best.planes != Encoding::kPlanes2) {
    consider(Encoding::kDifference4, best.difference, best.difference_ratio,
             state_->sampler.sample(4, chunk, previous));
  }
  return best;
}

std::optional<std::uint32_t> Coder::State::pack(std::span<const std::byte> plane, double entropy, bool noise,
                                                std::span<std::byte> out) noexcept {
  const std::size_t seven = seven_bits_size(plane.size());
  if (noise && seven <= out.size() && pack_seven_bits(plane, out)) {
    return static_cast<std::uint32_t>(seven) | kSevenFlag;
  }
  const bool runs = entropy < kMaxRunBits;
  if (runs) {
    if (const auto size = pack_sparse(plane, out)) return static_cast<std::uint32_t>(*size) | kSparseFlag;
  }
  const auto size = packer.pack(plane, runs, out);
  if (!size) return std::nullopt;
  return static_cast<std::uint32_t>(*size) | kPackedFlag;
}

bool Coder::State::unpack(std::uint32_t length, std::span<const std::byte> packed,
                          std::span<std::byte> plane) noexcept {
  switch (length & ~kLengthMask) {
    case kPackedFlag:
      return packer.unpack(packed, plane);
    case kSevenFlag:
      return unpack_seven_bits(packed, plane);
    case kSparseFlag:
      return unpack_sparse(packed, plane);
    default:
      return false;
  }
}

std::optional<std::size_t> Coder::State::encode(std::size_t width, std::span<const std::byte> chunk,
                                                std::span<const std::byte> previous,
                                                std::span<std::byte> out) noexcept {
  const std::size_t elements = chunk.size() / width;
  const std::size_t left_over = chunk.size() % width;
  const PlaneEntropy entropy = take_sample(width, chunk, previous);

  // Stored planes are split directly to their final place, the others into the scratch memory.
  PlanesOut planes{};
  std::size_t used = width * 4;
  std::size_t scratched = 0;
  for (std::size_t p = 0; p < width; ++p) {
    const bool packed = entropy[p] <= kMaxPackedBits;
    std::size_t& cursor = packed ? scratched : used;
    planes[p] = (packed ? scratch.get() : out.data()) + cursor;
    cursor += elements;
  }
  if (scratched == 0 || used + left_over >= chunk.size()) return std::nullopt;
  const PlaneKernels& kernels = plane_kernels();
  (width == 2 ? kernels.split2 : kernels.split4)(chunk.data(), previous.empty() ? nullptr : previous.data(),
                                                 elements, planes);

  for (std::size_t p = 0; p < width; ++p) {
    auto length = static_cast<std::uint32_t>(elements);
    if (entropy[p] <= kMaxPackedBits) {
      const std::span<std::byte> rest = out.subspan(used, chunk.size() - left_over - used);
      const bool noise = p == 0 && previous.empty() && entropy[p] > kMinSevenBits;
      const auto packed = pack({planes[p], elements}, entropy[p], noise, rest);
      if (!packed) return std::nullopt;
      length = *packed;
      used += length & kLengthMask;
    }
    std::memcpy(out.data() + p * 4, &length, sizeof length);
  }
  if (used + left_over >= chunk.size()) return std::nullopt;
  if (left_over > 0) std::memcpy(out.data() + used, chunk.data() + elements * width, left_over);
  return used + left_over;
}

std::optional<std::size_t> Coder::encode(Encoding encoding, std::span<const std::byte> chunk,
                                         std::span<const std::byte> previous,
                                         std::span<std::byte> out) noexcept {
  const std::size_t width = width_of(encoding);
  if (width == 0 || chunk.size() < width || chunk.size() > state_->max_chunk_bytes) return std::nullopt;
  if (out.size() < chunk.size()) return std::nullopt;
  if (!needs_previous(encoding)) return state_->encode(width, chunk, {}, out);
  if (previous.size() != chunk.size()) return std::nullopt;
  return state_->encode(width, chunk, previous, out);
}

Result<void> Coder::decode(Encoding encoding, std::span<const std::byte> encoded,
                           std::span<const std::byte> previous, std::span<std::byte> out) {
  if (encoding == Encoding::kRaw) return find_codec(Encoding::kRaw)->decode(encoded, out);
  const std::size_t width = width_of(encoding);
  const auto refuse = [&](std::string_view reason) {
    return corrupt(encoding, encoded.size(), out.size(), reason);
  };
  if (width == 0) return refuse("the encoding is unknown");
  if (out.size() > state_->max_chunk_bytes) return refuse("it is longer than any chunk");
  if (needs_previous(encoding) && previous.size() != out.size()) {
    return refuse("the target lacks the version on which this encoding is based");
  }
  const std::size_t elements = out.size() / width;
  const std::size_t left_over = out.size() % width;
  if (elements == 0 || encoded.size() < width * 4 + left_over) return refuse("too short");

  std::array<std::uint32_t, kMaxPlanes> lengths{};
  std::memcpy(lengths.data(), encoded.data(), width * 4);
  PlanesIn planes{};
  std::size_t used = width * 4;
  const std::size_t end = encoded.size() - left_over;
  for (std::size_t p = 0; p < width; ++p) {
    if ((lengths[p] & ~kLengthMask) != 0) continue;
    if (lengths[p] != elements || elements > end - used) return refuse("a stored plane has a wrong length");
    planes[p] = encoded.data() + used;
    used += elements;
  }
  std::size_t scratched = 0;
  for (std::size_t p = 0; p < width; ++p) {
    if ((lengths[p] & ~kLengthMask) == 0) continue;
    const std::size_t length = lengths[p] & kLengthMask;
    if (length > end - used) return refuse("a packed plane is longer than the message");
    std::byte* const plane = state_->scratch.get() + scratched;
    if (!state_->unpack(lengths[p], encoded.subspan(used, length), {plane, elements})) {
      return refuse("a plane cannot be unpacked");
    }
    planes[p] = plane;
    scratched += elements;
    used += length;
  }
  if (used != end) return refuse("bytes remain after the last plane");
  const PlaneKernels& kernels = plane_kernels();
  (width == 2 ? kernels.merge2 : kernels.merge4)(planes, needs_previous(encoding) ? previous.data() : nullptr,
                                                 elements, out.data());
  if (left_over > 0) std::memcpy(out.data() + elements * width, encoded.data() + used, left_over);
  return ok();
}

}  // namespace ckpt::codec
