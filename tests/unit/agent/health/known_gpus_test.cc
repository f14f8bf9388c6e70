// SPDX-License-Identifier: Apache-2.0
// Tests of which GPU an address means while cards are added, removed and swapped. They use lists of this
// test, and the software driver's NVML.
#include "agent/health/known_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "agent/gpus/nvml.h"
#include "agent/health/findings.h"
#include "agent/health/kernel_channel.h"
#include "agent/health/nvml_channel.h"

namespace ckpt::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const health::PciAddress kFirst = *health::parse_pci("0000:10:00");

GpuFacts card(std::uint32_t index, const std::string& uuid, const std::string& bus_id) {
  GpuFacts facts;
  facts.index = index;
  facts.uuid = uuid;
  facts.bus_id = bus_id;
  return facts;
}

InventorySnapshot inventory(std::vector<GpuFacts> gpus) {
  InventorySnapshot snapshot;
  snapshot.gpus = std::move(gpus);
  return snapshot;
}

class KnownGpusTest : public ::testing::Test {
 protected:
  HealthRecord record_;
  KnownGpus gpus_{record_.gpus};
};

TEST_F(KnownGpusTest, AnotherCardAtTheSameAddressReplacesTheOldCard) {
  EXPECT_TRUE(gpus_.follow(inventory({card(0, "GPU-old", "00000000:10:00.0")})).cards);
  const auto changes = gpus_.follow(inventory({card(0, "GPU-new", "00000000:10:00.0")}));
  EXPECT_THAT(changes.gone, ElementsAre("GPU-old"));
  EXPECT_TRUE(changes.cards && changes.any);
  EXPECT_EQ(gpus_.at(kFirst)->uuid, "GPU-new");
  EXPECT_TRUE(gpus_.of_uuid("GPU-old")->replaced);
  EXPECT_THAT(gpus_.follow(inventory({card(0, "GPU-new", "00000000:10:00.0")})).gone,
              IsEmpty());  // the removed GPU is reported only once
  gpus_.erase_replaced("GPU-old");
  gpus_.erase_replaced("GPU-new");
  EXPECT_EQ(gpus_.of_uuid("GPU-old"), nullptr);
  EXPECT_EQ(record_.gpus.size(), 1U);
}

TEST_F(KnownGpusTest, MissingCardIsReportedOnceAndKeepsItsAddress) {
  gpus_.follow(inventory({card(0, "GPU-a", "0000:10:00.0"), card(1, "GPU-b", "0000:20:00.0")}));
  const auto changes = gpus_.follow(inventory({card(0, "GPU-a", "0000:10:00.0")}));
  EXPECT_THAT(changes.gone, ElementsAre("GPU-b"));
  EXPECT_FALSE(changes.cards);
  EXPECT_FALSE(gpus_.follow(inventory({card(0, "GPU-a", "0000:10:00.0")})).any);
  EXPECT_EQ(gpus_.at(*health::parse_pci("0000:20:00"))->uuid, "GPU-b");
  gpus_.erase_replaced("GPU-b");
  EXPECT_NE(gpus_.of_uuid("GPU-b"), nullptr);
}

TEST_F(KnownGpusTest, AReturningCardStartsWithAFreshRecord) {
  gpus_.follow(inventory({card(0, "GPU-a", "0000:10:00.0")}));
  gpus_.of_uuid("GPU-a")->recovery = 1;
  gpus_.of_uuid("GPU-a")->lost = true;
  gpus_.follow(inventory({}));
  const auto changes = gpus_.follow(inventory({card(3, "GPU-a", "0000:30:00.0")}));
  EXPECT_TRUE(changes.cards);
  const KnownGpu& gpu = *gpus_.of_uuid("GPU-a");
  EXPECT_FALSE(gpu.gone || gpu.lost);
  EXPECT_EQ(gpu.recovery, 0U);
  EXPECT_EQ(gpu.index, 3U);
  EXPECT_EQ(gpus_.at(kFirst), nullptr);
}

TEST_F(KnownGpusTest, ASilentDriverOrCardIsNotReportedAsRemoved) {
  gpus_.follow(inventory({card(0, "GPU-a", "0000:10:00.0")}));
  InventorySnapshot silent;
  silent.problem = "The GPU driver did not answer";
  EXPECT_THAT(gpus_.follow(silent).gone, IsEmpty());
  GpuFacts lost;
  lost.lost = true;
  EXPECT_THAT(gpus_.follow(inventory({lost})).gone, IsEmpty());
  EXPECT_EQ(gpus_.at(kFirst)->uuid, "GPU-a");
}

TEST_F(KnownGpusTest, DriverAddressIsUsedOnlyIfTheInventoryHasNoAddress) {
  gpus_.follow(inventory({card(0, "GPU-a", ""), card(1, "GPU-b", "0000:10:00.0")}));
  EXPECT_FALSE(gpus_.identify(kFirst, "GPU-a"));  // GPU-b is present
  EXPECT_FALSE(gpus_.identify(kFirst, "GPU-nobody"));
  EXPECT_TRUE(gpus_.identify(*health::parse_pci("0000:40:00"), "GPU-a"));
  EXPECT_EQ(gpus_.at(*health::parse_pci("0000:40:00"))->uuid, "GPU-a");
}

TEST_F(KnownGpusTest, FindingForARemovedCardCordonsNoGpu) {
  gpus_.follow(inventory({card(0, "GPU-old", "0000:10:00.0")}));
  gpus_.follow(inventory({card(0, "GPU-new", "0000:10:00.0")}));
  health::Evidence evidence;
  evidence.gpu.gone = true;
  const auto decision = health::decide(health::XidTable::built_in(), evidence);
  std::vector<SeenEvent> seen(1);
  seen[0].source = "inventory";
  const auto finding = finding_of(*gpus_.of_uuid("GPU-old"), seen, {}, decision);
  EXPECT_FALSE(finding.cordon);
  EXPECT_EQ(finding.outcome, wire::HealthOutcome::kNone);
  EXPECT_EQ(finding.source, "inventory");
  EXPECT_THAT(finding.reason, HasSubstr("no longer in the node"));
  EXPECT_THAT(finding.reason, HasSubstr("GPU-old"));
}

// Tests with the software driver, whose card is swapped under a library that stays loaded.
class SwappedCardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto nvml = Nvml::create("libnvidia-ml.so.1");
    ASSERT_TRUE(nvml) << nvml.error().to_string();
    nvml_ = *std::move(nvml);
    gpus_.follow(read());
  }
  InventorySnapshot read() {
    auto gpus = nvml_->read_gpus();
    EXPECT_TRUE(gpus);
    return inventory(*std::move(gpus));
  }
  void log(const std::string& text) {
    health::KernelRecord record;
    record.sequence = ++sequence_;
    record.text = text;
    kernel_.handle(record);
  }
  void nvml_says(nvml_watch::Kind kind, std::uint32_t xid, const std::string& name = "") {
    nvml_watch::Report report;
    report.kind = kind;
    report.xid = xid;
    nvml_watch::set_text(report, name);
    channel_.handle(report);
  }
  std::shared_ptr<Nvml> nvml_;
  HealthRecord record_;
  KnownGpus gpus_{record_.gpus};
  std::vector<SeenEvent> seen_;
  KernelChannel kernel_{
      record_, gpus_, {[this](SeenEvent event) { seen_.push_back(std::move(event)); }, [] {}}};
  NvmlChannel channel_{gpus_, {[this](SeenEvent event) { seen_.push_back(std::move(event)); }, [] {}}};
  std::uint64_t sequence_ = 0;
};

TEST_F(SwappedCardTest, EventsOfBothChannelsNameTheInstalledCard) {
  ASSERT_EQ(record_.gpus.size(), 1U);
  const std::string before = record_.gpus[0].uuid;
  nvml_says(nvml_watch::Kind::kGpu, 0, before + " 0000:10:00.0 name");
  log("NVRM: Xid (PCI:0000:10:00): 63, pid='<unknown>', name=<unknown>, rows");
  nvml_says(nvml_watch::Kind::kXid, 63);
  ASSERT_EQ(seen_.size(), 2U);
  EXPECT_EQ(seen_[0].gpu, before);
  EXPECT_EQ(seen_[1].gpu, before);

  ASSERT_EQ(::system(CUDASIM_CTL " swap"), 0);
  const auto changes = gpus_.follow(read());
  EXPECT_THAT(changes.gone, ElementsAre(before));
  const std::string after = gpus_.at(kFirst)->uuid;
  EXPECT_NE(after, before);
  seen_.clear();
  log("NVRM: Xid (PCI:0000:10:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
  nvml_says(nvml_watch::Kind::kXid, 79);  // the library still reports events for the old card
  log("NVRM: GPU 0000:10:00.0: GPU has fallen off the bus.");
  ASSERT_EQ(seen_.size(), 2U);
  EXPECT_EQ(seen_[0].gpu, after);
  EXPECT_EQ(seen_[0].xid, 79U);
  EXPECT_EQ(seen_[1].gpu, after);
  EXPECT_TRUE(seen_[1].lost);
}

class CountersTest : public SwappedCardTest {
 protected:
  void state(nvml_watch::Counters counters, std::uint32_t flags = kAll) {
    nvml_watch::Report report;
    report.kind = nvml_watch::Kind::kState;
    report.flags = flags;
    report.counters = counters;
    channel_.handle(report);
  }
  void SetUp() override {
    SwappedCardTest::SetUp();
    nvml_says(nvml_watch::Kind::kGpu, 0, record_.gpus.at(0).uuid + " 0000:10:00.0 name");
  }
  static constexpr std::uint32_t kAll =
      nvml_watch::kVolatileKnown | nvml_watch::kAggregateKnown | nvml_watch::kRowsKnown;
};

TEST_F(CountersTest, OnlyNewUncorrectedErrorsRaiseAnEvent) {
  nvml_watch::Counters counters;
  counters.volatile_uncorrected = 3;
  counters.aggregate_uncorrected = 9;
  state(counters);  // the counters at the first query
  counters.volatile_corrected = 100;
  counters.rows_uncorrected = 1;
  state(counters);
  EXPECT_TRUE(seen_.empty());
  EXPECT_EQ(record_.gpus[0].errors.volatile_corrected, 100U);
  counters.volatile_uncorrected = 5;
  counters.aggregate_uncorrected = 11;
  state(counters);
  ASSERT_EQ(seen_.size(), 1U);
  EXPECT_EQ(seen_[0].uncorrected, 2U);
  counters.volatile_uncorrected = 0;  // the driver was reloaded
  state(counters);
  counters.aggregate_uncorrected = 50;  // not reported by the driver
  state(counters, nvml_watch::kVolatileKnown);
  EXPECT_EQ(seen_.size(), 1U);
}

}  // namespace
}  // namespace ckpt::agent
