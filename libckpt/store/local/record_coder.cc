// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/local/record_coder.h"

#include <zstd.h>

#include <algorithm>
#include <optional>

#include "libckpt/datapath/codec/coder.h"

namespace ckpt::checkpoint_store {
namespace {

constexpr double kMinRatio = 1.1;
constexpr int kZstdLevel = 1;
constexpr std::size_t kSampleBytes = 4096;
// The minimum size of a coder, which always fits blobs' chunks and lists.
constexpr std::size_t kMinCoderBytes = 64 << 10;
// The minimum size to pack. For smaller content, the headers of planes and the frames of zstd use up the
// savings.
constexpr std::size_t kMinPackedBytes = 512;

Packing packing_of(codec::Encoding encoding) {
  switch (encoding) {
    case codec::Encoding::kPlanes2:
      return Packing::kPlanes2;
    case codec::Encoding::kPlanes4:
      return Packing::kPlanes4;
    default:
      return Packing::kInvalid;
  }
}

}  // namespace

struct RecordCoder::State {
  std::unique_ptr<ContentHasher> hasher;
  std::unique_ptr<codec::Coder> planes;
  std::vector<std::byte> packed;
  ZSTD_CCtx* compressor = ZSTD_createCCtx();
  ZSTD_DCtx* decompressor = ZSTD_createDCtx();
  std::size_t max_bytes = 0;

  State() = default;
  ~State() {
    ZSTD_freeCCtx(compressor);
    ZSTD_freeDCtx(decompressor);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::optional<std::size_t> zstd(std::span<const std::byte> in, std::span<std::byte> out) const {
    const std::size_t size =
        ZSTD_compressCCtx(compressor, out.data(), out.size(), in.data(), in.size(), kZstdLevel);
    if (ZSTD_isError(size) != 0) return std::nullopt;
    return size;
  }
  // Returns the ratio of plain size to packed size that zstd achieves on a sample from the middle. Returns 1
  // if packing fails.
  double zstd_ratio(std::span<const std::byte> plain) {
    const std::size_t bytes = std::min(plain.size(), kSampleBytes);
    const auto sample = plain.subspan((plain.size() - bytes) / 2, bytes);
    const auto size = zstd(sample, packed);
    return size ? static_cast<double>(bytes) / static_cast<double>(*size) : 1;
  }
};

RecordCoder::RecordCoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
RecordCoder::~RecordCoder() = default;

Result<std::unique_ptr<RecordCoder>> RecordCoder::create(const ContentKey& key, std::size_t max_bytes) {
  auto state = std::make_unique<State>();
  CKPT_TRY(hasher, ContentHasher::create(key));
  state->hasher = std::move(hasher);
  CKPT_TRY(planes, codec::Coder::create(max_bytes));
  state->planes = std::move(planes);
  if (state->compressor == nullptr || state->decompressor == nullptr)
    return Error(ErrorCode::kOutOfMemory, "There is no memory for zstd");
  // The coder of planes needs a buffer as long as the plain bytes. A compressed sample is never longer than
  // its bound.
  state->packed.resize(std::max(max_bytes, ZSTD_compressBound(kSampleBytes)));
  state->max_bytes = max_bytes;
  return std::unique_ptr<RecordCoder>(new RecordCoder(std::move(state)));
}

std::size_t RecordCoder::max_bytes() const noexcept {
  return state_->max_bytes;
}

Result<ContentId> RecordCoder::id_of(RecordKind kind, std::span<const std::byte> plain) {
  return state_->hasher->id_of(kind, plain);
}

Packed RecordCoder::pack(std::span<const std::byte> plain, bool compress) {
  const Packed raw{Packing::kRaw, plain};
  if (!compress || plain.size() < kMinPackedBytes || plain.size() > state_->max_bytes) return raw;
  const codec::Estimate estimate = state_->planes->estimate(plain, {});
  const double zstd_ratio = state_->zstd_ratio(plain);
  if (std::max(estimate.planes_ratio, zstd_ratio) < kMinRatio) return raw;
  const bool planes = estimate.planes_ratio > zstd_ratio;
  const auto size = planes ? state_->planes->encode(estimate.planes, plain, {}, state_->packed)
                           : state_->zstd(plain, state_->packed);
  if (!size || static_cast<double>(*size) * kMinRatio > static_cast<double>(plain.size())) return raw;
  const Packing packing = planes ? packing_of(estimate.planes) : Packing::kZstd;
  if (packing == Packing::kInvalid) return raw;
  return {packing, std::span(state_->packed).first(*size)};
}

Result<void> RecordCoder::unpack(Packing packing, std::span<const std::byte> payload,
                                 std::span<std::byte> out) {
  switch (packing) {
    case Packing::kRaw:
      if (payload.size() != out.size()) break;
      std::copy(payload.begin(), payload.end(), out.begin());
      return ok();
    case Packing::kZstd:
      if (ZSTD_decompressDCtx(state_->decompressor, out.data(), out.size(), payload.data(), payload.size()) !=
          out.size())
        break;
      return ok();
    case Packing::kPlanes2:
      return state_->planes->decode(codec::Encoding::kPlanes2, payload, {}, out);
    case Packing::kPlanes4:
      return state_->planes->decode(codec::Encoding::kPlanes4, payload, {}, out);
    case Packing::kInvalid:
      break;
  }
  return Error(ErrorCode::kCorrupt,
               "A record cannot be unpacked to its " + std::to_string(out.size()) + " bytes");
}

Result<void> RecordCoder::open(const RecordHead& head, std::span<const std::byte> record,
                               std::span<std::byte> out) {
  if (head.plain_bytes != out.size())
    return Error(ErrorCode::kCorrupt, "A record of " + std::to_string(head.plain_bytes) + " bytes where " +
                                          std::to_string(out.size()) + " are expected");
  CKPT_TRY(payload, check_payload(head, record));
  CKPT_TRYV(unpack(head.packing, payload, out));
  CKPT_TRY(id, id_of(head.kind, out));
  if (id != head.id) return Error(ErrorCode::kCorrupt, "A record's content does not match its id");
  return ok();
}

Result<RecordCoders::Loan> RecordCoders::borrow(std::size_t max_bytes) {
  max_bytes = std::max(max_bytes, kMinCoderBytes);
  {
    const std::lock_guard lock(mutex_);
    // Coders that are too small for these chunks are not used again.
    std::erase_if(idle_, [max_bytes](const auto& coder) { return coder->max_bytes() < max_bytes; });
    if (!idle_.empty()) {
      auto coder = std::move(idle_.back());
      idle_.pop_back();
      return Loan(*this, std::move(coder));
    }
  }
  CKPT_TRY(coder, RecordCoder::create(key_, max_bytes));
  return Loan(*this, std::move(coder));
}

void RecordCoders::give_back(std::unique_ptr<RecordCoder> coder) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(coder));
}

}  // namespace ckpt::checkpoint_store
