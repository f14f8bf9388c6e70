// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/ids.h"

#include <gtest/gtest.h>

#include <map>

namespace ckpt::wire {
namespace {

TEST(Ids, IdsAreParsedAsPrintedWithAndWithoutATag) {
  EXPECT_EQ(job_text(12), "j12");
  EXPECT_EQ(parse_id('j', "j12"), 12U);
  for (const IdTag tag : {IdTag{1}, IdTag{0x8d1ea}, kMaxIdTag}) {
    const std::uint64_t id = make_id(6, tag);
    EXPECT_EQ(id_number(id), 6U);
    EXPECT_EQ(id_tag(id), tag);
    EXPECT_EQ(parse_id('m', migration_text(id)), id) << migration_text(id);
  }
  EXPECT_EQ(job_text(make_id(6, kMaxIdTag)), "j6-zzzz");
  const std::uint64_t last = make_id(kMaxTaggedNumber, kMaxIdTag);
  EXPECT_EQ(parse_id('j', job_text(last)), last);
  EXPECT_GT(static_cast<std::int64_t>(last), 0);
}

TEST(Ids, MalformedIdsAreRefused) {
  for (const char* text : {"j", "j0", "j0-k3fa", "j6-", "j6-k3f", "j6-k3fab", "j6-0000", "j6-K3FA", "j6-k3fi",
                           "j6_k3fa", "j-k3fa", "j4294967296", "j2147483648-k3fa", "m6-k3fa"})
    EXPECT_FALSE(parse_id('j', text)) << text;
}

TEST(Ids, IdsAreOrderedByNumberForAnyTag) {
  EXPECT_LT(make_id(6, kMaxIdTag), make_id(7, 1));
  EXPECT_LT(make_id(4'000'000, 0), make_id(1, 1));
}

TEST(Ids, ShortFormOfAUniqueNumberIsAccepted) {
  const std::map<std::uint64_t, int> entries{
      {5, 0}, {make_id(5, 1), 0}, {make_id(6, 2), 0}, {make_id(7, 3), 0}, {make_id(7, 4), 0}};
  const auto meant = [&](const char* text) {
    const auto at = find_meant(entries, parse_id('j', text).value());
    return at == entries.end() ? "" : job_text(at->first);
  };
  EXPECT_EQ(meant("j6"), job_text(make_id(6, 2)));
  EXPECT_EQ(meant("j7"), "");    // two jobs match
  EXPECT_EQ(meant("j5"), "j5");  // the id itself matches
  EXPECT_EQ(meant("j4"), "");
  EXPECT_EQ(meant("j8"), "");
  EXPECT_EQ(meant("j4294967295"), "");
}

TEST(Ids, SnapshotNumberOfAnAgentIsParsedCompletely) {
  const std::uint64_t id = (std::uint64_t{1} << 63) + 0x1a2'8000'4711;
  EXPECT_EQ(parse_id('m', migration_text(id)), id);
  EXPECT_EQ(migration_text(id), "m" + std::to_string(id));
}

}  // namespace
}  // namespace ckpt::wire
