// SPDX-License-Identifier: Apache-2.0
// Tests tables, views and progress at several widths. The tests compare the output with files in golden/, and
// check rules for any width. GPUMIGRATE_WRITE_GOLDEN=1 writes the files; read the changes before you commit
// them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/unit/tools/gpumigrate/screen_samples.h"
#include "tools/gpumigrate/client/cluster_views.h"
#include "tools/gpumigrate/client/list_views.h"
#include "tools/gpumigrate/client/progress.h"
#include "tools/gpumigrate/client/short_text.h"
#include "tools/gpumigrate/client/views.h"
#include "tools/gpumigrate/commands/drain_views.h"
#include "tools/gpumigrate/doctor.h"
#include "tools/gpumigrate/job_doctor.h"
#include "tools/gpumigrate/screens/drain_screen.h"
#include "tools/gpumigrate/screens/frame.h"
#include "tools/gpumigrate/screens/lists.h"
#include "tools/gpumigrate/screens/top_view.h"

namespace ckpt::cli {
namespace {

using View = std::function<std::string(const Layout&)>;

const std::map<std::string, View>& views() {
  const auto move = [](const std::string& job) { return std::string(job == "j12-k3fa" ? "moving 62%" : ""); };
  static const std::map<std::string, View> kViews = {
      {"jobs",
       [move](const Layout& l) {
         return view_jobs(record::list_from_answer<api::Job>(sample_jobs()), l, move);
       }},
      {"nodes",
       [](const Layout& l) { return view_nodes(record::list_from_answer<api::Node>(sample_nodes()), l); }},
      {"gpus",
       [](const Layout& l) { return view_gpus(record::list_from_answer<api::Gpu>(sample_gpus()), l); }},
      {"migrations", [](const Layout& l) { return view_migrations(sample_moves(), l); }},
      {"describe",
       [](const Layout& l) {
         return view_job(record::from_answer<api::JobDetail>(sample_job()), sample_moves(),
                         record::list_from_answer<api::Event>(sample_events()), false, l);
       }},
      {"events",
       [](const Layout& l) {
         std::string lines;
         for (const auto& event : record::list_from_answer<api::Event>(sample_events()))
           lines += view_event(event, l);
         return lines;
       }},
      {"outcome", [](const Layout& l) { return view_outcome(sample_moves()[1], l); }},
      {"drain",
       [](const Layout& l) { return view_drain(record::from_answer<api::Drain>(sample_drain()), false, l); }},
      {"drain-each",
       [](const Layout& l) { return view_drain(record::from_answer<api::Drain>(sample_drain()), true, l); }},
      {"drain-screen",
       [](const Layout& l) {
         return DrainScreen().view(record::from_answer<api::Drain>(sample_open_drain()), sample_moves(),
                                   l.width);
       }},
      {"images",
       [](const Layout& l) { return view_images(record::list_from_answer<api::Image>(sample_images()), l); }},
      {"health",
       [](const Layout& l) { return view_health(record::from_answer<api::Health>(sample_health()), l); }},
      {"rebalance",
       [](const Layout& l) {
         return view_rebalance(record::from_answer<api::Rebalance>(sample_rebalance()), l);
       }},
      {"recovery",
       [](const Layout& l) {
         return view_recovery(record::from_answer<api::Recovery>(sample_recovery()), l);
       }},
      {"doctor",
       [](const Layout& l) {
         return to_text(diagnose({{"node", {{"name", "host"}}}}), l);
       }},
      {"doctor-job",
       [](const Layout& l) {
         return view_obstacles(
             {.job = "j1-k3fa",
              .name = "train",
              .at = "node-a:0",
              .within_node = {.possible = true, .reason = std::nullopt},
              .between_nodes = {.movability = {.possible = false,
                                               .reason = "The job's process cannot be moved: /dev/shm/sem.x "
                                                         "does not travel; process 12 (python3) has the GPU "
                                                         "driver's /dev/nvidia0 open"},
                                .targets = {}}},
             l);
       }},
      {"plan", [](const Layout& l) { return view_plan(sample_plan<api::MovePlan>(true), false, l); }},
      {"plan-refused",
       [](const Layout& l) { return view_plan(sample_plan<api::MovePlan>(false), false, l); }},
      {"plan-each", [](const Layout& l) { return view_run_plan(sample_plan<api::RunPlan>(false), true, l); }},
      {"top",
       [](const Layout& l) {
         Progress progress;
         return view_top(sample_cluster(), progress, l);
       }},
  };
  return kViews;
}

Layout layout(std::size_t width) {
  return {.width = width, .now_ms = kSampleNow};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(GOLDEN_DIR) + "/" + name + ".txt";
  if (std::getenv("GPUMIGRATE_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Screens, ScreensMatchTheirGoldenFiles) {
  for (const auto& [name, view] : views()) {
    for (const std::size_t width : {60, 80, 200}) {
      const std::string text = view(layout(width));
      EXPECT_EQ(text, golden(std::to_string(width) + "/" + name, text));
    }
    const std::string whole = view(layout(kUnlimited));
    EXPECT_EQ(whole, golden("pipe/" + name, whole));
    Layout wide = layout(kUnlimited);
    wide.wide = true;
    EXPECT_EQ(view(wide), golden("wide/" + name, view(wide)));
  }
}

TEST(Screens, OutcomeHasTheRemarksOfTheReport) {
  api::Migration migration = sample_moves()[1];
  migration.report->remarks = {"1 thread was bound to processors that this node lacks (7)"};
  const std::string text = view_outcome(migration, layout(kUnlimited));
  EXPECT_NE(text.find("remark"), std::string::npos) << text;
  EXPECT_NE(text.find(migration.report->remarks.front()), std::string::npos) << text;
}

TEST(Screens, NoLineExceedsTheLayoutWidth) {
  for (const auto& [name, view] : views()) {
    for (std::size_t width = 30; width <= 220; width++) {
      for (const bool wide : {false, true}) {
        Layout l = layout(width);
        l.wide = wide;
        for (const std::string& line : lines_of(view(l)))
          ASSERT_LE(width_of(line), width) << name << " at " << width << ": " << line;
      }
    }
  }
}

TEST(Screens, ColorsChangeNoText) {
  for (const auto& [name, view] : views()) {
    Layout coloured = layout(80);
    coloured.colour = true;
    std::string text = view(coloured);
    for (std::size_t at; (at = text.find('\x1b')) != std::string::npos;)
      text.erase(at, text.find('m', at) - at + 1);
    EXPECT_EQ(text, view(layout(80))) << name;
    EXPECT_EQ(view(layout(80)).find('\x1b'), std::string::npos) << name;
  }
}

TEST(Tables, HighestRankColumnIsOmittedFirstAndNoCellIsWrapped) {
  Table table({{"NAME", {.min_width = 6}}, {"A", {.rank = 1}}, {"B", {.rank = 2}}});
  table.add({"a-long-name", "12345", "67890"});
  EXPECT_EQ(table.text({.width = 25}), "NAME         A      B\na-long-name  12345  67890\n");
  EXPECT_EQ(table.text({.width = 24}), "NAME        A      B\na-long-na…  12345  67890\n");
  EXPECT_EQ(table.text({.width = 20}), "NAME    A      B\na-lon…  12345  67890\n");
  EXPECT_EQ(table.text({.width = 19}), "NAME         A\na-long-name  12345\n");
  EXPECT_EQ(table.text({.width = 9}), "NAME\na-long-n…\n");
  EXPECT_EQ(table.text({.width = 4}), "NAME\na-l…\n");
}

TEST(Tables, WidthsMatchTheTerminal) {
  EXPECT_EQ(width_of("a\xc3\xa9"), 2U);      // é
  EXPECT_EQ(width_of("\xe5\xad\x97x"), 3U);  // a wide character
  EXPECT_EQ(width_of("e\xcc\x81"), 1U);      // a combining character
  EXPECT_EQ(width_of("\xff\xfe"), 2U);       // invalid UTF-8
  EXPECT_EQ(shortened("\xe5\xad\x97\xe5\xad\x97", 3), "\xe5\xad\x97…");
  EXPECT_EQ(wrapped("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrapped("onetwothree x", 4), (std::vector<std::string>{"onet", "woth", "ree", "x"}));
  EXPECT_EQ(wrapped("", 4), std::vector<std::string>{""});
}

TEST(ShortText, SizesDurationsAndAgesAreShort) {
  EXPECT_EQ(short_bytes(0), "0 B");
  EXPECT_EQ(short_bytes(1023), "1 KiB");
  EXPECT_EQ(short_bytes(4.0 * 1048576), "4 MiB");
  EXPECT_EQ(short_bytes(1.5 * 1073741824), "1.5 GiB");
  EXPECT_EQ(short_bytes(130.2 * 1048576), "130 MiB");
  EXPECT_EQ(short_rate_of(12.0 * 1048576, 40.0 * 1048576), "12/40 MiB/s");
  EXPECT_EQ(short_span(0.85), "0.8 ms");
  EXPECT_EQ(short_span(77.5), "77.5 ms");
  EXPECT_EQ(short_span(200), "200 ms");
  EXPECT_EQ(short_span(7300), "7.3 s");
  EXPECT_EQ(short_span(130'000), "2m10s");
  EXPECT_EQ(short_age(-5), "0s");
  EXPECT_EQ(short_age(59'999), "59s");
  EXPECT_EQ(short_age(45 * 60'000.0), "45m");
  EXPECT_EQ(short_age(200 * 60'000.0), "3h20m");
  EXPECT_EQ(short_age(52 * 3'600'000.0), "2d4h");
  EXPECT_EQ(unix_ms_of("2026-01-01T00:00:00.123Z"), 1'767'225'600'123);
  EXPECT_EQ(unix_ms_of("2026-13-01T00:00:00Z"), std::nullopt);
  EXPECT_EQ(unix_ms_of("noon"), std::nullopt);
}

api::Migration moving(int round, std::uint64_t remaining, const char* estimate = "null",
                      const char* dirty = "null") {
  return record::from_answer<api::Migration>(Json::parse(
      R"({"id":"m15-k3fa","job_name":"big","to":"node-c:1","strategy":"live","state":"precopy","open":true,
      "options":{"max_downtime_ms":200.0,"bandwidth":41943040},"progress":{"round":)" +
      std::to_string(round) + R"(,"state_bytes":100,"remaining_bytes":)" + std::to_string(remaining) +
      R"(,"dirty_bytes_per_second":)" + dirty + R"(,"estimate_ms":)" + estimate +
      R"(,"wire_bytes_per_second":41943040,"eta_ms":1900}})"));
}

TEST(ProgressLine, PercentPauseAndEtaFitSixtyColumns) {
  Progress progress;
  EXPECT_EQ(progress.line(moving(1, 38), 60), "m15-k3fa  62%  wire 40/40 MiB/s  pause <=200 ms  ETA 2 s");
  EXPECT_EQ(progress.line(moving(1, 38), 80),
            "m15-k3fa  big > node-c:1  62%  wire 40/40 MiB/s  pause <=200 ms  ETA 2 s");
  EXPECT_EQ(progress.line(moving(1, 38), 30), "62%  pause <=200 ms  ETA 2 s");
}

TEST(ProgressLine, PercentNeverDecreases) {
  Progress progress;
  int before = 0;
  for (const auto& [round, remaining] : std::vector<std::pair<int, std::uint64_t>>{
           {1, 100}, {1, 40}, {1, 0}, {2, 60}, {2, 10}, {3, 30}, {3, 0}}) {
    const int now = progress.percent(moving(round, remaining));
    EXPECT_GE(now, before);
    EXPECT_LE(now, 99);
    before = now;
  }
  EXPECT_EQ(progress.percent({.id = "m15-k3fa", .state = "committed"}), -1);
}

TEST(ProgressLine, PauseEstimateIsShownOnceMeaningful) {
  EXPECT_EQ(pause_of(moving(1, 50, "9000")), "pause <=200 ms");
  EXPECT_EQ(pause_of(moving(2, 50, "123", "1000")), "pause ~123 ms");
  api::Migration stopped = moving(1, 50, "9000");
  stopped.strategy = "stop-copy";
  EXPECT_EQ(pause_of(stopped), "paused");
}

TEST(DrainScreens, PercentNeverDecreases) {
  DrainScreen screen;
  const auto percent = [&](const api::Drain& drain, const std::vector<api::Migration>& migrations) {
    const std::string text = screen.view(drain, migrations, 20);
    return std::stoi(text);
  };
  auto drain = record::from_answer<api::Drain>(sample_open_drain());
  int before = 0;
  for (const std::uint64_t remaining : {136314880, 51799654, 0, 99999999}) {
    auto migrations = sample_moves();
    migrations[0].progress->remaining_bytes = remaining;
    const int now = percent(drain, migrations);
    EXPECT_GE(now, before);
    before = now;
  }
  EXPECT_EQ(before, 49);  // one of four jobs has moved, and another job has copied all its data
  // The move fails, and the job waits again.
  drain.jobs[1].state = "waiting";
  EXPECT_EQ(percent(drain, sample_moves()), 49);
  for (api::DrainJob& job : drain.jobs) job.state = "moved";
  EXPECT_EQ(percent(drain, sample_moves()), 99);
}

// A terminal that interprets the codes of redraw().
class Terminal {
 public:
  void write(const std::string& bytes) {
    for (std::size_t i = 0; i < bytes.size(); i++) {
      if (bytes[i] == '\r') {
        column_ = 0;
      } else if (bytes[i] == '\n') {
        row_++;
      } else if (bytes[i] == '\x1b') {
        std::size_t end = i + 2;
        while (std::isdigit(static_cast<unsigned char>(bytes[end])) != 0) end++;
        const int number = end > i + 2 ? std::stoi(bytes.substr(i + 2, end - i - 2)) : 0;
        if (bytes[end] == 'A') row_ -= static_cast<std::size_t>(number);
        if (bytes[end] == 'K') line(row_).resize(column_);
        if (bytes[end] == 'J') lines_.resize(std::min(lines_.size(), row_));
        i = end;
      } else {
        std::string& text = line(row_);
        text.resize(std::max(text.size(), column_ + 1), ' ');
        text[column_++] = bytes[i];
      }
    }
  }
  [[nodiscard]] const Frame& lines() const { return lines_; }

 private:
  std::string& line(std::size_t row) {
    lines_.resize(std::max(lines_.size(), row + 1));
    return lines_[row];
  }
  Frame lines_;
  std::size_t row_ = 0;
  std::size_t column_ = 0;
};

TEST(Frames, ATerminalShowsOnlyTheNextFrame) {
  Terminal terminal;
  Frame shown;
  for (const Frame& next :
       {Frame{"one", "two, which is long", "three"}, Frame{"1"}, Frame{"a", "b", "c", "d"}, Frame{}}) {
    terminal.write(redraw(shown, next));
    EXPECT_EQ(terminal.lines(), next);
    shown = next;
  }
  EXPECT_EQ(redraw({"same"}, {"same"}), "");
}

TEST(Frames, AFrameFitsTheRowsAndCountsTheOmittedLines) {
  EXPECT_EQ(frame_of("1\n2\n3\n4\n5\n", {.columns = 80, .rows = 4}), (Frame{"1", "2", "3 more"}));
  EXPECT_EQ(frame_of("1\n2\n3\n", {.columns = 80, .rows = 4}), (Frame{"1", "2", "3"}));
}

TEST(Frames, APipeGetsOnlyNewAndChangedEntries) {
  EXPECT_EQ(news("", "H\na\n", "H 1\na 1\n"), "H 1\na 1\n");
  EXPECT_EQ(news("H\na\n", "H\na\nb\n", "H 2\na 2\nb 2\n"), "b 2\n");
}

TEST(Lists, FiltersMatchStatesPlacesAndNames) {
  EXPECT_TRUE(is_state_wanted("parked", "running,parked"));
  EXPECT_FALSE(is_state_wanted("parked", "running"));
  EXPECT_TRUE(is_state_wanted("parked", ""));
  EXPECT_TRUE(is_place_wanted("node-a:1", "node-a"));
  EXPECT_TRUE(is_place_wanted("node-a:1", "node-a:1"));
  EXPECT_FALSE(is_place_wanted("node-ab:1", "node-a"));
  EXPECT_TRUE(is_name_wanted("train-7", "train*"));
  EXPECT_FALSE(is_name_wanted("train-7", "train"));
}

}  // namespace
}  // namespace ckpt::cli
