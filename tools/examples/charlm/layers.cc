// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/charlm/layers.h"

#include <cmath>

namespace ckpt::examples {
namespace {

constexpr double kRate = 2e-3;
constexpr double kEpsilon = 1e-8;

}  // namespace

void matmul(const Kernels& kernels, CUdeviceptr a, std::uint64_t step_m, std::uint64_t step_k, CUdeviceptr b,
            CUdeviceptr out, std::uint32_t rows, std::uint32_t columns, std::uint32_t depth) {
  launch(kernels["matmul"], std::uint64_t{rows / kRows} * (columns / kTile), kTile, a, step_m, step_k, b, out,
         columns, depth);
}

void transpose(const Kernels& kernels, CUdeviceptr in, std::uint32_t rows, std::uint32_t columns,
               CUdeviceptr out) {
  launch(kernels["transpose"], blocks_for(std::uint64_t{rows} * columns), 256, in, rows, columns, out);
}

void update_by_adam(const Kernels& kernels, CUdeviceptr weights, CUdeviceptr gradients, CUdeviceptr first,
                    CUdeviceptr second, std::uint64_t count, std::uint64_t step) {
  const double mean = 1 - std::pow(0.9, static_cast<double>(step));
  const double spread = std::sqrt(1 - std::pow(0.999, static_cast<double>(step)));
  launch(kernels["adam"], blocks_for(count), 256, weights, gradients, first, second, count,
         static_cast<float>(kRate * spread / mean), static_cast<float>(kEpsilon * spread));
}

}  // namespace ckpt::examples
