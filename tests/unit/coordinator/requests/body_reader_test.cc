// SPDX-License-Identifier: Apache-2.0
#include "coordinator/requests/body_reader.h"

#include <gtest/gtest.h>

#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::coordinator {
namespace {

BodyReader reader(const std::string& text) {
  return BodyReader::parse(text).value();
}

TEST(BodyReader, FieldsAreParsed) {
  BodyReader body = reader(
      R"({"name":"x","gpu":3,"max_downtime_ms":1.5,"force":true,"nodes":["a","b"],"env":{"K":"V"},"strategy":"stop-copy"})");
  EXPECT_EQ(body.text("name"), "x");
  EXPECT_EQ(body.integer("gpu", 0, 10), 3);
  EXPECT_EQ(body.number("max_downtime_ms", 0, 2), 1.5);
  EXPECT_EQ(body.boolean("force"), true);
  EXPECT_EQ(body.texts("nodes"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(body.environment("env"), std::vector<std::string>{"K=V"});
  EXPECT_EQ(body.named<wire::MigrateStrategy>("strategy"), wire::MigrateStrategy::kStopCopy);
  EXPECT_FALSE(body.text("node"));
  EXPECT_TRUE(body.finish());
}

TEST(BodyReader, RefusesUnknownFields) {
  BodyReader body = reader(R"({"nmae":"x"})");
  EXPECT_FALSE(body.text("name"));
  const auto finished = body.finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().message(), "Field \"nmae\" is unknown");
}

TEST(BodyReader, ErrorForARenamedFieldHasItsCurrentName) {
  BodyReader migrate = reader(R"({"mode":"live"})");
  EXPECT_FALSE(migrate.text("strategy"));
  EXPECT_EQ(migrate.finish().error().message(), "Field \"mode\" is unknown: it is now \"strategy\"");
  BodyReader run = reader(R"({"way":"transparent"})");
  EXPECT_FALSE(run.text("mode"));
  EXPECT_EQ(run.finish().error().message(), "Field \"way\" is unknown: it is now \"mode\"");
}

TEST(BodyReader, RefusesWrongTypesAndRanges) {
  const auto fails = [](const std::string& text, auto read) {
    BodyReader body = reader(text);
    EXPECT_FALSE(read(body)) << text;
    EXPECT_FALSE(body.finish()) << text;
  };
  fails(R"({"at":1})", [](BodyReader& b) { return b.text("at"); });
  fails(R"({"at":"x\u0000y"})", [](BodyReader& b) { return b.text("at"); });
  fails(R"({"at":"1"})", [](BodyReader& b) { return b.integer("at", 0, 9); });
  fails(R"({"at":10})", [](BodyReader& b) { return b.integer("at", 0, 9); });
  fails(R"({"at":-1})", [](BodyReader& b) { return b.integer("at", 0, 9); });
  fails(R"({"at":18446744073709551615})", [](BodyReader& b) { return b.integer("at", 0, 9); });
  fails(R"({"at":1.5})", [](BodyReader& b) { return b.integer("at", 0, 9); });
  fails(R"({"at":1e300})", [](BodyReader& b) { return b.number("at", 0, 9); });
  fails(R"({"at":"yes"})", [](BodyReader& b) { return b.boolean("at"); });
  fails(R"({"at":["x",1]})", [](BodyReader& b) { return b.texts("at"); });
  fails(R"({"at":{"K=":"v"}})", [](BodyReader& b) { return b.environment("at"); });
  fails(R"({"at":"three"})", [](BodyReader& b) { return b.named<wire::MigrateStrategy>("at"); });
}

TEST(BodyReader, TextWithoutAnObjectIsRefused) {
  for (const char* text : {"[]", "1", "{", "nonsense", "\"x\"", "{\"a\":1}x"})
    EXPECT_FALSE(BodyReader::parse(text)) << text;
  EXPECT_FALSE(BodyReader::parse("{\"a\":" + std::string(10000, '[') + std::string(10000, ']') + "}"));
  EXPECT_TRUE(BodyReader::parse(""));
}

}  // namespace
}  // namespace ckpt::coordinator
