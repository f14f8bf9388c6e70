// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/model.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

TEST(Ids, IdsAreParsedAsPrinted) {
  EXPECT_EQ(parse_job_id(job_text(12)), JobId{12});
  EXPECT_EQ(parse_migration_id(migration_text(7)), MigrationId{7});
}

TEST(Ids, MalformedIdsAreRefused) {
  for (const char* text : {"", "j", "j0", "j-1", "j1x", "12", "m1", "J1", "j99999999999999999999999"})
    EXPECT_FALSE(parse_job_id(text)) << text;
}

TEST(JobName, JobNameAllowsOnlyPlainNames) {
  EXPECT_TRUE(valid_job_name("train-1.b_c"));
  EXPECT_TRUE(valid_job_name("j12x"));
  EXPECT_TRUE(valid_job_name(std::string(63, 'a')));
  for (const std::string& name : {std::string(), std::string("j12"), std::string("-a"), std::string("a b"),
                                  std::string("a/b"), std::string("a\nb"), std::string(64, 'a')})
    EXPECT_FALSE(valid_job_name(name)) << name;
}

TEST(ExitCodes, ExitCodesMatchTheContract) {
  EXPECT_EQ(exit_code_of(MigrationResult::kDone), 0);
  EXPECT_EQ(exit_code_of(MigrationResult::kFailed), 1);
  EXPECT_EQ(exit_code_of(MigrationResult::kTimedOut), 2);
  EXPECT_EQ(exit_code_of(MigrationResult::kInterrupted), 2);
  EXPECT_EQ(exit_code_of(MigrationResult::kRestored), 3);
  EXPECT_EQ(exit_code_of(MigrationResult::kLost), 4);
  EXPECT_EQ(exit_code_of(MigrationResult::kRefused), 5);
  EXPECT_EQ(exit_code_of(MigrationResult::kNone), 6);
}

}  // namespace
}  // namespace ckpt::coordinator
