// SPDX-License-Identifier: Apache-2.0
// The kernels of serve. Weights and cache are rows of kWidth floats.
#include <cudasim/kernel.h>

constexpr uint32_t kWidth = 64;
constexpr uint32_t kThreads = 64;

CUDASIM_DEVICE uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Returns a float in [-1, 1) from the upper bits of a number.
CUDASIM_DEVICE float unit(uint32_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits)) * (1.0f / 2147483648.0f);
}

CUDASIM_KERNEL(fill_weights, float* CUDASIM_RESTRICT weights, uint64_t count, uint64_t seed) {
  CUDASIM_FOR(i, count) {
    const uint64_t x = (seed + i) * 0x9E3779B97F4A7C15ull;
    weights[i] = unit(static_cast<uint32_t>((x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ull >> 32));
  }
}

// Appends one row for each token of a prompt: block b computes row (first + b) from the token's weights and
// from an older row.
CUDASIM_KERNEL(append_rows, const float* CUDASIM_RESTRICT weights, float* cache, uint64_t weight_rows,
               uint64_t cache_rows, uint64_t first, uint64_t prompt) {
  const uint64_t token = mix(prompt + CUDASIM_BLOCK_INDEX());
  const uint64_t row = first + CUDASIM_BLOCK_INDEX();
  // The kernel uses older rows only, since other blocks may still compute the rows of this prompt.
  const uint64_t filled = first < cache_rows ? first : cache_rows - CUDASIM_GRID_BLOCKS();
  const uint64_t older = filled == 0 ? 0 : (first + cache_rows - 1 - mix(token) % filled) % cache_rows;
  const float* const from = weights + (token % weight_rows) * kWidth;
  const float* const past = cache + older * kWidth;
  float* const to = cache + (row % cache_rows) * kWidth;
  const float share = filled == 0 ? 0.0f : 0.5f;
  CUDASIM_THREADS(t) {
    to[t] = filled == 0 ? from[t] : from[t] + share * past[t];
  }
}

// Computes in scores[b] how well row (start + b) of `rows` matches the query, which is row `query` of the
// cache.
CUDASIM_KERNEL(score_rows, const float* CUDASIM_RESTRICT rows, const float* CUDASIM_RESTRICT cache,
               uint64_t row_count, uint64_t start, uint64_t query, float* CUDASIM_RESTRICT scores) {
  CUDASIM_SHARED(float, product, kThreads);
  const float* const row = rows + ((start + CUDASIM_BLOCK_INDEX()) % row_count) * kWidth;
  const float* const asked = cache + query * kWidth;
  CUDASIM_THREADS(t) {
    product[t] = row[t] * asked[t];
  }
  CUDASIM_BARRIER();
  CUDASIM_THREAD_ZERO() {
    float sum = 0;
    for (uint32_t i = 0; i < kWidth; i++) sum += product[i];
    scores[CUDASIM_BLOCK_INDEX()] = sum;
  }
}

// Stores the bits of the best score in answer[0], and its place among `count` (the first of equals) in
// answer[1]. The kernel runs as one block.
CUDASIM_KERNEL(best_score, const float* CUDASIM_RESTRICT scores, uint64_t count,
               float* CUDASIM_RESTRICT answer) {
  CUDASIM_SHARED(float, best, kThreads);
  CUDASIM_SHARED(uint32_t, place, kThreads);
  CUDASIM_THREADS(t) {
    best[t] = scores[t % count];
    place[t] = static_cast<uint32_t>(t % count);
    for (uint64_t i = t; i < count; i += kThreads) {
      if (scores[i] > best[t]) {
        best[t] = scores[i];
        place[t] = static_cast<uint32_t>(i);
      }
    }
  }
  CUDASIM_BARRIER();
  CUDASIM_THREAD_ZERO() {
    uint32_t winner = 0;
    for (uint32_t i = 1; i < kThreads; i++) {
      const bool better = best[i] > best[winner] || (best[i] == best[winner] && place[i] < place[winner]);
      winner = better ? i : winner;
    }
    answer[0] = best[winner];
    answer[1] = static_cast<float>(place[winner]);
  }
}
