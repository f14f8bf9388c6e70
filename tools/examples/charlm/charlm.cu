// SPDX-License-Identifier: Apache-2.0
// The kernels of charlm: embedding of the last characters, one hidden layer, softmax, their gradients, and
// Adam. Every sum has a fixed order, so that equal state gives equal bits. Widths of matrices are multiples
// of kTile.
#include <cudasim/kernel.h>
#include <math.h>

constexpr uint32_t kTile = 64;  // columns, and threads, of a block of matmul
constexpr uint32_t kRows = 4;   // rows of a block of matmul

// Fills context[b*length + k] and input[b*length*width + k*width + e] from the text at positions[b].
CUDASIM_KERNEL(gather, const uint8_t* CUDASIM_RESTRICT text, const uint64_t* CUDASIM_RESTRICT positions,
               const float* CUDASIM_RESTRICT embedding, uint32_t batch, uint32_t length, uint32_t width,
               uint8_t* CUDASIM_RESTRICT context, float* CUDASIM_RESTRICT input) {
  CUDASIM_FOR(i, uint64_t(batch) * length) {
    const uint64_t b = i / length;
    const uint8_t token = text[positions[b] + i % length];
    context[i] = token;
    for (uint32_t e = 0; e < width; e++) input[i * width + e] = embedding[token * width + e];
  }
}

// Computes out[m][n] = sum over k of a[m*step_m + k*step_k] * b[k][n], with kRows rows and kTile columns per
// block.
CUDASIM_KERNEL(matmul, const float* CUDASIM_RESTRICT a, uint64_t step_m, uint64_t step_k,
               const float* CUDASIM_RESTRICT b, float* CUDASIM_RESTRICT out, uint32_t columns,
               uint32_t depth) {
  CUDASIM_SHARED(float, sum, kRows* kTile);
  const uint32_t tiles = columns / kTile;
  const uint64_t row = uint64_t(CUDASIM_BLOCK_INDEX() / tiles) * kRows;
  const uint64_t column = uint64_t(CUDASIM_BLOCK_INDEX() % tiles) * kTile;
  CUDASIM_THREADS(t) {
    for (uint32_t r = 0; r < kRows; r++) sum[r * kTile + t] = 0;
  }
  for (uint64_t k = 0; k < depth; k++) {
    const float* const line = b + k * columns + column;
    const float a0 = a[(row + 0) * step_m + k * step_k];
    const float a1 = a[(row + 1) * step_m + k * step_k];
    const float a2 = a[(row + 2) * step_m + k * step_k];
    const float a3 = a[(row + 3) * step_m + k * step_k];
    CUDASIM_THREADS(t) {
      const float x = line[t];
      sum[0 * kTile + t] += a0 * x;
      sum[1 * kTile + t] += a1 * x;
      sum[2 * kTile + t] += a2 * x;
      sum[3 * kTile + t] += a3 * x;
    }
  }
  CUDASIM_THREADS(t) {
    for (uint32_t r = 0; r < kRows; r++) out[(row + r) * columns + column + t] = sum[r * kTile + t];
  }
}

CUDASIM_KERNEL(add_bias, float* CUDASIM_RESTRICT x, const float* CUDASIM_RESTRICT bias, uint64_t count,
               uint32_t columns, uint32_t squash) {
  CUDASIM_FOR(i, count) {
    const float value = x[i] + bias[i % columns];
    x[i] = squash != 0 ? tanhf(value) : value;
  }
}

// Computes loss[row] and the gradient of the mean loss, in place of the scores, with one block per row.
// Columns past `classes` are padding.
CUDASIM_KERNEL(softmax_loss, float* CUDASIM_RESTRICT scores, const uint8_t* CUDASIM_RESTRICT text,
               const uint64_t* CUDASIM_RESTRICT positions, uint32_t length, uint32_t classes,
               uint32_t columns, uint32_t batch, float* CUDASIM_RESTRICT loss) {
  CUDASIM_SHARED(float, total, 2);
  const uint32_t row = CUDASIM_BLOCK_INDEX();
  float* const line = scores + uint64_t(row) * columns;
  const uint32_t target = text[positions[row] + length];
  CUDASIM_THREAD_ZERO() {
    float largest = line[0];
    for (uint32_t c = 1; c < classes; c++) largest = line[c] > largest ? line[c] : largest;
    float sum = 0;
    for (uint32_t c = 0; c < classes; c++) sum += expf(line[c] - largest);
    total[0] = largest;
    total[1] = sum;
    loss[row] = logf(sum) - (line[target] - largest);
  }
  CUDASIM_BARRIER();
  CUDASIM_THREADS(t) {
    for (uint32_t c = t; c < columns; c += CUDASIM_BLOCK_THREADS()) {
      const float share = c < classes ? expf(line[c] - total[0]) / total[1] : 0.0f;
      line[c] = (share - (c == target ? 1.0f : 0.0f)) / static_cast<float>(batch);
    }
  }
}

CUDASIM_KERNEL(column_sums, const float* CUDASIM_RESTRICT x, uint32_t rows, uint32_t columns,
               float* CUDASIM_RESTRICT out) {
  CUDASIM_FOR(c, columns) {
    float sum = 0;
    for (uint32_t r = 0; r < rows; r++) sum += x[uint64_t(r) * columns + c];
    out[c] = sum;
  }
}

CUDASIM_KERNEL(transpose, const float* CUDASIM_RESTRICT in, uint32_t rows, uint32_t columns,
               float* CUDASIM_RESTRICT out) {
  CUDASIM_FOR(i, uint64_t(rows) * columns) {
    out[i] = in[(i % rows) * columns + i / rows];
  }
}

// Computes gradient *= 1 - hidden^2.
CUDASIM_KERNEL(tanh_gradient, float* CUDASIM_RESTRICT gradient, const float* CUDASIM_RESTRICT hidden,
               uint64_t count) {
  CUDASIM_FOR(i, count) {
    gradient[i] *= 1.0f - hidden[i] * hidden[i];
  }
}

// Adds, with one block per token, the gradients of all places where the token occurred, in their order. A
// block has one thread for each of the `width` columns.
CUDASIM_KERNEL(embedding_gradient, const uint8_t* CUDASIM_RESTRICT context,
               const float* CUDASIM_RESTRICT input_gradient, uint32_t places, uint32_t width,
               float* CUDASIM_RESTRICT out) {
  CUDASIM_SHARED(float, sum, 64);
  CUDASIM_THREADS(t) {
    sum[t] = 0;
  }
  for (uint32_t i = 0; i < places; i++) {
    if (context[i] == CUDASIM_BLOCK_INDEX()) {
      const float* const line = input_gradient + uint64_t(i) * width;
      CUDASIM_THREADS(t) {
        sum[t] += line[t];
      }
    }
  }
  CUDASIM_THREADS(t) {
    out[uint64_t(CUDASIM_BLOCK_INDEX()) * width + t] = sum[t];
  }
}

// Updates the weights. `rate` and `epsilon` already include the corrections of the step.
CUDASIM_KERNEL(adam, float* CUDASIM_RESTRICT weights, const float* CUDASIM_RESTRICT gradients,
               float* CUDASIM_RESTRICT first, float* CUDASIM_RESTRICT second, uint64_t count, float rate,
               float epsilon) {
  CUDASIM_FOR(i, count) {
    const float g = gradients[i];
    first[i] = 0.9f * first[i] + 0.1f * g;
    second[i] = 0.999f * second[i] + 0.001f * g * g;
    weights[i] -= rate * first[i] / (sqrtf(second[i]) + epsilon);
  }
}
