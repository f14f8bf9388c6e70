// SPDX-License-Identifier: Apache-2.0
#include "libckpt/record/document.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace ckpt::record {
namespace {

enum class Colour : std::uint8_t { kRed = 1, kBlue = 2, kUnnamed = 3 };
constexpr auto names_of(Of<Colour>) {
  return names<Colour>({{Colour::kRed, "red"}, {Colour::kBlue, "blue"}});
}

struct Numbers {
  std::array<std::int64_t, 3> all{};
};
constexpr auto fields_of(Of<Numbers>) {
  return fields(bare(&Numbers::all));
}

struct Part {
  std::string name;
  std::uint8_t size = 0;
};
constexpr auto fields_of(Of<Part>) {
  return fields(field("name", &Part::name), field("size", &Part::size));
}

// A struct with a constructor; only the compiler can count its members.
struct Place {
  Place() = default;
  explicit Place(std::string node_name) : node(std::move(node_name)) {}
  std::string node;
  std::optional<std::uint32_t> gpu;
};
constexpr auto fields_of(Of<Place>) {
  return fields(field("node", &Place::node), later("gpu", &Place::gpu));
}

struct Whole {
  std::uint64_t id = 0;
  bool flag = false;
  double ratio = 0;
  std::int32_t signed_number = -1;
  Colour colour = Colour::kRed;
  std::vector<Part> parts;
  std::set<std::string> words;
  std::optional<Part> maybe;
  Place place;
  Numbers numbers;
  std::string added = "default";
};
constexpr auto fields_of(Of<Whole>) {
  return fields(not_kept(&Whole::id), field("flag", &Whole::flag), field("ratio", &Whole::ratio),
                field("signed_number", &Whole::signed_number), field("colour", &Whole::colour),
                field("parts", &Whole::parts), field("words", &Whole::words), later("maybe", &Whole::maybe),
                inlined(&Whole::place), field("numbers", &Whole::numbers), later("added", &Whole::added));
}

Whole some() {
  Whole whole;
  whole.id = 7;
  whole.flag = true;
  whole.ratio = 1.5;
  whole.signed_number = -3;
  whole.colour = Colour::kBlue;
  whole.parts = {{"a", 1}, {"b", 255}};
  whole.words = {"x", "y"};
  whole.maybe = Part{"c", 3};
  whole.place.node = "node-a";
  whole.place.gpu = 4;
  whole.numbers.all = {1, -2, 3};
  whole.added = "given";
  return whole;
}

std::string why_not(const json& document) {
  try {
    (void)from_document<Whole>(document);
  } catch (const DocumentError& e) {
    return e.what();
  }
  return "read";
}

TEST(Document, DocumentContainsFieldsAndEnumsByName) {
  const json expected = {{"flag", true},
                         {"ratio", 1.5},
                         {"signed_number", -3},
                         {"colour", "blue"},
                         {"parts", {{{"name", "a"}, {"size", 1}}, {{"name", "b"}, {"size", 255}}}},
                         {"words", {"x", "y"}},
                         {"maybe", {{"name", "c"}, {"size", 3}}},
                         {"node", "node-a"},
                         {"gpu", 4},
                         {"numbers", {1, -2, 3}},
                         {"added", "given"}};
  EXPECT_EQ(to_document(some()), expected);
}

TEST(Document, DocumentIsReadAsWritten) {
  const auto again = from_text<Whole>(to_text(some()));
  EXPECT_EQ(to_document(again), to_document(some()));
  EXPECT_EQ(again.id, 0U) << "a field that is not kept was read";
}

TEST(Document, OptionalMembersWithoutValuesAreOmitted) {
  Whole whole = some();
  whole.maybe.reset();
  whole.place.gpu.reset();
  const json document = to_document(whole);
  EXPECT_FALSE(document.contains("maybe"));
  EXPECT_FALSE(document.contains("gpu"));
  EXPECT_FALSE(from_document<Whole>(document).maybe);
}

TEST(Document, MissingLaterFieldsHaveTheirDefaults) {
  json document = to_document(some());
  document.erase("added");
  EXPECT_EQ(from_document<Whole>(document).added, "default");
}

TEST(Document, MissingFieldErrorNamesItsPath) {
  json document = to_document(some());
  document["parts"][1].erase("size");
  EXPECT_EQ(why_not(document), "parts[1].size is missing");
  document = to_document(some());
  document.erase("node");
  EXPECT_EQ(why_not(document), "node is missing");
}

TEST(Document, FieldOfAWrongTypeIsRefused) {
  const std::vector<std::pair<const char*, json>> wrong = {
      {"flag", 1},    {"ratio", "1"},    {"signed_number", 1.5}, {"colour", true},     {"parts", json({})},
      {"words", "x"}, {"node", nullptr}, {"numbers", 5},         {"maybe", "nothing"}, {"added", {1, 2, 3}}};
  for (const auto& [name, value] : wrong) {
    json document = to_document(some());
    document[name] = value;
    EXPECT_NE(why_not(document), "read") << name;
    EXPECT_TRUE(why_not(document).starts_with(name)) << why_not(document);
  }
  EXPECT_NE(why_not(json::array()), "read");
}

TEST(Document, NumberOutOfRangeIsRefused) {
  for (const json& size : {json(256), json(-1), json(1e300)}) {
    json document = to_document(some());
    document["parts"][0]["size"] = size;
    EXPECT_TRUE(why_not(document).starts_with("parts[0].size is ")) << why_not(document);
  }
  json document = to_document(some());
  document["signed_number"] = std::uint64_t{1} << 63;
  EXPECT_NE(why_not(document), "read");
}

TEST(Document, EnumIsReadByNameOrNumberAndOtherwiseRefused) {
  json document = to_document(some());
  document["colour"] = "red";
  EXPECT_EQ(from_document<Whole>(document).colour, Colour::kRed);
  document["colour"] = 2;
  EXPECT_EQ(from_document<Whole>(document).colour, Colour::kBlue);
  for (const json& other : {json("green"), json(0), json(3), json(258), json(-1)}) {
    document["colour"] = other;
    EXPECT_TRUE(why_not(document).starts_with("colour is ")) << other;
  }
}

TEST(Document, ShorterListFillsAnArrayAndALongerListIsRefused) {
  json document = to_document(some());
  document["numbers"] = {9};
  EXPECT_EQ(from_document<Whole>(document).numbers.all, (std::array<std::int64_t, 3>{9, 0, 0}));
  document["numbers"] = {1, 2, 3, 4};
  EXPECT_NE(why_not(document), "read");
}

TEST(Document, UnknownFieldsAreIgnored) {
  json document = to_document(some());
  document["of a newer build"] = {{"x", 1}};
  EXPECT_EQ(why_not(document), "read");
}

TEST(Document, InvalidUtf8IsReplacedInADocument) {
  Whole whole = some();
  whole.added = "why \xff not";
  EXPECT_EQ(from_text<Whole>(to_text(whole)).added, "why \xef\xbf\xbd not");
}

TEST(Document, TextThatIsNotAnObjectIsAnErrorThatNamesTheDocument) {
  for (const char* text : {"", "[1]", "{\"flag\":", "null"}) {
    const auto read = parse_document<Whole>(text, "The list of x");
    ASSERT_FALSE(read.has_value()) << text;
    EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt);
    EXPECT_NE(read.error().message().find("The list of x cannot be read: "), std::string::npos);
  }
}

TEST(Answer, AnswerContainsFieldsInOrderAndNullForMissingValues) {
  Whole whole = some();
  whole.maybe.reset();
  const ordered_json answer = to_answer(whole);
  std::vector<std::string> names;
  for (const auto& [name, value] : answer.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"flag", "ratio", "signed_number", "colour", "parts", "words",
                                             "maybe", "node", "gpu", "numbers", "added"}));
  EXPECT_TRUE(answer["maybe"].is_null());
  EXPECT_EQ(to_document(from_answer<Whole>(answer)), to_document(whole));
}

struct Owner {
  int a = 0;
  std::optional<Part> part;
};
constexpr auto fields_of(Of<Owner>) {
  return fields(field("a", &Owner::a), inlined(&Owner::part));
}

TEST(Answer, OptionalInlinedRecordIsWrittenCompletelyOrOmitted) {
  EXPECT_EQ(to_answer(Owner{.a = 1}), ordered_json({{"a", 1}}));
  const ordered_json whole = to_answer(Owner{.a = 1, .part = Part{"x", 2}});
  EXPECT_EQ(whole, ordered_json({{"a", 1}, {"name", "x"}, {"size", 2}}));
  ASSERT_TRUE(from_answer<Owner>(whole).part);
  EXPECT_EQ(from_answer<Owner>(whole).part->size, 2);
  EXPECT_FALSE(from_answer<Owner>(ordered_json({{"a", 1}, {"size", 2}})).part);
}

TEST(Answer, MissingOrInvalidFieldsKeepTheirDefaults) {
  ordered_json answer = to_answer(some());
  answer.erase("node");
  answer["flag"] = "yes";
  answer["signed_number"] = 1.5;
  answer["colour"] = "green";
  answer["parts"] = {{{"name", "a"}}, 7};
  answer["added"] = nullptr;
  answer["gpu"] = -1;
  const auto read = from_answer<Whole>(answer);
  EXPECT_EQ(read.place.node, "");
  EXPECT_FALSE(read.flag);
  EXPECT_EQ(read.signed_number, -1);
  EXPECT_EQ(read.colour, Colour::kRed);
  EXPECT_TRUE(read.parts.empty());
  EXPECT_EQ(read.added, "default");
  EXPECT_FALSE(read.place.gpu);
  EXPECT_EQ(read.ratio, 1.5);
  for (const ordered_json& other : {ordered_json(), ordered_json(3), ordered_json::array()})
    EXPECT_EQ(to_document(from_answer<Whole>(other)), to_document(Whole()));
}

TEST(Answer, ListContainsItsObjects) {
  const ordered_json list = {{{"name", "a"}, {"size", 1}}, 5, {{"name", "b"}}};
  const auto parts = list_from_answer<Part>(list);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].name, "b");
  EXPECT_TRUE(list_from_answer<Part>(ordered_json("text")).empty());
}

TEST(Names, EnumNamesAndValuesAreConvertedBothWays) {
  static_assert(name_of(Colour::kBlue) == "blue");
  static_assert(value_named<Colour>("red") == Colour::kRed);
  static_assert(!value_named<Colour>("Red"));
  static_assert(name_of(Colour::kUnnamed) == "unknown");
  static_assert(!has_name(Colour::kUnnamed));
}

}  // namespace
}  // namespace ckpt::record
