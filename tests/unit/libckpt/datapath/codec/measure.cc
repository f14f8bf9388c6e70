// SPDX-License-Identifier: Apache-2.0
// Measures the ratio and rates of every codec on memory of a training job with one thread; asserts nothing.
// The output also shows the time for sampling and a plain copy of the same memory.   codec_measure
// [PARAMETERS [PASSES]]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/datapath/codec/coder.h"
#include "tools/bench/measuring/float_data.h"

namespace ckpt::codec {
namespace {

using Bytes = std::span<const std::byte>;

struct Rates {
  double ratio = 1;
  double encode = 0;  // GB/s of plain bytes, including sampling
  double decode = 0;
  double estimate = 0;  // GB/s of sampling alone
};

// Returns the processor time of this thread. Other threads on the cores affect this time only through the
// caches.
Nanos cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return Nanos{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

double gigabytes_per_second(std::size_t bytes, Nanos nanos) {
  return nanos > 0 ? static_cast<double>(bytes) / static_cast<double>(nanos) : 0;
}

struct Encoded {
  std::size_t at;
  std::size_t bytes;
  bool raw;
};

// The best of `passes` passes over all chunks. Other work on the machine only ever makes a pass slower.
class Measurement {
 public:
  Measurement(Coder& coder, Bytes now, Bytes before, std::size_t chunk_bytes)
      : coder_(coder),
        now_(now),
        before_(before),
        chunk_bytes_(chunk_bytes),
        wire_(now.size()),
        back_(now.size()) {}

  Rates run(Encoding encoding, int passes) {
    Rates rates;
    for (int pass = 0; pass < passes; ++pass) {
      // Handles chunk by chunk as a lane does: a sampled chunk is still in the cache.
      used_ = 0;
      encoded_.clear();
      Nanos estimating = 0, encoding_time = 0, decoding = 0;
      for (std::size_t at = 0; at < now_.size(); at += chunk_bytes_) {
        const Nanos start = cpu_ns();
        sink_ +=
            coder_.estimate(chunk(now_, at), needs_previous(encoding) ? chunk(before_, at) : Bytes{}).ratio;
        const Nanos estimated = cpu_ns();
        encode_one(encoding, at);
        estimating += estimated - start;
        encoding_time += cpu_ns() - estimated;
      }
      const Nanos start = cpu_ns();
      decode_all(encoding);
      decoding = cpu_ns() - start;
      rates.estimate = std::max(rates.estimate, gigabytes_per_second(now_.size(), estimating));
      rates.encode = std::max(rates.encode, gigabytes_per_second(now_.size(), estimating + encoding_time));
      rates.decode = std::max(rates.decode, gigabytes_per_second(now_.size(), decoding));
    }
    if (std::memcmp(back_.data(), now_.data(), now_.size()) != 0) std::abort();
    rates.ratio = static_cast<double>(now_.size()) / static_cast<double>(used_);
    return rates;
  }

 private:
  Bytes chunk(Bytes all, std::size_t at) const {
    return all.subspan(at, std::min(chunk_bytes_, all.size() - at));
  }

  void encode_one(Encoding encoding, std::size_t at) {
    const Bytes plain = chunk(now_, at);
    const auto room = std::span(wire_).subspan(used_, plain.size());
    const auto size = coder_.encode(encoding, plain, chunk(before_, at), room);
    if (!size) std::memcpy(room.data(), plain.data(), plain.size());
    encoded_.push_back({used_, size.value_or(plain.size()), !size});
    used_ += encoded_.back().bytes;
  }
  void decode_all(Encoding encoding) {
    std::size_t at = 0;
    for (const Encoded& one : encoded_) {
      const auto out = std::span(back_).subspan(at, chunk(now_, at).size());
      const auto result = coder_.decode(one.raw ? Encoding::kRaw : encoding,
                                        Bytes(wire_).subspan(one.at, one.bytes), chunk(before_, at), out);
      if (!result.has_value()) std::abort();
      at += out.size();
    }
  }

  Coder& coder_;
  const Bytes now_, before_;
  const std::size_t chunk_bytes_;
  std::vector<std::byte> wire_, back_;
  std::vector<Encoded> encoded_;
  std::size_t used_ = 0;
  double sink_ = 0;
};

int measure(std::size_t parameters, int passes) {
  const bench::TrainingData data = bench::make_training_data(parameters, {});
  std::printf("%-20s %-12s %8s %7s %9s %9s %9s   (GB/s of plain bytes, one thread, its processor time)\n",
              "class", "encoding", "chunk", "ratio", "encode", "decode", "estimate");
  for (const std::size_t chunk_bytes : {64UL << 10, 1UL << 20}) {
    const auto coder = Coder::create(chunk_bytes).value();
    for (const bench::FloatClass kind : bench::kFloatClasses) {
      const Bytes now = bench::bytes_of(data.now, kind), before = bench::bytes_of(data.before, kind);
      const bool half = kind == bench::FloatClass::kHalfWeights || kind == bench::FloatClass::kGradients;
      Measurement measurement(*coder, now, before, chunk_bytes);
      for (const Encoding encoding : {half ? Encoding::kPlanes2 : Encoding::kPlanes4,
                                      half ? Encoding::kDifference2 : Encoding::kDifference4}) {
        const Rates rates = measurement.run(encoding, passes);
        std::printf("%-20s %-12s %8zu %7.3f %9.2f %9.2f %9.1f\n", std::string(bench::name_of(kind)).c_str(),
                    std::string(to_string(encoding)).c_str(), chunk_bytes, rates.ratio, rates.encode,
                    rates.decode, rates.estimate);
      }
    }
  }
  std::vector<std::byte> copy(bytes_of(data.now, bench::FloatClass::kWeights).size());
  double best = 0;
  for (int pass = 0; pass <= passes; ++pass) {
    const Nanos start = cpu_ns();
    std::memcpy(copy.data(), data.now.weights.data(), copy.size());
    best = std::max(best, gigabytes_per_second(copy.size(), cpu_ns() - start));
  }
  std::printf("memcpy of the same memory: %.1f GB/s\n", best);
  return 0;
}

}  // namespace
}  // namespace ckpt::codec

int main(int argc, char** argv) {
  const std::size_t parameters = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{4} << 20;
  const int passes = argc > 2 ? std::atoi(argv[2]) : 5;
  if (parameters == 0 || passes <= 0) {
    std::fprintf(stderr, "codec_measure [PARAMETERS [PASSES]]\n");
    return 64;
  }
  return ckpt::codec::measure(parameters, passes);
}
