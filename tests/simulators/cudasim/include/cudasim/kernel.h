// SPDX-License-Identifier: Apache-2.0
// One kernel source for two compilers: nvcc makes a fat binary of it, g++ a module of the software driver.
//
//   #include <cudasim/kernel.h>
//
//   CUDASIM_KERNEL(axpy, float a, const float* x, float* y, uint64_t n) {
//     CUDASIM_FOR(i, n) y[i] += a * x[i];
//   }
//
//   CUDASIM_KERNEL(row_sums, const float* in, float* out, uint32_t width) {    // one block per row
//     CUDASIM_SHARED(float, part, 256);  // launched with at most 256 threads
//     const float* row = in + uint64_t(CUDASIM_BLOCK_INDEX()) * width;
//     CUDASIM_THREADS(t) {
//       float sum = 0;
//       for (uint32_t i = t; i < width; i += CUDASIM_BLOCK_THREADS()) sum += row[i];
//       part[t] = sum;
//     }
//     CUDASIM_BARRIER();
//     CUDASIM_THREAD_ZERO() {
//       float sum = 0;
//       for (uint32_t t = 0; t < CUDASIM_BLOCK_THREADS(); t++) sum += part[t];
//       out[CUDASIM_BLOCK_INDEX()] = sum;
//     }
//   }
//
// The compilers differ: with nvcc every thread runs the body, and CUDASIM_THREADS runs once for this thread.
// With g++ the body is called once per block, and CUDASIM_THREADS is a loop over the block's threads.
// Therefore the following rules apply:
// - A thread's values are declared inside a thread loop, or in shared memory if the next loop needs them.
// - Code outside of the loops is equal for all threads of a block: it computes, but writes no memory.
// - CUDASIM_BARRIER is placed between thread loops, never inside a loop. `continue` ends a thread's turn;
//   never use `return` or `break`.
// - CUDASIM_FOR(i, n) visits each i below n once over the whole grid, in no defined order. With nvcc this is
//   a grid-stride loop. With g++ each block has one contiguous share, so that the compiler vectorizes the
//   loop.
// Blocks are one-dimensional unless CUDASIM_BLOCK_INDEX_Y/Z are used; threads always are. Device pointers are
// plain pointers: the launching program passes the address of a CUdeviceptr (or of the number) for each
// argument.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)

// Defines a kernel, which cuModuleGetFunction finds under NAME: CUDASIM_KERNEL(name, parameters...) { body }
#define CUDASIM_KERNEL(name, ...) extern "C" __global__ void name(__VA_ARGS__)
// Declares a function that kernels call.
#define CUDASIM_DEVICE static __device__ __forceinline__
// Declares a compile-time table: CUDASIM_CONSTANT uint32_t kTable[4] = {...};
#define CUDASIM_CONSTANT static __device__ const
// Declares a variable of the module, which cuModuleGetGlobal finds: CUDASIM_GLOBAL(uint64_t, counter);
#define CUDASIM_GLOBAL(type, name) \
  extern "C" {                     \
  __device__ type name;            \
  }                                \
  static_assert(sizeof(type) > 0, "a module variable has a size")
#define CUDASIM_RESTRICT __restrict__

#define CUDASIM_BLOCK_INDEX() (blockIdx.x)
#define CUDASIM_BLOCK_INDEX_Y() (blockIdx.y)
#define CUDASIM_BLOCK_INDEX_Z() (blockIdx.z)
#define CUDASIM_GRID_BLOCKS() (gridDim.x)
#define CUDASIM_GRID_BLOCKS_Y() (gridDim.y)
#define CUDASIM_GRID_BLOCKS_Z() (gridDim.z)
#define CUDASIM_BLOCK_THREADS() (blockDim.x)

#define CUDASIM_THREADS(t) \
  for (uint32_t t = threadIdx.x, cudasim_once_##t = 1; cudasim_once_##t != 0; cudasim_once_##t = 0)
#define CUDASIM_THREAD_ZERO() if (threadIdx.x == 0)
#define CUDASIM_FOR(i, n)                                                                   \
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x, cudasim_end_##i = (n), \
                cudasim_step_##i = uint64_t(gridDim.x) * blockDim.x;                        \
       i < cudasim_end_##i; i += cudasim_step_##i)

#define CUDASIM_SHARED(type, name, count) __shared__ type name[count]
// Declares the shared memory that the launch requested; once per kernel.
#define CUDASIM_DYNAMIC_SHARED(type, name)                               \
  extern __shared__ __align__(16) unsigned char cudasim_shared_memory[]; \
  type* const name = reinterpret_cast<type*>(cudasim_shared_memory)
#define CUDASIM_BARRIER() __syncthreads()

// Atomics on device memory with relaxed order; each returns the old value.
CUDASIM_DEVICE uint32_t cudasim_atomic_add(uint32_t* p, uint32_t v) {
  return atomicAdd(p, v);
}
CUDASIM_DEVICE uint64_t cudasim_atomic_add(uint64_t* p, uint64_t v) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v));
}
CUDASIM_DEVICE float cudasim_atomic_add(float* p, float v) {
  return atomicAdd(p, v);
}
CUDASIM_DEVICE uint32_t cudasim_atomic_max(uint32_t* p, uint32_t v) {
  return atomicMax(p, v);
}
CUDASIM_DEVICE uint64_t cudasim_atomic_max(uint64_t* p, uint64_t v) {
  return atomicMax(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v));
}
CUDASIM_DEVICE uint32_t cudasim_atomic_or(uint32_t* p, uint32_t v) {
  return atomicOr(p, v);
}

#else  // compiled with g++

#include <stddef.h>

#include <tuple>
#include <utility>

// A block of a launch, as a kernel of a module sees it. The struct is part of the ABI between modules and the
// executor.
extern "C" struct cudasim_block {
  uint32_t index[3];
  uint32_t grid[3];
  uint32_t threads;
  uint32_t shared_bytes;
  unsigned char* shared;
};

// The parameters of kernel NAME, which the module's symbol cudasim_parameters_NAME stores.
extern "C" struct cudasim_parameters {
  uint32_t count;
  struct {
    uint32_t size;
    uint32_t align;
  } items[64];
};

// The driver distinguishes a module from other shared objects by this symbol.
extern "C" __attribute__((weak, visibility("default"))) const uint32_t cudasim_module_abi = 1;

namespace cudasim {

template <typename... Args>
constexpr cudasim_parameters parameters_of(void (*)(const cudasim_block&, Args...)) {
  static_assert(sizeof...(Args) <= 64, "a kernel has at most 64 parameters");
  cudasim_parameters out{sizeof...(Args), {}};
  size_t i = 0;
  ((out.items[i].size = sizeof(Args), out.items[i].align = alignof(Args), i++), ...);
  return out;
}

template <auto body, typename... Args, size_t... I>
inline void call(const cudasim_block& block, void** args, void (*)(const cudasim_block&, Args...),
                 std::index_sequence<I...>) {
  (void)args;
  body(block, *static_cast<std::remove_const_t<Args>*>(args[I])...);
}

template <auto body, typename... Args>
inline void call(const cudasim_block& block, void** args, void (*signature)(const cudasim_block&, Args...)) {
  call<body>(block, args, signature, std::index_sequence_for<Args...>{});
}

}  // namespace cudasim

#define CUDASIM_KERNEL(name, ...)                                                                         \
  static void name##_body(const cudasim_block& cudasim_this_block __VA_OPT__(, ) __VA_ARGS__);            \
  extern "C" __attribute__((visibility("default"))) void name(const cudasim_block* block, void** args) {  \
    ::cudasim::call<&name##_body>(*block, args, &name##_body);                                            \
  }                                                                                                       \
  extern "C" __attribute__((visibility("default"))) const cudasim_parameters cudasim_parameters_##name;   \
  extern "C" const cudasim_parameters cudasim_parameters_##name = ::cudasim::parameters_of(&name##_body); \
  static inline void name##_body([[maybe_unused]] const cudasim_block& cudasim_this_block __VA_OPT__(, )  \
                                     __VA_ARGS__)
#define CUDASIM_DEVICE static inline
#define CUDASIM_CONSTANT static const
#define CUDASIM_GLOBAL(type, name)                             \
  extern "C" __attribute__((visibility("default"))) type name; \
  type name
#define CUDASIM_RESTRICT __restrict__

#define CUDASIM_BLOCK_INDEX() (cudasim_this_block.index[0])
#define CUDASIM_BLOCK_INDEX_Y() (cudasim_this_block.index[1])
#define CUDASIM_BLOCK_INDEX_Z() (cudasim_this_block.index[2])
#define CUDASIM_GRID_BLOCKS() (cudasim_this_block.grid[0])
#define CUDASIM_GRID_BLOCKS_Y() (cudasim_this_block.grid[1])
#define CUDASIM_GRID_BLOCKS_Z() (cudasim_this_block.grid[2])
#define CUDASIM_BLOCK_THREADS() (cudasim_this_block.threads)

#define CUDASIM_THREADS(t) \
  for (uint32_t t = 0, cudasim_threads_##t = cudasim_this_block.threads; t < cudasim_threads_##t; t++)
#define CUDASIM_THREAD_ZERO()
#define CUDASIM_FOR(i, n)                                                                          \
  for (uint64_t cudasim_n_##i = (n),                                                               \
                cudasim_share_##i =                                                                \
                    (cudasim_n_##i + cudasim_this_block.grid[0] - 1) / cudasim_this_block.grid[0], \
                i = cudasim_share_##i * cudasim_this_block.index[0],                               \
                cudasim_end_##i = i + cudasim_share_##i < cudasim_n_##i ? i + cudasim_share_##i    \
                                                                        : cudasim_n_##i;           \
       i < cudasim_end_##i; i++)

#define CUDASIM_SHARED(type, name, count) alignas(64) type name[count]
#define CUDASIM_DYNAMIC_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(cudasim_this_block.shared)
#define CUDASIM_BARRIER() ((void)0)

CUDASIM_DEVICE uint32_t cudasim_atomic_add(uint32_t* p, uint32_t v) {
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
CUDASIM_DEVICE uint64_t cudasim_atomic_add(uint64_t* p, uint64_t v) {
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
CUDASIM_DEVICE float cudasim_atomic_add(float* p, float v) {
  float old = *p;
  float sum = old + v;
  while (!__atomic_compare_exchange(p, &old, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) sum = old + v;
  return old;
}
CUDASIM_DEVICE uint32_t cudasim_atomic_or(uint32_t* p, uint32_t v) {
  return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}

namespace cudasim {
template <typename T>
inline T atomic_max(T* p, T v) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (old < v && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
}  // namespace cudasim
CUDASIM_DEVICE uint32_t cudasim_atomic_max(uint32_t* p, uint32_t v) {
  return cudasim::atomic_max(p, v);
}
CUDASIM_DEVICE uint64_t cudasim_atomic_max(uint64_t* p, uint64_t v) {
  return cudasim::atomic_max(p, v);
}

#endif
