// SPDX-License-Identifier: Apache-2.0
// Device memory of a training job, for measuring codecs: a mixed-precision Adam run on Gaussian gradients. So
// exponents, moments and one step's changes are distributed as in training. It has fp32 master weights, bf16
// working weights and gradients, and fp32 moments; b = (0.9, 0.95), weight decay 0.1. The scale of gradients
// differs from row to row and column to column, as in layers.
//
//   const TrainingData data = make_training_data(4 << 20, {});
//   for (const FloatClass kind : kFloatClasses) measure(name_of(kind), bytes_of(data.now, kind),
//   bytes_of(data.before, kind));
//
// The same settings yield the same bytes on every x86-64 machine. Making the data takes about 1.5 s per
// million parameters (14 + 2 bytes each, twice).
// Threads: any, stateless. Sizes are in parameters. Throws std::bad_alloc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ckpt::bench {

enum class FloatClass { kWeights, kHalfWeights, kFirstMoment, kSecondMoment, kGradients };
inline constexpr std::array kFloatClasses = {FloatClass::kWeights, FloatClass::kHalfWeights,
                                             FloatClass::kFirstMoment, FloatClass::kSecondMoment,
                                             FloatClass::kGradients};
// Returns the class's name, such as "weights fp32".
[[nodiscard]] std::string_view name_of(FloatClass kind) noexcept;

struct TrainingState {
  std::vector<float> weights, first_moment, second_moment;
  std::vector<std::uint16_t> half_weights, gradients;  // bf16 values
};
[[nodiscard]] std::span<const std::byte> bytes_of(const TrainingState& state, FloatClass kind) noexcept;
// Returns the bytes of all classes, one after the other.
[[nodiscard]] std::vector<std::byte> bytes_of(const TrainingState& state);

// The states of two successive steps.
struct TrainingData {
  TrainingState before, now;
};
struct TrainingSettings {
  float learning_rate = 3e-4F;  // phase A of a measured training run; phase B has 3e-5, and C has 1e-6
  unsigned steps = 60;          // steps before `before`, after which the moments have settled
  std::uint64_t seed = 1;
};
[[nodiscard]] TrainingData make_training_data(std::size_t parameters, const TrainingSettings& settings);

}  // namespace ckpt::bench
