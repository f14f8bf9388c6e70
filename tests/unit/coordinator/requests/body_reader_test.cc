// SPDX-License-Identifier: Apache-2.0
#include "coordinator/requests/body_reader.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

BodyReader reader(const std::string& text) {
  return BodyReader::parse(text).value();
}

TEST(BodyReader, FieldsAreRead) {
  BodyReader body =
      reader(R"({"name":"x","n":3,"f":1.5,"b":true,"list":["a","b"],"env":{"K":"V"},"mode":"two"})");
  EXPECT_EQ(body.text("name"), "x");
  EXPECT_EQ(body.integer("n", 0, 10), 3);
  EXPECT_EQ(body.number("f", 0, 2), 1.5);
  EXPECT_EQ(body.boolean("b"), true);
  EXPECT_EQ(body.texts("list"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(body.environment("env"), std::vector<std::string>{"K=V"});
  EXPECT_EQ(body.choice("mode", {"one", "two"}), 1U);
  EXPECT_FALSE(body.text("absent"));
  EXPECT_TRUE(body.finish());
}

TEST(BodyReader, RefusesUnknownFields) {
  BodyReader body = reader(R"({"nmae":"x"})");
  EXPECT_FALSE(body.text("name"));
  const auto finished = body.finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().message(), "Field nmae is not known");
}

TEST(BodyReader, RefusesWrongTypesAndRanges) {
  const auto fails = [](const std::string& text, auto read) {
    BodyReader body = reader(text);
    EXPECT_FALSE(read(body)) << text;
    EXPECT_FALSE(body.finish()) << text;
  };
  fails(R"({"a":1})", [](BodyReader& b) { return b.text("a"); });
  fails(R"({"a":"x\u0000y"})", [](BodyReader& b) { return b.text("a"); });
  fails(R"({"a":"1"})", [](BodyReader& b) { return b.integer("a", 0, 9); });
  fails(R"({"a":10})", [](BodyReader& b) { return b.integer("a", 0, 9); });
  fails(R"({"a":-1})", [](BodyReader& b) { return b.integer("a", 0, 9); });
  fails(R"({"a":18446744073709551615})", [](BodyReader& b) { return b.integer("a", 0, 9); });
  fails(R"({"a":1.5})", [](BodyReader& b) { return b.integer("a", 0, 9); });
  fails(R"({"a":1e300})", [](BodyReader& b) { return b.number("a", 0, 9); });
  fails(R"({"a":"yes"})", [](BodyReader& b) { return b.boolean("a"); });
  fails(R"({"a":["x",1]})", [](BodyReader& b) { return b.texts("a"); });
  fails(R"({"a":{"K=":"v"}})", [](BodyReader& b) { return b.environment("a"); });
  fails(R"({"a":"three"})", [](BodyReader& b) { return b.choice("a", {"one", "two"}); });
}

TEST(BodyReader, TextWithoutAnObjectIsRefused) {
  for (const char* text : {"[]", "1", "{", "nonsense", "\"x\"", "{\"a\":1}x"})
    EXPECT_FALSE(BodyReader::parse(text)) << text;
  EXPECT_FALSE(BodyReader::parse("{\"a\":" + std::string(10000, '[') + std::string(10000, ']') + "}"));
  EXPECT_TRUE(BodyReader::parse(""));
}

}  // namespace
}  // namespace ckpt::coordinator
