// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/address.h"

#include <gtest/gtest.h>

namespace ckpt::control {
namespace {

TEST(Address, AddressesArePrintedAsParsed) {
  for (const char* text : {"127.0.0.1:4711", "10.1.2.3:0", "[::1]:80", "unix:/tmp/x.sock"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(to_text(address.value().endpoint), text);
  }
}

TEST(Address, UnixSocketsAreRecognized) {
  EXPECT_TRUE(parse_address("unix:/x").value().is_unix);
  EXPECT_FALSE(parse_address("localhost:1").value().is_unix);
  EXPECT_FALSE(parse_address("[::1]:1").value().is_unix);
}

TEST(Address, MalformedAddressesAreRefused) {
  for (const std::string& text :
       {std::string(), std::string("127.0.0.1"), std::string("127.0.0.1:"), std::string("127.0.0.1:65536"),
        std::string("127.0.0.1:1x"), std::string("example.org:80"), std::string("unix:"),
        "unix:/" + std::string(107, 'x')})
    EXPECT_FALSE(parse_address(text)) << text;
}

}  // namespace
}  // namespace ckpt::control
