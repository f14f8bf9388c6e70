// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/http_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace ckpt::cli {
namespace {

using namespace std::chrono_literals;

TEST(HttpClient, APendingTickIsNotCalledAfterTheTickerEnded) {
  HttpClient client;
  int ticks = 0;
  // The tick takes longer than the pause, so that the next tick is due when the pause ends.
  client.set_ticker(0ms, [&ticks] {
    ticks++;
    std::this_thread::sleep_for(20ms);
  });
  client.pause(10ms);
  client.set_ticker({}, {});
  const int before = ticks;
  EXPECT_GT(before, 0);
  client.pause(1ms);
  EXPECT_EQ(ticks, before);
}

TEST(HttpClient, ATickOfAnEndedTickerDoesNotReachTheNextTicker) {
  HttpClient client;
  // The tick takes longer than the pause, so that the next tick is due when the pause ends.
  client.set_ticker(0ms, [] { std::this_thread::sleep_for(20ms); });
  client.pause(10ms);
  int ticks = 0;
  client.set_ticker(1h, [&ticks] { ticks++; });
  client.pause(1ms);
  EXPECT_EQ(ticks, 0);
}

}  // namespace
}  // namespace ckpt::cli
