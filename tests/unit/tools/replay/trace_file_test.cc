// SPDX-License-Identifier: Apache-2.0
// The text of a trace: what is in it, and what is refused.
#include "tools/replay/trace_file.h"

#include <gtest/gtest.h>

namespace ckpt::replay {
namespace {

const std::string kHead = "# gpumigrate-trace 1 driver 13000\n";

std::string refusal(const std::string& text) {
  const auto trace = parse_trace(text);
  return trace ? "" : trace.error().message();
}

TEST(TraceFile, CallHasThreadTimesResultAndArguments) {
  const auto trace =
      parse_trace(kHead + "7 1000 5 cuMemAlloc_v2 2 d7f00=0100000000000000<00ff000000000000 n400\n");
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_EQ(trace->driver_version, 13000);
  ASSERT_EQ(trace->calls.size(), 1U);
  const TracedCall& call = trace->calls.front();
  EXPECT_EQ(call.line, 2U);
  EXPECT_EQ(call.thread, 7U);
  EXPECT_EQ(call.took_us, 5);
  EXPECT_EQ(call.name, "cuMemAlloc_v2");
  EXPECT_EQ(call.result, 2);
  ASSERT_EQ(call.values.size(), 2U);
  EXPECT_EQ(call.values[0].kind, 'd');
  EXPECT_EQ(call.values[0].value, 0x7f00U);
  EXPECT_EQ(call.values[0].data.size(), 8U);
  EXPECT_EQ(call.values[0].before[1], 0xff);
  EXPECT_EQ(call.values[1].value, 0x400U);
}

TEST(TraceFile, CallWithoutArguments) {
  const auto trace = parse_trace(kHead + "7 1 5 cuCtxSynchronize 0\n");
  ASSERT_TRUE(trace);
  EXPECT_TRUE(trace->calls.front().values.empty());
}

TEST(TraceFile, LastLineWithoutAnEndIsLeftOut) {
  const auto trace = parse_trace(kHead + "7 1 5 cuCtxSynchronize 0\n7 1 5 cuMemFr");
  ASSERT_TRUE(trace);
  EXPECT_TRUE(trace->is_cut);
  EXPECT_EQ(trace->calls.size(), 1U);
}

TEST(TraceFile, OtherFilesAreRefusedByLine) {
  EXPECT_NE(refusal("").find("empty"), std::string::npos);
  EXPECT_NE(refusal("hello\n").find("Line 1"), std::string::npos);
  for (const char* line : {"x 1 5 cuInit 0 n0", "7 1 5 system 0 n0", "7 1 5 cuInit ? n0", "7 1 5 cuInit 0 q0",
                           "7 1 5 cuInit 0 nxyz", "7 1 5 cuInit 0 d1=123", "7 1 5 cuInit 0 d1=zz", "7 1 5"}) {
    EXPECT_NE(refusal(kHead + line + "\n").find("Line 2"), std::string::npos) << line;
  }
  std::string many = "7 1 5 cuInit 0";
  for (std::size_t i = 0; i <= kMaxValues; i++) many += " n0";
  EXPECT_NE(refusal(kHead + many + "\n").find("too many"), std::string::npos);
  EXPECT_NE(refusal(kHead + "7 1 5 cuInit 0 s1=" + std::string(kMaxLine, '0') + "\n").find("too long"),
            std::string::npos);
}

}  // namespace
}  // namespace ckpt::replay
