// SPDX-License-Identifier: Apache-2.0
// Calls of charlm's kernels that its model and the stages of `pipeline` share. Matrices contain floats, row
// by row; their widths are multiples of kTile, and their heights of kRows. Everything is enqueued on the
// current stream, and every sum has a fixed order.
// Threads: one. Errors: the program exits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

constexpr std::uint32_t kTile = 64;
constexpr std::uint32_t kRows = 4;

constexpr std::uint64_t bytes_of(std::uint64_t floats) {
  return floats * sizeof(float);
}

// Returns the number of blocks of an element-wise kernel over `count` elements.
inline std::uint64_t blocks_for(std::uint64_t count) {
  return std::clamp<std::uint64_t>(count / 4096, 1, 256);
}

// Computes out[m][n] = sum over k of a[m * step_m + k * step_k] * b[k][n].
void matmul(const Kernels& kernels, CUdeviceptr a, std::uint64_t step_m, std::uint64_t step_k, CUdeviceptr b,
            CUdeviceptr out, std::uint32_t rows, std::uint32_t columns, std::uint32_t depth);
void transpose(const Kernels& kernels, CUdeviceptr in, std::uint32_t rows, std::uint32_t columns,
               CUdeviceptr out);
// Performs one step of Adam over arrays of `count` floats; `step` counts from 1.
void update_by_adam(const Kernels& kernels, CUdeviceptr weights, CUdeviceptr gradients, CUdeviceptr first,
                    CUdeviceptr second, std::uint64_t count, std::uint64_t step);

}  // namespace ckpt::examples
