// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/metrics/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "libckpt/net/metrics/label_text.h"
#include "libckpt/net/metrics/process.h"

namespace ckpt::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RegistryTest, CountersAreSeparatedByLabels) {
  Registry registry;
  Counters moves = registry.counter("moves_total", "Moves.", {"mode", "result"});
  moves.add({"live", "done"});
  moves.add({"live", "done"}, 2);
  moves.add({"live", "failed"}, 0);
  const std::string page = registry.page();
  EXPECT_THAT(page, HasSubstr("# HELP moves_total Moves.\n# TYPE moves_total counter\n"));
  EXPECT_THAT(page, HasSubstr("moves_total{mode=\"live\",result=\"done\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("moves_total{mode=\"live\",result=\"failed\"} 0\n"));
}

TEST(RegistryTest, HistogramsHaveTheConfiguredBounds) {
  Registry registry;
  Histograms pauses = registry.histogram("pause_seconds", "Pauses.", {"mode"}, {0.01, 1});
  pauses.prepare({"live"});
  EXPECT_THAT(registry.page(), HasSubstr("pause_seconds_count{mode=\"live\"} 0\n"));
  pauses.add({"live"}, 0.5);
  const std::string page = registry.page();
  EXPECT_THAT(page, HasSubstr("pause_seconds_bucket{mode=\"live\",le=\"0.01\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("pause_seconds_bucket{mode=\"live\",le=\"1\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("pause_seconds_sum{mode=\"live\"} 0.5\n"));
}

TEST(RegistryTest, RowRemovedFromTheTableIsRemovedFromThePage) {
  Registry registry;
  std::map<std::string, double> table = {{"node-a", 1}, {"node-b", 0}};
  registry.gauge("ready", "Nodes.", {"node"}, [&](Series& out) {
    for (const auto& [node, value] : table) out.add({node}, value);
  });
  EXPECT_THAT(registry.page(), HasSubstr("ready{node=\"node-b\"} 0\n"));
  table.erase("node-b");
  EXPECT_THAT(registry.page(), HasSubstr("ready{node=\"node-a\"} 1\n"));
  EXPECT_THAT(registry.page(), Not(HasSubstr("node-b")));
  table.clear();
  EXPECT_EQ(registry.page(), "");  // no family without a series
}

TEST(RegistryTest, EverySeriesGetsTheCommonLabels) {
  Registry registry(std::map<std::string, std::string>{{"node", "node-a"}});
  registry.counter("counted_total", "Counted.").add();
  registry.histogram("measured", "Measured.", {}, {1}).add({}, 2);
  registry.observe(Kind::kCounter, "read_total", "Read.", {"gpu"}, [](Series& out) { out.add({"0"}, 4); });
  const std::string page = registry.page();
  EXPECT_THAT(page, HasSubstr("counted_total{node=\"node-a\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("measured_count{node=\"node-a\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE read_total counter\nread_total{gpu=\"0\",node=\"node-a\"} 4\n"));
}

// A single malformed byte would make Prometheus refuse the whole page.
TEST(RegistryTest, LabelsAreAlwaysValid) {
  EXPECT_EQ(label_text("NVIDIA H200"), "NVIDIA H200");
  EXPECT_EQ(label_text("a\xff"
                       "b"),
            "a?b");
  EXPECT_EQ(label_text("Z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x98\x80"),
            "Z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(label_text("\xc0\xaf"), "??");            // overlong encoding
  EXPECT_EQ(label_text("\xe0\x80\x80"), "???");       // overlong encoding
  EXPECT_EQ(label_text("\xed\xa0\x80"), "???");       // a UTF-16 surrogate
  EXPECT_EQ(label_text("\xf4\x90\x80\x80"), "????");  // a code point beyond Unicode
  EXPECT_EQ(label_text("\xe2\x82"), "??");            // a truncated sequence
  EXPECT_EQ(label_text("\xf0\x80\x80\x80"), "????");  // overlong encoding
  EXPECT_EQ(label_text(std::string(500, 'x')).size(), 128U);
  // A character is never split.
  EXPECT_EQ(label_text(std::string(127, 'x') + "\xc3\xbc"), std::string(127, 'x'));
  Registry registry;
  registry.gauge("named", "Named.", {"name"}, [](Series& out) { out.add({"a\"\\\n\xff"}, 1); });
  EXPECT_THAT(registry.page(), HasSubstr("named{name=\"a\\\"\\\\\\n?\"} 1\n"));
}

TEST(RegistryTest, ProcessMetricsAreDescribed) {
  Registry registry;
  add_process_metrics(registry, "agent");
  const std::string page = registry.page();
  for (const Descriptor& descriptor : registry.descriptors()) {
    EXPECT_FALSE(descriptor.help.empty()) << descriptor.name;
    EXPECT_THAT(page, HasSubstr("\n" + descriptor.name)) << descriptor.name;
  }
  EXPECT_THAT(page,
              HasSubstr("gpumigrate_build_info{component=\"agent\",version=\"" GPUMIGRATE_VERSION "\"} 1\n"));
  EXPECT_LT(page.find("gpumigrate_build_info"), page.find("process_cpu_seconds_total"));
  EXPECT_LT(page.find("process_cpu_seconds_total"), page.find("process_open_fds"));
}

double value_of(const Registry& registry, const std::string& name) {
  const std::string page = registry.page();
  const auto at = page.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << name;
  return at == std::string::npos ? 0 : std::stod(page.substr(at + name.size() + 2));
}

TEST(RegistryTest, ProcessMetricsUseBytesAndSeconds) {
  Registry registry;
  add_process_metrics(registry, "agent");
  // Memory that was touched counts, and memory that is only reserved does not. Both values are in bytes.
  constexpr double kMax = std::size_t{1} << 30;
  constexpr std::size_t kTouched = std::size_t{64} << 20;
  const double before = value_of(registry, "process_resident_memory_bytes");
  void* reserved = ::mmap(nullptr, 8 * static_cast<std::size_t>(kMax), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  std::memset(reserved, 1, kTouched);
  const double after = value_of(registry, "process_resident_memory_bytes");
  EXPECT_GT(after - before, kTouched / 2);
  EXPECT_LT(after - before, kMax);
  ::munmap(reserved, 8 * static_cast<std::size_t>(kMax));
  const double files = value_of(registry, "process_open_fds");
  const int more = ::dup(0);
  EXPECT_EQ(value_of(registry, "process_open_fds"), files + 1);
  ::close(more);
  EXPECT_EQ(files,
            static_cast<double>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {})) - 1);
  // If microseconds were reported as seconds, the value would exceed the duration of any test.
  EXPECT_GT(value_of(registry, "process_cpu_seconds_total"), 0);
  EXPECT_LT(value_of(registry, "process_cpu_seconds_total"), 600);
  const double start = value_of(registry, "process_start_time_seconds");
  EXPECT_GT(start, 1e9);  // the value is in seconds since 1970, not in milliseconds
  EXPECT_LT(start, 1e10);
}

}  // namespace
}  // namespace ckpt::metrics
