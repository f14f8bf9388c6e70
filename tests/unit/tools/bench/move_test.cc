// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tools/bench/jobs/cluster.h"

namespace ckpt::bench {
namespace {

Json report() {
  return Json::parse(
      R"({"id": "m7", "job": "j3", "result": "done", "from": "node-a:0", "to": "node-b:0", "strategy": "live",
    "rounds": 3, "state_bytes": 1000, "sent_bytes": 1200, "wire_bytes": 1300, "dirty_bytes": 200, "context_bytes": 0,
    "verified": true, "downtime_ms": 12.5, "total_ms": 900, "bound_ms": 11.0, "bound_by": "scan",
    "link_bytes_per_second": 1e9, "scan_bytes_per_second": 5e9,
    "downtime_breakdown_ms": {"quiesce": 0.5, "final": 10, "verify": 1, "commit": 0.75, "context": 0, "host": 0,
    "restore": 0.05, "resume": 0.2}, "scan_ms": 9.5, "copy_ms": 8, "estimate_ms": null, "incarnation": 2})");
}

TEST(MoveReport, FiguresAreParsed) {
  const auto move = parse_move(report());
  ASSERT_TRUE(move);
  EXPECT_EQ(move->id, "m7");
  EXPECT_EQ(move->bound_by, "scan");
  EXPECT_DOUBLE_EQ(move->downtime_ms, 12.5);
  EXPECT_DOUBLE_EQ(move->final_ms, 10);
  EXPECT_DOUBLE_EQ(move->scan_rate, 5e9);
}

TEST(MoveReport, MissingOrNonNumericFieldsAreReportedByName) {
  for (const char* field : {"downtime_ms", "state_bytes", "scan_bytes_per_second"}) {
    for (const Json& value : {Json(), Json("12"), Json(-1)}) {
      Json broken = report();
      broken[field] = value;
      const auto move = parse_move(broken);
      ASSERT_FALSE(move) << field;
      EXPECT_NE(move.error().message().find(field), std::string::npos);
    }
  }
  Json broken = report();
  broken["downtime_breakdown_ms"].erase("commit");
  EXPECT_FALSE(parse_move(broken));
  broken.erase("downtime_breakdown_ms");
  EXPECT_FALSE(parse_move(broken));
  EXPECT_FALSE(parse_move(Json::array()));
  EXPECT_FALSE(parse_move(Json()));
}

TEST(MoveReport, AFailedMoveHasNoFigures) {
  Json failed = report();
  failed["result"] = "failed";
  failed["downtime_ms"] = nullptr;
  const auto move = parse_move(failed);
  ASSERT_TRUE(move);
  EXPECT_EQ(move->result, "failed");
  EXPECT_EQ(move->downtime_ms, 0);
}

}  // namespace
}  // namespace ckpt::bench
