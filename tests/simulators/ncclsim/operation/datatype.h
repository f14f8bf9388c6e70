// SPDX-License-Identifier: Apache-2.0
// Sizes and names of NCCL's data types, and arithmetic on them.
//
// Each step rounds to the data type, so that a reduction in the order of ranks gives the same bytes every
// time. Integers wrap.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/simulators/ncclsim/base/result.h"

namespace ncclsim {

// Returns the size of a type; 0: the type does not exist.
std::size_t size_of(ncclDataType_t type);
const char* name_of(ncclDataType_t type);

// One element of any type, stored from the first byte on.
struct Scalar {
  alignas(8) unsigned char bytes[8] = {};
};
// Returns 1/ranks, rounded to the type, which must be a floating-point type.
Scalar one_of(ncclDataType_t type, int ranks);
bool is_integer(ncclDataType_t type);

enum class Combine : std::uint32_t { kSum, kProduct, kMax, kMin };

// Sets into[i] to into[i] combined with with[i].
void combine(Combine how, ncclDataType_t type, void* into, const void* with, std::size_t count);
// Computes into[i] *= scalar.
void scale(ncclDataType_t type, void* into, const Scalar& scalar, std::size_t count);
// Computes into[i] /= ranks for integers, rounded toward zero.
void divide(ncclDataType_t type, void* into, int ranks, std::size_t count);

}  // namespace ncclsim
