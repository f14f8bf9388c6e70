// SPDX-License-Identifier: Apache-2.0
// The vector intrinsics without the warnings of GCC 12, which takes their own undefined registers for
// mistakes (GCC bug 105593).
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
