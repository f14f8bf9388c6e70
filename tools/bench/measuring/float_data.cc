// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/measuring/float_data.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ckpt::bench {
namespace {

constexpr std::size_t kColumns = 1024;
constexpr float kWeightScale = 0.02F;
constexpr float kGradientScale = 2e-4F;
constexpr float kScaleSpread = 0.5F;  // spread of the scales' logarithm, for rows and for columns
constexpr float kBeta1 = 0.9F, kBeta2 = 0.95F, kDecay = 0.1F, kEpsilon = 1e-8F;

// A generator of approximately Gaussian numbers, each the sum of four uniform 16-bit numbers. For a codec,
// only the density around zero matters.
class Gaussian {
 public:
  explicit Gaussian(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 0x2545f4914f6cdd1dULL) {}
  float operator()() noexcept {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    const std::uint64_t bits = state_ * 0x2545f4914f6cdd1dULL;
    const auto sum = static_cast<std::int64_t>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                               (bits >> 32 & 0xffff) + (bits >> 48));
    // The mean of the sum is 2^17, and its standard deviation is 2^16 / sqrt(3).
    return static_cast<float>(sum - 131070) * (1.7320508F / 65536.0F);
  }

 private:
  std::uint64_t state_;
};

std::uint16_t to_half(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_half(std::uint16_t half) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

std::vector<float> make_scales(std::size_t count, Gaussian& gaussian) {
  std::vector<float> scales(count);
  // Scales are powers of two with a linear mantissa. No library's exp() is used, so the bits are the same on
  // every machine.
  for (float& scale : scales) {
    const float power = kScaleSpread * gaussian() / 0.6931472F;
    const float whole = std::floor(power);
    scale = std::ldexp(1.0F + (power - whole), static_cast<int>(whole));
  }
  return scales;
}

void step(TrainingState& state, float learning_rate, std::span<const float> rows,
          std::span<const float> columns, Gaussian& gaussian) {
  for (std::size_t i = 0; i < state.weights.size(); ++i) {
    const float scale = kGradientScale * rows[i / kColumns] * columns[i % kColumns];
    state.gradients[i] = to_half(scale * gaussian());
    const float gradient = from_half(state.gradients[i]);
    float& m = state.first_moment[i];
    float& v = state.second_moment[i];
    float& w = state.weights[i];
    m = kBeta1 * m + (1 - kBeta1) * gradient;
    v = kBeta2 * v + (1 - kBeta2) * gradient * gradient;
    w -= learning_rate * kDecay * w;
    w -= learning_rate * m / (std::sqrt(v) + kEpsilon);
    state.half_weights[i] = to_half(w);
  }
}

}  // namespace

std::string_view name_of(FloatClass kind) noexcept {
  switch (kind) {
    case FloatClass::kWeights:
      return "weights fp32";
    case FloatClass::kHalfWeights:
      return "weights bf16";
    case FloatClass::kFirstMoment:
      return "first moment fp32";
    case FloatClass::kSecondMoment:
      return "second moment fp32";
    case FloatClass::kGradients:
      return "gradients bf16";
  }
  return "unknown";
}

std::span<const std::byte> bytes_of(const TrainingState& state, FloatClass kind) noexcept {
  switch (kind) {
    case FloatClass::kWeights:
      return std::as_bytes(std::span(state.weights));
    case FloatClass::kHalfWeights:
      return std::as_bytes(std::span(state.half_weights));
    case FloatClass::kFirstMoment:
      return std::as_bytes(std::span(state.first_moment));
    case FloatClass::kSecondMoment:
      return std::as_bytes(std::span(state.second_moment));
    case FloatClass::kGradients:
      return std::as_bytes(std::span(state.gradients));
  }
  return {};
}

std::vector<std::byte> bytes_of(const TrainingState& state) {
  std::vector<std::byte> all;
  for (const FloatClass kind : kFloatClasses) {
    const auto bytes = bytes_of(state, kind);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

TrainingData make_training_data(std::size_t parameters, const TrainingSettings& settings) {
  Gaussian gaussian(settings.seed);
  const std::vector<float> rows = make_scales(parameters / kColumns + 1, gaussian);
  const std::vector<float> columns = make_scales(kColumns, gaussian);
  TrainingData data;
  TrainingState& state = data.now;
  state.weights.resize(parameters);
  state.first_moment.resize(parameters);
  state.second_moment.resize(parameters);
  state.half_weights.resize(parameters);
  state.gradients.resize(parameters);
  for (float& weight : state.weights) weight = kWeightScale * gaussian();
  for (unsigned i = 0; i < settings.steps; ++i) {
    step(state, settings.learning_rate, rows, columns, gaussian);
  }
  data.before = state;
  step(state, settings.learning_rate, rows, columns, gaussian);
  return data;
}

}  // namespace ckpt::bench
