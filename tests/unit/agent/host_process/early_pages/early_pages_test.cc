// SPDX-License-Identifier: Apache-2.0
// Tests that memory which was read while the program ran is in its image as CRIU would have stored it.
#include "agent/host_process/early_pages/early_pages.h"

#include "tests/unit/agent/host_process/criu_fixture.h"

namespace ckpt::agent::host {
namespace {

// Checks whether this kernel lacks the ability to watch memory.
bool is_unsupported(const Result<std::unique_ptr<EarlyPages>>& early) {
  return !early && early.error().code() == ErrorCode::kNotSupported;
}

// Tests with memory that is sent in rounds. The parameter selects whether CRIU leaves that memory out, or
// dumps pages that are discarded.
class EarlyPagesTest : public CriuTest, public ::testing::WithParamInterface<bool> {
 protected:
  static std::string library(const EarlyPages& pages) { return GetParam() ? pages.criu_library() : ""; }
  // Returns the sum of the pages over all processes.
  static std::uint64_t found_by_criu(const std::string& images) {
    const std::vector<DumpedPages> all = *dumped_pages(images);
    std::uint64_t bytes = 0;
    for (const DumpedPages& pages : all)
      for (const IndexedRange& range : pages.ranges) bytes += range.bytes;
    return bytes;
  }
  // Returns the ranges of all pages that the images contain of a process, and of the pages that can be lazy.
  static std::vector<std::pair<std::uint64_t, std::uint64_t>> page_lists(const std::string& images,
                                                                         const std::string& process) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> lists;
    const auto add = [&lists](std::uint64_t begin, std::uint64_t bytes) {
      if (!lists.empty() && lists.back().second == begin) {
        lists.back().second += bytes;
      } else {
        lists.emplace_back(begin, begin + bytes);
      }
    };
    const std::vector<DumpedPages> all = *dumped_pages(images);
    for (const DumpedPages& pages : all) {
      if (std::to_string(pages.process) != process) continue;
      for (const IndexedRange& range : pages.ranges) add(range.address, range.bytes);
    }
    const auto text = [&](const char* kind) {
      return *read_file(images + "/" + kind + "-" + process + ".img", 1 << 20);
    };
    const auto lazy = lazy_ranges(text("pagemap"), text("mm"));
    EXPECT_TRUE(lazy.has_value()) << lazy.error().to_string();
    for (const auto& range : *lazy) add(range.address, range.bytes);
    return lists;
  }
};
INSTANTIATE_TEST_SUITE_P(EachWay, EarlyPagesTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "LeftOut" : "ThrownAway"; });

TEST_P(EarlyPagesTest, ProgramContinuesWithMemoryCopiedEarly) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const bool lazily = run_until_done(io_, criu_->restores_lazily(folder_.path()));
  const pid_t source = start({"plain"});
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
  auto early = EarlyPages::create(source, 256 << 20, 0, 4 << 20);
  if (is_unsupported(early)) GTEST_SKIP() << early.error().to_string();
  ASSERT_TRUE(early.has_value()) << early.error().to_string();
  EarlyPages& pages = **early;
  std::uint64_t reported = 0;
  const auto grew = [&reported](std::uint64_t filled) { reported = filled; };
  const auto first = pages.run_round(grew);
  ASSERT_TRUE(first.has_value()) << first.error().to_string();
  EXPECT_GE(first->read_bytes, 8u << 20);  // at least the program's memory
  const auto second = pages.run_round(grew);
  ASSERT_TRUE(second.has_value());
  EXPECT_LT(second->read_bytes, 1u << 20);  // the stacks and counters of its threads
  EXPECT_GE(pages.held_bytes(), 8u << 20) << "the dump needs no memory for that";

  const MemoryFolder images = make_memory_folder("e");
  ASSERT_TRUE(pages.begin_dump(images.path(), *estimate_dump(source)).has_value());
  const auto dumped = dump(source, images.path(), library(pages));
  ASSERT_TRUE(dumped.has_value()) << dumped.error().to_string();
  EXPECT_LT(dumped->bytes, 1u << 20) << "CRIU's own pages are nowhere";
  EXPECT_EQ(found_by_criu(images.path()) < 4u << 20, GetParam()) << found_by_criu(images.path());
  const std::uint64_t before = pages.log().filled();
  auto placed = pages.finish(images.path(), grew);
  pages.distrust(keeper::program_of(source));
  EXPECT_EQ(pages.held_bytes(), 0u) << "all of it is to be read again";
  ASSERT_TRUE(placed.has_value()) << placed.error().to_string();
  EXPECT_LT(pages.log().filled() - before, 4u << 20) << "what was held is read again";
  EXPECT_EQ(reported, pages.log().filled());

  auto packed = pack_folder(images.path(), *std::move(placed));
  ASSERT_TRUE(packed.has_value()) << packed.error().to_string();
  const UniqueFd& file = packed->file;
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(packed->bytes)), -1) << "it cannot shrink";
  const UniqueFd arrived_file = arrived_copy(*packed);
  for (const bool with_lazy : {false, true}) {
    if (with_lazy && !lazily) continue;
    const MemoryFolder arrived = make_memory_folder(with_lazy ? "f" : "g");
    ASSERT_TRUE(unpack_folder(arrived_file.get(), packed->bytes, arrived.path()).has_value());
    const auto counts = choose_lazy_pages(arrived.path(), with_lazy ? 1 << 20 : kAllEager);
    ASSERT_TRUE(counts.has_value()) << counts.error().to_string();
    EXPECT_EQ(counts->lazy > 0, with_lazy);
    const auto restored = with_lazy ? restore_lazily(arrived.path(), "") : restore(arrived.path());
    ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
    const pid_t copy = *restored;
    if (with_lazy) {
      const std::string server = "/proc/" + std::to_string(pages_->server());
      // A process that may not lower the value keeps its current value.
      const UniqueFd own(::open("/proc/thread-self/oom_score_adj", O_RDWR | O_CLOEXEC));
      if (own && ::write(own.get(), "-1", 2) == 2) {
        (void)!::write(own.get(), "0", 1);
        EXPECT_EQ(*read_file(server + "/oom_score_adj", 16), "-1000\n");
      }
    }
    ASSERT_TRUE(resume_source(copy).has_value());
    EXPECT_EQ(ask(copy, new_log(), 2), state_line(2, folder_.path(), 2));
    if (with_lazy) {
      EXPECT_EQ(wait_for_server(), keeper::LazyPages::State::kWhole);
    }
    ::kill(-copy, SIGTERM);
    EXPECT_EQ(wait_for_end(copy), 7 << 8);
    std::erase(started_, copy);
    ASSERT_EQ(::truncate(new_log().c_str(), 0), 0);
    ASSERT_EQ(::truncate((folder_ / "data.txt").c_str(), 1), 0);  // the file's size at the dump
  }
  // The original continues with its own state.
  early->reset();
  ASSERT_TRUE(resume_source(source).has_value());
  EXPECT_EQ(ask(source, old_log(), 2), state_line(2, folder_.path(), 2));
}

// Checks that the comparison of all pages detects a copy that differs from the process, and that the job then
// loses no data.
TEST_P(EarlyPagesTest, MoveFailsIfAnEarlyCopyDiffersFromTheProcess) {
  const pid_t source = start({"plain"});
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
  auto early = EarlyPages::create(source, 256 << 20, 0, 4 << 20);
  if (is_unsupported(early)) GTEST_SKIP() << early.error().to_string();
  ASSERT_TRUE(early.has_value()) << early.error().to_string();
  EarlyPages& pages = **early;
  const auto nobody = [](std::uint64_t) {};
  ASSERT_TRUE(pages.run_round(nobody).has_value());
  // All pages are changed, so that a sample detects it.
  auto file = *pages.log().duplicate_file();
  for (std::uint64_t at = 0; at < pages.log().filled(); at += kMemoryPage)
    ASSERT_EQ(::pwrite(file.get(), "stale", 5, static_cast<off_t>(at)), 5);
  const MemoryFolder images = make_memory_folder("l");
  ASSERT_TRUE(pages.begin_dump(images.path(), *estimate_dump(source)).has_value());
  ASSERT_TRUE(dump(source, images.path(), library(pages)).has_value());
  const auto placed = pages.finish(images.path(), nobody);
  ASSERT_FALSE(placed.has_value());
  EXPECT_EQ(placed.error().code(), ErrorCode::kCorrupt);
  EXPECT_NE(placed.error().to_string().find("of process "), std::string::npos);
  early->reset();
  ASSERT_TRUE(resume_source(source).has_value());
  EXPECT_EQ(ask(source, old_log(), 2), state_line(2, folder_.path(), 2));
}

// A process that ends before CRIU stops the other processes shifts their numbers. A process that was not
// watched takes its place.
TEST_P(EarlyPagesTest, PagemapMatchesAFullCriuDump) {
  const pid_t source = start({"memories"});
  auto early = EarlyPages::create(source, 256 << 20, 0, 4 << 20);
  if (is_unsupported(early)) GTEST_SKIP() << early.error().to_string();
  ASSERT_TRUE(early.has_value()) << early.error().to_string();
  EarlyPages& pages = **early;
  const auto nobody = [](std::uint64_t) {};
  ASSERT_TRUE(pages.run_round(nobody).has_value());
  const MemoryFolder images = make_memory_folder("j");
  ASSERT_TRUE(pages.begin_dump(images.path(), *estimate_dump(source)).has_value());
  ASSERT_TRUE(dump(source, images.path(), library(pages)).has_value());
  auto placed = pages.finish(images.path(), nobody);
  ASSERT_TRUE(placed.has_value()) << placed.error().to_string();
  const MemoryFolder others = make_memory_folder("k");
  ASSERT_TRUE(dump(source, others.path()).has_value());
  for (const char* process : {"1", "2", "3"}) {
    SCOPED_TRACE(process);
    EXPECT_EQ(page_lists(images.path(), process), page_lists(others.path(), process));
  }
}

TEST_P(EarlyPagesTest, EarlyCopiesOfTheWrongProcessAreDiscardedAndReadAgain) {
  const pid_t source = start({"plain"});
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
  auto early = EarlyPages::create(source, 256 << 20, 0, 4 << 20);
  if (is_unsupported(early)) GTEST_SKIP() << early.error().to_string();
  ASSERT_TRUE(early.has_value()) << early.error().to_string();
  EarlyPages& pages = **early;
  const auto nobody = [](std::uint64_t) {};
  ASSERT_TRUE(pages.run_round(nobody).has_value());
  DumpEstimate estimate = *estimate_dump(source);
  ASSERT_EQ(estimate.processes.size(), 3u);  // the init, the program and the program's child
  std::swap(estimate.processes[1].position, estimate.processes[2].position);
  const MemoryFolder images = make_memory_folder("h");
  ASSERT_TRUE(pages.begin_dump(images.path(), estimate).has_value());
  ASSERT_TRUE(dump(source, images.path(), library(pages)).has_value());
  auto placed = pages.finish(images.path(), nobody);
  ASSERT_TRUE(placed.has_value()) << placed.error().to_string();
  auto packed = pack_folder(images.path(), *std::move(placed));
  ASSERT_TRUE(packed.has_value()) << packed.error().to_string();
  const MemoryFolder arrived = make_memory_folder("i");
  const UniqueFd file = arrived_copy(*packed);
  ASSERT_TRUE(unpack_folder(file.get(), packed->bytes, arrived.path()).has_value());
  ASSERT_TRUE(choose_lazy_pages(arrived.path(), kAllEager).has_value());
  const auto restored = restore(arrived.path());
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  ASSERT_TRUE(resume_source(*restored).has_value());
  EXPECT_EQ(ask(*restored, new_log(), 2), state_line(2, folder_.path(), 2));
}

}  // namespace
}  // namespace ckpt::agent::host
