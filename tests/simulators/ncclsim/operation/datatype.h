// SPDX-License-Identifier: Apache-2.0
// Sizes and names of NCCL's data types, and arithmetic with them.
//
// Each step rounds to the data type, so that a reduction in the order of ranks gives the same bytes every time.
// Integers wrap. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/simulators/ncclsim/base/result.h"

namespace ncclsim {

// 0: there is no such type.
std::size_t size_of(ncclDataType_t type);
const char* name_of(ncclDataType_t type);

// One element of any type, from the first byte on.
struct Scalar {
  alignas(8) unsigned char bytes[8] = {};
};
// 1/ranks, rounded to the type, which is of floating point.
Scalar one_of(ncclDataType_t type, int ranks);
bool is_integer(ncclDataType_t type);

enum class Combine : std::uint32_t { kSum, kProduct, kMax, kMin };

// into[i] = into[i] combined with with[i].
void combine(Combine how, ncclDataType_t type, void* into, const void* with, std::size_t count);
// into[i] *= scalar.
void scale(ncclDataType_t type, void* into, const Scalar& scalar, std::size_t count);
// into[i] /= ranks, towards zero, of integers.
void divide(ncclDataType_t type, void* into, int ranks, std::size_t count);

}  // namespace ncclsim
