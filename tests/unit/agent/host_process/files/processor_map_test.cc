// SPDX-License-Identifier: Apache-2.0
// Tests of the processors that stand in for those that a target lacks.
#include "agent/host_process/processes/processor_map.h"

#include <gtest/gtest.h>

namespace ckpt::agent::host {
namespace {

std::string translated(const std::string& named, const std::string& here, const std::string& wanted) {
  const ProcessorMap map(parse_processors(named), parse_processors(here));
  return text_of_processors(map.translate(parse_processors(wanted)));
}

TEST(ProcessorMaps, ListsAreParsedAndWritten) {
  for (const char* list : {"", "0", "0-3", "0,2", "1-3,8,62-65", "8191"})
    EXPECT_EQ(text_of_processors(parse_processors(list)), list);
  EXPECT_EQ(text_of_processors(parse_processors("3-1,8")), "8");
  EXPECT_EQ(text_of_processors(parse_processors("0-99999999999")), "0-8191");
  EXPECT_EQ(count_processors(parse_processors("0-64")), 65u);
}

TEST(ProcessorMaps, ProcessorsThatTheTargetHasKeepTheirNumbers) {
  EXPECT_EQ(translated("0,3,6-7", "0-7", "3,6"), "3,6");
  EXPECT_EQ(translated("0,3,6-7", "0-3", "0,3"), "0,3");
}

TEST(ProcessorMaps, MissingProcessorsGetUnusedOnes) {
  EXPECT_EQ(translated("0,6-7", "0-2", "6"), "1");
  EXPECT_EQ(translated("0,6-7", "0-2", "7"), "2");
  EXPECT_EQ(translated("0,6-7", "0-2", "0,7"), "0,2");
}

TEST(ProcessorMaps, MissingProcessorsAreReplacedByAsManyAsTheTargetHas) {
  EXPECT_EQ(translated("0-1,6-7", "0-1", "0,6"), "0-1") << "0 stands in for 6, so another one is added";
  EXPECT_EQ(translated("0-63", "0-3", "0-63"), "0-3");
  EXPECT_EQ(translated("4-7", "0-1", "6"), "0") << "stand-ins are used in turn";
  EXPECT_EQ(translated("4-7", "0-1", "7"), "1");
}

TEST(ProcessorMaps, MissingProcessorsAndTheirStandInsAreNamed) {
  const ProcessorMap map(parse_processors("0,6-7"), parse_processors("0-3"));
  EXPECT_EQ(text_of_processors(map.missing()), "6-7");
  EXPECT_EQ(text_of_processors(map.stand_ins()), "1-2");
  EXPECT_TRUE(map.is_lacking(parse_processors("0,6")));
  EXPECT_FALSE(map.is_lacking(parse_processors("0")));
}

TEST(ProcessorMaps, UnknownSetsAreHarmless) {
  EXPECT_EQ(translated("0", "", "0"), "");
  EXPECT_EQ(translated("", "0-1", "8191"), "0") << "a processor that was not named";
  EXPECT_TRUE(ProcessorMap({}, {}).translate(Processors(kMaxProcessorWords)).size() <= kMaxProcessorWords);
}

TEST(ProcessorMaps, AllowedProcessorsAreFoundWithoutAChange) {
  const Processors before = processors_of(0);
  ASSERT_FALSE(before.empty());
  const Processors allowed = processors_allowed(0);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i] & ~allowed.at(i), 0u);
  EXPECT_EQ(processors_of(0), before);
}

}  // namespace
}  // namespace ckpt::agent::host
