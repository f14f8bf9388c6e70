// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/operation/datatype.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstring>
#include <type_traits>

namespace ncclsim {
namespace {

struct TypeRow {
  ncclDataType_t type;
  std::size_t size;
  const char* name;
};
constexpr TypeRow kTypes[] = {
    {ncclInt8, 1, "int8"},         {ncclUint8, 1, "uint8"},           {ncclInt32, 4, "int32"},
    {ncclUint32, 4, "uint32"},     {ncclInt64, 8, "int64"},           {ncclUint64, 8, "uint64"},
    {ncclFloat16, 2, "float16"},   {ncclFloat32, 4, "float32"},       {ncclFloat64, 8, "float64"},
    {ncclBfloat16, 2, "bfloat16"}, {ncclFloat8e4m3, 1, "float8e4m3"}, {ncclFloat8e5m2, 1, "float8e5m2"},
};
static_assert(sizeof kTypes / sizeof kTypes[0] == ncclNumTypes);

const TypeRow* row_of(ncclDataType_t type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

// Widens small floats to float; results are rounded.
template <typename T>
auto widen(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return static_cast<float>(value);
  }
}

template <typename T, typename W>
T narrow(W value) {
  return static_cast<T>(value);
}

// Adds two values. Integers wrap; in C++ only unsigned integers wrap, so the sum is computed unsigned.
template <typename T>
T sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return narrow<T>(widen(a) + widen(b));
  }
}

template <typename T>
T product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return narrow<T>(widen(a) * widen(b));
  }
}

template <typename T>
T larger(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a > b ? a : b;
  } else {
    return narrow<T>(std::fmax(widen(a), widen(b)));
  }
}

template <typename T>
T smaller(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a < b ? a : b;
  } else {
    return narrow<T>(std::fmin(widen(a), widen(b)));
  }
}

// Applies a function to each element. The alignment of staging memory exceeds the alignment of any type.
template <typename T, typename F>
void for_each(void* into, const void* with, std::size_t count, F apply) {
  auto* to = static_cast<T*>(into);
  const auto* from = static_cast<const T*>(with);
  for (std::size_t i = 0; i < count; i++) to[i] = apply(to[i], from[i]);
}

template <typename F>
void with_type(ncclDataType_t type, F&& call) {
  switch (type) {
    case ncclInt8:
      return call(std::int8_t{});
    case ncclUint8:
      return call(std::uint8_t{});
    case ncclInt32:
      return call(std::int32_t{});
    case ncclUint32:
      return call(std::uint32_t{});
    case ncclInt64:
      return call(std::int64_t{});
    case ncclUint64:
      return call(std::uint64_t{});
    case ncclFloat16:
      return call(__half{});
    case ncclFloat32:
      return call(float{});
    case ncclFloat64:
      return call(double{});
    case ncclBfloat16:
      return call(__nv_bfloat16{});
    case ncclFloat8e4m3:
      return call(__nv_fp8_e4m3{});
    case ncclFloat8e5m2:
      return call(__nv_fp8_e5m2{});
    case ncclNumTypes:
      return;
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  const TypeRow* row = row_of(type);
  return row != nullptr ? row->size : 0;
}

const char* name_of(ncclDataType_t type) {
  const TypeRow* row = row_of(type);
  return row != nullptr ? row->name : "no type";
}

bool is_integer(ncclDataType_t type) {
  bool integer = false;
  with_type(type, [&integer](auto zero) { integer = std::is_integral_v<decltype(zero)>; });
  return integer;
}

Scalar one_of(ncclDataType_t type, int ranks) {
  Scalar scalar;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_integral_v<T>) {
      const T value =
          std::is_same_v<T, double> ? narrow<T>(1.0 / ranks) : narrow<T>(static_cast<float>(1.0 / ranks));
      std::memcpy(scalar.bytes, &value, sizeof value);
    }
  });
  return scalar;
}

void combine(Combine how, ncclDataType_t type, void* into, const void* with, std::size_t count) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if (how == Combine::kSum) for_each<T>(into, with, count, sum<T>);
    if (how == Combine::kProduct) for_each<T>(into, with, count, product<T>);
    if (how == Combine::kMax) for_each<T>(into, with, count, larger<T>);
    if (how == Combine::kMin) for_each<T>(into, with, count, smaller<T>);
  });
}

void scale(ncclDataType_t type, void* into, const Scalar& scalar, std::size_t count) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    T factor;
    std::memcpy(&factor, scalar.bytes, sizeof factor);
    for_each<T>(into, into, count, [factor](T value, T) { return product<T>(value, factor); });
  });
}

void divide(ncclDataType_t type, void* into, int ranks, std::size_t count) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>) {
      for_each<T>(into, into, count, [ranks](T value, T) {
        if constexpr (std::is_signed_v<T>) return static_cast<T>(static_cast<std::int64_t>(value) / ranks);
        return static_cast<T>(static_cast<std::uint64_t>(value) / static_cast<std::uint64_t>(ranks));
      });
    }
  });
}

}  // namespace ncclsim
