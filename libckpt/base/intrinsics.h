// SPDX-License-Identifier: Apache-2.0
// The vector intrinsics without the warnings of GCC 12, which reports their intentionally undefined registers
// as errors (GCC bug 105593).
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
