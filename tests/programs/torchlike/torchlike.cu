// SPDX-License-Identifier: Apache-2.0
// The kernels of torchlike. They use integers, so that the order of additions has no effect.
#include <cudasim/kernel.h>

CUDASIM_DEVICE uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

CUDASIM_KERNEL(forward, const uint64_t* weights, const uint64_t* input, uint64_t input_words, uint64_t* out,
               uint64_t words) {
  CUDASIM_FOR(i, words) {
    out[i] = mixed(weights[i] + input[i % input_words]);
  }
}

CUDASIM_KERNEL(backward, const uint64_t* activation, uint64_t* gradient, uint64_t words) {
  CUDASIM_FOR(i, words) {
    gradient[i] = mixed(activation[i] + i);
  }
}

CUDASIM_KERNEL(update, uint64_t* weights, const uint64_t* gradient, uint64_t words) {
  CUDASIM_FOR(i, words) {
    weights[i] = weights[i] * 0x9E3779B97F4A7C15ull + gradient[i];
  }
}

CUDASIM_KERNEL(sum, const uint64_t* in, uint64_t words, uint64_t* out) {
  CUDASIM_FOR(i, words) {
    cudasim_atomic_add(out, in[i]);
  }
}
