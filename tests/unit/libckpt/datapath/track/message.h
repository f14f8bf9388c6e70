// SPDX-License-Identifier: Apache-2.0
// The fixed key and messages of make_vectors.py.
#pragma once

#include <cstddef>
#include <vector>

#include "libckpt/datapath/track/fingerprint.h"

namespace ckpt::track {

inline FingerprintKey test_key() {
  FingerprintKey key;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  return key;
}

inline std::vector<std::byte> test_message(std::size_t length) {
  std::vector<std::byte> data(length);
  for (std::size_t i = 0; i < length; ++i) data[i] = static_cast<std::byte>(i * 131 + (i >> 8));
  return data;
}

struct Vector {
  unsigned purpose;
  std::size_t length;
  std::uint64_t lo, hi;
};

// Test vectors that make_vectors.py generates.
inline constexpr Vector kVectors[] = {
    {0, 0, 0x1819aef8b4024897, 0x1d5934210c10aabb},      {0, 1, 0x0bd50e723a467c40, 0x152e29befbd9b4de},
    {0, 15, 0x00d07a2a225060d7, 0x1fac9b5d33909e02},     {0, 16, 0x0008a7aca562d54b, 0x1b7672aef067f42e},
    {0, 4095, 0x1d62010b20902a53, 0x1ec279bf5f409565},   {0, 4096, 0x09936f81f76fdca6, 0x1bd9b1a9e67bd305},
    {0, 4097, 0x003d592188ce1d4b, 0x023e1d531b98c030},   {0, 65536, 0x0dafcbf5d34bc79b, 0x168e27c694fdd5e8},
    {0, 100003, 0x1b7a1436edd26ab2, 0x13615235bfe9114e}, {0, 1048576, 0x02dfee6a931280f3, 0x15114909cbaf4246},
    {1, 0, 0x0e0f025d30bd7d67, 0x054b3f26433798bf},      {1, 1, 0x09c5be4be97b1403, 0x1404ace6b388734d},
    {1, 15, 0x117f1be4bf9b636e, 0x1b5a1eeaadc8341e},     {1, 16, 0x1c0bd860be15def5, 0x089c4f99206dfe69},
    {1, 4095, 0x0842d3e680025119, 0x0ec6d9642c03ef09},   {1, 4096, 0x016b5b3aabdb742d, 0x0feb7f738ccb9e25},
    {1, 4097, 0x1ef0dd546c260176, 0x11585ee8fd8b111b},   {1, 65536, 0x15850218acf60617, 0x15a948b444d79a19},
    {1, 100003, 0x01a32fcb2f5af66a, 0x122f5e96ebfbdeba}, {1, 1048576, 0x178c8e29a71f70b1, 0x0680db1f19f98562},
};

}  // namespace ckpt::track
