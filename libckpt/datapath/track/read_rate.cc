// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/read_rate.h"

#include <algorithm>
#include <vector>

#include "libckpt/base/check.h"
#include "libckpt/base/clock.h"

namespace ckpt::track {
namespace {

// The bytes that one block of threads reads. Many blocks are needed to fill a device.
constexpr std::uint64_t kPieceBytes = 256 * 1024;
constexpr std::size_t kLaunchPieces = kReadLaunchBytes / kPieceBytes;

Result<std::vector<ChunkRange>> cut(std::span<const ChunkRange> ranges, std::uint64_t budget_bytes) {
  std::vector<ChunkRange> pieces;
  for (const ChunkRange& range : ranges) {
    if (range.address % 16 != 0)
      return Error(ErrorCode::kInvalidArgument, "Memory to read must be aligned to 16 bytes");
    const std::uint64_t bytes = std::min(range.bytes, budget_bytes);
    append_chunks(range.address, bytes, kPieceBytes, pieces);
    budget_bytes -= bytes;
  }
  if (pieces.empty())
    return Error(ErrorCode::kInvalidArgument, "There is no memory on which to measure a read rate");
  return pieces;
}

class Reader {
 public:
  static Result<Reader> create(const TrackKernels& kernels, std::size_t pieces) {
    CKPT_TRY(list,
             DeviceList::create(kernels.device(), pieces * (sizeof(ChunkRange) + sizeof(std::uint64_t))));
    ContextScope scope(kernels.device());
    CUstream stream = nullptr;
    CKPT_CUDA_TRY(kernels.device().api(), cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return Reader(kernels, std::move(list), pieces, stream);
  }
  Reader(Reader&& other) noexcept
      : kernels_(other.kernels_),
        list_(std::move(other.list_)),
        capacity_(other.capacity_),
        stream_(std::exchange(other.stream_, nullptr)) {}
  Reader& operator=(Reader&&) = delete;
  ~Reader() {
    if (stream_ == nullptr) return;
    ContextScope scope(kernels_.device());
    kernels_.device().api().cuStreamSynchronize(stream_);
    kernels_.device().api().cuStreamDestroy_v2(stream_);
  }

  // Returns the device's time for one launch over `pieces`, without the time to copy the list to the device.
  Result<Nanos> time(std::span<const ChunkRange> pieces) {
    CKPT_CHECK(pieces.size() <= capacity_, "a launch fits its list");
    const DriverApi& api = kernels_.device().api();
    ContextScope scope(kernels_.device());
    std::copy(pieces.begin(), pieces.end(), reinterpret_cast<ChunkRange*>(list_.host()));
    CKPT_TRYV(list_.upload(stream_, 0, pieces.size_bytes()));
    CKPT_CUDA_TRY(api, cuStreamSynchronize(stream_));
    const Nanos start = now_ns();
    CKPT_TRYV(kernels_.launch_read(stream_, list_.device_address(),
                                   list_.device_address() + capacity_ * sizeof(ChunkRange),
                                   static_cast<std::uint32_t>(pieces.size())));
    CKPT_CUDA_TRY(api, cuStreamSynchronize(stream_));
    return now_ns() - start;
  }

 private:
  Reader(const TrackKernels& kernels, DeviceList list, std::size_t capacity, CUstream stream)
      : kernels_(kernels), list_(std::move(list)), capacity_(capacity), stream_(stream) {}
  const TrackKernels& kernels_;
  DeviceList list_;  // holds capacity_ pieces, followed by capacity_ results
  std::size_t capacity_;
  CUstream stream_;
};

}  // namespace

Result<std::uint64_t> measure_read_rate(const TrackKernels& kernels, std::span<const ChunkRange> ranges,
                                        std::uint64_t budget_bytes) {
  CKPT_TRY(pieces, cut(ranges, budget_bytes));
  CKPT_TRY(reader, Reader::create(kernels, std::min(pieces.size(), kLaunchPieces)));
  const auto all = std::span<const ChunkRange>(pieces);
  CKPT_TRYV(reader.time(all.first(1)));  // a first launch, which loads the code
  CKPT_TRY(single, reader.time(all.first(1)));
  std::uint64_t bytes = 0;
  Nanos elapsed = 0;
  for (std::size_t first = 0; first < all.size(); first += kLaunchPieces) {
    const auto part = all.subspan(first, std::min(kLaunchPieces, all.size() - first));
    CKPT_TRY(took, reader.time(part));
    for (const ChunkRange& piece : part) bytes += piece.bytes;
    // Both launches have the same overhead in addition to the reading. The single piece's own reading is
    // excluded on both sides.
    const bool comparable = part.size() > 1 && took > 2 * single;
    if (comparable) bytes -= all.front().bytes;
    elapsed += std::max<Nanos>(comparable ? took - single : took, 1);
  }
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(elapsed));
}

}  // namespace ckpt::track
