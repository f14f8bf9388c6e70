// SPDX-License-Identifier: Apache-2.0
// Tests with two mover processes on two GPUs. This program plays both agents and both jobs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "libckpt/protocol/wire/migration_messages.h"
#include "libckpt/protocol/wire/mover_move_messages.h"
#include "libckpt/protocol/wire/mover_session_messages.h"
#include "libckpt/protocol/wire/mover_values.h"
#include "tests/fault/mover_process.h"

namespace ckpt::engine {
namespace {

using test::JobMemory;
using test::kMiB;
using test::MoverProcess;
using test::must;
namespace messages = wire::mover;

// One migration between two movers.
class Move {
 public:
  Move(MoverProcess& source, MoverProcess& target, std::uint64_t migration)
      : source_(source), target_(target), key_(migration, 0) {
    messages::OpenSession open;
    open.session = key_;
    open.incarnation = 2;
    open.fingerprint_key.resize(32);
    open.session_token.resize(16);
    must(fill_random(open.fingerprint_key));
    must(fill_random(open.session_token));
    open.side = wire::Side::kSource;
    source_.send(open);
    open.side = wire::Side::kTarget;
    target_.send(open);
  }
  void attach(const JobMemory& source, const JobMemory& target) {
    source.attach(source_, key_);
    target.attach(target_, key_);
  }
  void start(wire::MigrateStrategy mode, Nanos max_downtime = 10'000'000'000,
             wire::NotConverged otherwise = wire::NotConverged::kSwitch) {
    messages::StartTarget listen;
    listen.session = key_;
    target_.send(listen);
    messages::StartSource start;
    start.session = key_;
    start.addresses = target_.expect<messages::Listening>().addresses;
    start.options.strategy = mode;
    start.options.max_downtime_ns = max_downtime;
    start.options.if_not_converged = otherwise;
    source_.send(start);
  }
  void send_final(std::span<const std::byte> host_state) {
    messages::FinalRound final_round;
    final_round.session = key_;
    final_round.host_state_bytes = host_state.size();
    if (host_state.empty()) {
      source_.send(final_round);
    } else {
      const UniqueFd file = must(make_memory_file("test", host_state.size()));
      must(write_all(file.get(), host_state));
      source_.send(final_round, {file.get()});
    }
  }
  void release_manifest() {
    messages::ReleaseManifest release;
    release.session = key_;
    source_.send(release);
  }
  // Completes the move while the job is paused: last round, manifest, verification.
  void finish(std::span<const std::byte> host_state) {
    send_final(host_state);
    sent = source_.expect<messages::FinalSent>();
    release_manifest();
    UniqueFd file;
    verified = target_.expect<messages::Verified>(&file);
    done = source_.expect<messages::FinalDone>();
    ASSERT_EQ(verified.host_state_bytes, host_state.size());
    if (host_state.empty()) return;
    std::vector<std::byte> arrived(host_state.size());
    ASSERT_EQ(::pread(file.get(), arrived.data(), arrived.size(), 0), static_cast<ssize_t>(arrived.size()));
    EXPECT_TRUE(std::equal(arrived.begin(), arrived.end(), host_state.begin()));
  }
  void end() {
    messages::EndSession end;
    end.session = key_;
    source_.send(end);
    target_.send(end);
    source_.expect<messages::SessionEnded>();
    target_.expect<messages::SessionEnded>();
  }
  void end(MoverProcess& mover) {
    messages::EndSession end;
    end.session = key_;
    mover.send(end);
    mover.expect<messages::SessionEnded>();
  }
  [[nodiscard]] const messages::SessionKey& key() const { return key_; }

  messages::FinalSent sent;
  messages::FinalDone done;
  messages::Verified verified;

 private:
  MoverProcess& source_;
  MoverProcess& target_;
  messages::SessionKey key_;
};

// Names tensors in two regions: a view, tied weights, scratch. In the standby they are at other addresses.
void name_tensors(JobMemory& memory, bool other_layout) {
  const std::uint64_t first = memory.add_region(4 * kMiB);
  const std::uint64_t second = memory.add_region(4 * kMiB);
  const std::uint64_t weights = other_layout ? second : first;
  const std::uint64_t moments = other_layout ? first : second;
  const std::uint64_t shift = other_layout ? 4096 : 0;
  memory.add_tensor("weights", weights, shift, 900'000);
  memory.add_tensor("weights.head", weights, shift + 4096, 1000);  // a view of the weights
  memory.add_tensor("weights.tied", weights, shift, 900'000);      // the same bytes as the weights
  memory.add_tensor("moments", moments, shift, 500'000, CKPT_OPTIMIZER);
  memory.add_tensor("small", moments, shift + 2'000'000, 3, CKPT_BUFFER);
  memory.add_tensor("scratch", moments, shift + 2'100'000 / 16 * 16, 1000, CKPT_SCRATCH);
}

void expect_equal(const JobMemory& source, const JobMemory& target) {
  for (const auto& tensor : source.tensors) {
    if (tensor.kind == CKPT_SCRATCH) continue;
    EXPECT_TRUE(source.read(tensor.name) == target.read(tensor.name)) << tensor.name;
  }
}

class MoverTest : public testing::Test {
 protected:
  void SetUp() override {
    source_memory = std::make_unique<JobMemory>(test::device(0));
    target_memory = std::make_unique<JobMemory>(test::device(1));
    name_tensors(*source_memory, false);
    name_tensors(*target_memory, true);
    source_memory->write("weights", 0, test::random_bytes(3'600'000, 1));
    source_memory->write("moments", 0, test::random_bytes(2'000'000, 2));
    source_memory->write("small", 0, test::random_bytes(12, 3));
  }
  std::unique_ptr<JobMemory> source_memory, target_memory;
};

TEST_F(MoverTest, StopCopyMovesTensorsByNameAndRetainsNoJobMemory) {
  MoverProcess source(0, "a");
  MoverProcess target(1, "b");
  Move move(source, target, 7);
  move.attach(*source_memory, *target_memory);
  move.start(wire::MigrateStrategy::kStopCopy);
  const auto accepted = source.expect<messages::PlanAccepted>();
  EXPECT_EQ(accepted.state_bytes, 3'600'000u + 2'000'000u + 12u) << "tied and viewed tensors are sent once";
  source.expect<messages::FirstRoundDone>();
  source.expect<messages::Converged>();
  move.finish(test::random_bytes(100'000, 4));
  expect_equal(*source_memory, *target_memory);
  EXPECT_GE(move.sent.last_ack_ns, move.sent.scan_end_ns);
  EXPECT_EQ(move.done.counters.sent_bytes, accepted.state_bytes);
  EXPECT_GT(move.done.counters.link_bytes_per_second, 0u);
  EXPECT_LE(std::abs(move.done.counters.clock_offset_ns), move.done.counters.clock_uncertainty_ns);
  EXPECT_LE(std::abs(move.done.verified_heard_ns - move.verified.verified_ns),
            move.done.counters.clock_uncertainty_ns)
      << "when it was verified, not when the answer came";
  EXPECT_EQ(move.verified.root.size(), 32u);
  move.end();

  // The movers keep running. The job's memory must be free as soon as the job releases it.
  const std::uint64_t before = source_memory->free_bytes();
  source_memory->free_region(1);
  source_memory->free_region(2);
  EXPECT_EQ(source_memory->free_bytes(), before + 8 * kMiB)
      << "the source's mover still holds memory of the job";
  const std::uint64_t before_target = target_memory->free_bytes();
  target_memory->free_region(1);
  target_memory->free_region(2);
  EXPECT_EQ(target_memory->free_bytes(), before_target + 8 * kMiB);
  EXPECT_EQ(source.wait_exit(), 0);
  EXPECT_EQ(target.wait_exit(), 0);
}

TEST_F(MoverTest, LiveMigrationMovesAJobThatKeepsWriting) {
  MoverProcess source(0, "a");
  MoverProcess target(1, "b");
  for (std::uint64_t migration = 1; migration <= 3; ++migration) {
    Move move(source, target, migration);
    move.attach(*source_memory, *target_memory);
    std::atomic<bool> stop{false};
    std::thread job([&] {
      std::mt19937 random(static_cast<unsigned>(migration));
      while (!stop.load()) {
        const auto data = test::random_bytes(4096, random());
        source_memory->write("weights", random() % 3'500'000, data);
      }
    });
    move.start(wire::MigrateStrategy::kLive);
    source.expect<messages::FirstRoundDone>();
    const auto converged = source.expect<messages::Converged>();
    EXPECT_GE(converged.rounds, 2u);
    stop.store(true);
    job.join();
    move.finish(test::random_bytes(1000, 4));
    expect_equal(*source_memory, *target_memory);
    EXPECT_GT(move.done.counters.rounds, 2u);
    move.end();
  }
}

TEST_F(MoverTest, ConcurrentSessionsDoNotInterfere) {
  MoverProcess source(0, "a");
  MoverProcess target(1, "b");
  JobMemory other_source(test::device(0));
  JobMemory other_target(test::device(1));
  name_tensors(other_source, true);
  name_tensors(other_target, false);
  other_source.write("weights", 0, test::random_bytes(3'600'000, 11));
  Move first(source, target, 1);
  Move second(source, target, 2);
  first.attach(*source_memory, *target_memory);
  second.attach(other_source, other_target);
  first.start(wire::MigrateStrategy::kLive);
  second.start(wire::MigrateStrategy::kLive);
  source.expect<messages::Converged>();
  source.expect<messages::Converged>();
  first.finish({});
  second.finish({});
  expect_equal(*source_memory, *target_memory);
  expect_equal(other_source, other_target);
  first.end();
  second.end();
}

TEST_F(MoverTest, AStandbyWithADifferentTensorIsRefusedWithTheTensorName) {
  MoverProcess source(0, "a");
  MoverProcess target(1, "b");
  for (auto& tensor : target_memory->tensors)
    if (tensor.name == "moments") tensor.shape = {500, 1000};
  Move move(source, target, 7);
  move.attach(*source_memory, *target_memory);
  move.start(wire::MigrateStrategy::kLive);
  const auto failed = source.expect<messages::SessionFailed>();
  EXPECT_EQ(failed.failure.code, ErrorCode::kRefused);
  EXPECT_NE(
      failed.failure.text.find("\"moments\" is f32[500000] at the source but f32[500,1000] at the target"),
      std::string::npos)
      << failed.failure.text;
  EXPECT_EQ(target.expect<messages::SessionFailed>().failure.code, ErrorCode::kRefused);
  move.end();
  // The movers work as before.
  target_memory->tensors = {};
  name_tensors(*target_memory, true);
  Move again(source, target, 8);
  again.attach(*source_memory, *target_memory);
  again.start(wire::MigrateStrategy::kStopCopy);
  source.expect<messages::Converged>();
  again.finish({});
  expect_equal(*source_memory, *target_memory);
  again.end();
}

TEST_F(MoverTest, ARegionFreedDuringARoundIsReleasedBeforeTheConfirmation) {
  MoverProcess source(0, "a");
  MoverProcess target(1, "b");
  const std::uint64_t cache = source_memory->add_region(32 * kMiB);
  source_memory->add_tensor("cache", cache, 0, 8'000'000, CKPT_CACHE);
  target_memory->add_tensor("cache", target_memory->add_region(32 * kMiB), 0, 8'000'000, CKPT_CACHE);
  source_memory->write("cache", 0, test::random_bytes(32'000'000, 5));
  Move move(source, target, 7);
  move.attach(*source_memory, *target_memory);
  move.start(wire::MigrateStrategy::kLive);
  source.expect<messages::PlanAccepted>();
  messages::DropRegions drop;
  drop.session = move.key();
  drop.regions = {cache};
  source.send(drop);
  EXPECT_EQ(source.expect<messages::Dropped>().regions, drop.regions);
  const std::uint64_t before = source_memory->free_bytes();
  source_memory->free_region(cache);
  EXPECT_GE(source_memory->free_bytes(), before + 32 * kMiB);  // the mover also frees its own memory for the
                                                               // session
  if (source.count_seen<messages::Converged>() == 0) source.expect<messages::Converged>();
  move.finish({});
  EXPECT_EQ(move.verified.state_bytes, 3'600'000u + 2'000'000u + 12u);
  expect_equal(*source_memory, *target_memory);
  move.end();
}

// A rank that allocates in a round does this: it sends the name first, and the descriptor when the memory can
// be exported.
TEST_F(MoverTest, MemoryNamedBeforeItsExportIsMoved) {
  MoverProcess source(0, "a");
  MoverProcess target(1, "b");
  Move move(source, target, 7);
  move.attach(*source_memory, *target_memory);
  const std::uint64_t region = source_memory->add_region(2 * kMiB);
  source_memory->add_tensor("late", region, 0, 1000);
  source_memory->write("late", 0, test::random_bytes(4000, 8));
  messages::AttachTensors named;
  named.session = move.key();
  named.tensors = {source_memory->tensor("late")};
  source.send(named);
  move.start(wire::MigrateStrategy::kLive);
  source.expect<messages::PlanAccepted>();
  const std::uint64_t there = target_memory->add_region(2 * kMiB);
  target_memory->add_tensor("late", there, 0, 1000);
  target_memory->attach_region(target, move.key(), there);
  named.tensors = {target_memory->tensor("late")};
  target.send(named);
  source_memory->attach_region(source, move.key(), region);
  if (source.count_seen<messages::Converged>() == 0) source.expect<messages::Converged>();
  move.finish({});
  expect_equal(*source_memory, *target_memory);
  move.end();
}

TEST_F(MoverTest, ATensorNamedDuringARoundIsRefusedIfTheStandbyLacksTheTensor) {
  MoverProcess source(0, "a");
  MoverProcess target(1, "b");
  Move move(source, target, 7);
  // The source has not named "late" yet when the plan is made. The standby's program also names it later.
  move.attach(*source_memory, *target_memory);
  const std::uint64_t region = source_memory->add_region(2 * kMiB);
  source_memory->add_tensor("late", region, 0, 1000);
  source_memory->write("late", 0, test::random_bytes(4000, 8));
  move.start(wire::MigrateStrategy::kLive);
  source.expect<messages::Converged>();
  {
    JobMemory& target_job = *target_memory;
    target_job.add_tensor("late", target_job.add_region(2 * kMiB), 0, 1000);
  }
  messages::AttachTensors named;
  named.session = move.key();
  named.tensors = {source_memory->tensor("late")};
  source.send(named);
  move.send_final({});
  const auto failed = source.expect<messages::SessionFailed>();
  EXPECT_NE(failed.failure.text.find("\"late\""), std::string::npos) << failed.failure.text;
  move.end();
}

// A job that writes all of its weights repeatedly.
class RewritingJob {
 public:
  explicit RewritingJob(JobMemory& memory)
      : thread_([this, &memory] {
          unsigned seed = 0;
          while (!stopped_.load()) memory.write("weights", 0, test::random_bytes(3'600'000, ++seed));
        }) {}
  ~RewritingJob() { stop(); }
  void stop() {
    stopped_.store(true);
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

TEST_F(MoverTest, ANonconvergingMoveIsReportedAndWaitsUntilTheAgentEndsTheMove) {
  MoverProcess source(0, "a");
  MoverProcess target(1, "b");
  Move move(source, target, 7);
  move.attach(*source_memory, *target_memory);
  RewritingJob job(*source_memory);
  move.start(wire::MigrateStrategy::kLive, 1, wire::NotConverged::kAbort);
  const auto lost = source.expect<messages::DidNotConverge>();
  job.stop();
  EXPECT_NE(lost.reason.find("the limit is"), std::string::npos);
  move.end();
}

TEST_F(MoverTest, RoundsThatShareTheLinkWithHostMemoryAreNotAborted) {
  constexpr std::uint64_t kHostBytes = 4 * kMiB;
  MoverProcess source(0, "a");
  MoverProcess target(1, "b");
  Move move(source, target, 7);
  move.attach(*source_memory, *target_memory);
  RewritingJob job(*source_memory);
  const UniqueFd file = must(make_memory_file("test", kHostBytes));
  must(write_all(file.get(), test::random_bytes(kHostBytes, 5)));
  messages::HostStateFile host;
  host.session = move.key();
  host.limit = host.expected = kHostBytes;
  source.send(host, {file.get()});
  messages::HostGrew grew;
  grew.session = move.key();
  grew.filled = kHostBytes / 2;
  source.send(grew);
  move.start(wire::MigrateStrategy::kLive, 1, wire::NotConverged::kAbort);
  const auto converged = source.expect<messages::Converged>();  // the agent decides by the whole pause
  job.stop();
  EXPECT_FALSE(converged.within_limit);
  move.end();
}

TEST_F(MoverTest, KillingEitherMoverFailsTheOtherSideAndTheNextMoveSucceeds) {
  MoverProcess keeper_of_gpu1(1, "b");
  {
    MoverProcess source(0, "a");
    Move move(source, keeper_of_gpu1, 1);
    move.attach(*source_memory, *target_memory);
    move.start(wire::MigrateStrategy::kLive);
    source.expect<messages::Converged>();
    source.kill();
    EXPECT_TRUE(source.wait_killed());
    EXPECT_EQ(keeper_of_gpu1.expect<messages::SessionFailed>().failure.code, ErrorCode::kUnavailable);
    move.end(keeper_of_gpu1);
  }
  MoverProcess source(0, "a");
  {
    MoverProcess target(1, "c");
    Move move(source, target, 2);
    move.attach(*source_memory, *target_memory);
    move.start(wire::MigrateStrategy::kLive);
    source.expect<messages::Converged>();
    target.kill();
    EXPECT_TRUE(target.wait_killed());
    source.expect<messages::SessionFailed>();
    move.end(source);
  }
  Move move(source, keeper_of_gpu1, 3);
  move.attach(*source_memory, *target_memory);
  move.start(wire::MigrateStrategy::kStopCopy);
  source.expect<messages::Converged>();
  move.finish({});
  expect_equal(*source_memory, *target_memory);
  move.end();
}

// Tests of every crash point of a mover, armed for one of the two movers.
class CrashPoint : public MoverTest, public testing::WithParamInterface<int> {};

TEST_P(CrashPoint, ACrashKillsTheMoverAndFailsTheOtherSide) {
  const int number = GetParam();
  const bool at_source = number < 400;
  const std::string dir = testing::TempDir() + "mover-crash-" + std::to_string(::getpid());
  std::filesystem::create_directories(dir);
  const std::string file = dir + (at_source ? "/mover.a.0." : "/mover.b.1.") + std::to_string(number);
  std::ofstream(file).put('\n');
  {
    MoverProcess source(0, "a", {"CKPT_FAULT_DIR=" + dir});
    MoverProcess target(1, "b", {"CKPT_FAULT_DIR=" + dir});
    try {
      Move move(source, target, 1);
      move.attach(*source_memory, *target_memory);
      move.start(wire::MigrateStrategy::kLive);
      source.expect<messages::Converged>();
      move.finish({});
    } catch (const std::exception&) {  // the socket of the killed mover, or the failure of the other mover
    }
    EXPECT_FALSE(std::filesystem::exists(file)) << "the point was never reached";
    EXPECT_TRUE((at_source ? source : target).wait_killed());
  }
  std::filesystem::remove_all(dir);
}

INSTANTIATE_TEST_SUITE_P(Points, CrashPoint, testing::Values(301, 302, 303, 304, 401, 402, 403, 404));

}  // namespace
}  // namespace ckpt::engine
