// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace ckpt::coordinator {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

GpuView gpu(const std::string& node, std::uint32_t index) {
  GpuView view;
  view.place = Place(node, index);
  view.model = "model-1";
  view.total_bytes = 8 * kGiB;
  view.free_bytes = 8 * kGiB;
  return view;
}

TEST(Placement, SourceGpuIsNeverChosen) {
  PlacementRequest request;
  request.not_here = Place("a", 0);
  const auto candidates = rank_candidates({gpu("a", 0), gpu("a", 1)}, request);
  EXPECT_EQ(candidates.at(0).place, Place("a", 1));
  EXPECT_TRUE(candidates.at(0).suitable);
  EXPECT_FALSE(candidates.at(1).suitable);
}

TEST(Placement, PlacementRequiresMemoryForStateAndMargin) {
  PlacementRequest request;
  request.memory_bytes = 3 * kGiB;
  request.margin_bytes = kGiB;
  GpuView exact = gpu("a", 0);
  exact.free_bytes = 4 * kGiB;
  GpuView short_of = gpu("b", 0);
  short_of.free_bytes = 4 * kGiB - 1;
  const auto candidates = rank_candidates({short_of, exact}, request);
  EXPECT_EQ(candidates.at(0).place, Place("a", 0));
  EXPECT_TRUE(candidates.at(0).suitable);
  EXPECT_FALSE(candidates.at(1).suitable);
  EXPECT_THAT(candidates.at(1).reasons, Contains(HasSubstr("but the job needs 4.00 GiB")));
}

TEST(Placement, PromisedMemoryIsNotAvailable) {
  PlacementRequest request;
  request.memory_bytes = 3 * kGiB;
  GpuView promised = gpu("a", 0);
  promised.free_bytes = 4 * kGiB;
  promised.promised_bytes = 2 * kGiB;
  EXPECT_FALSE(rank_candidates({promised}, request).at(0).suitable);
  promised.promised_bytes = kGiB;
  EXPECT_TRUE(rank_candidates({promised}, request).at(0).suitable);
  promised.promised_bytes = 100 * kGiB;
  EXPECT_FALSE(rank_candidates({promised}, request).at(0).suitable);
}

TEST(Placement, UnhealthyAndDisconnectedGpusAreRefused) {
  GpuView sick = gpu("a", 0);
  sick.healthy = false;
  sick.health_reason = "Xid 79";
  GpuView away = gpu("b", 0);
  away.connected = false;
  const auto candidates = rank_candidates({sick, away}, PlacementRequest());
  EXPECT_FALSE(candidates.at(0).suitable);
  EXPECT_FALSE(candidates.at(1).suitable);
  const std::string reason = why_none(candidates, PlacementRequest());
  EXPECT_THAT(reason, HasSubstr("a:0: unhealthy: Xid 79"));
  EXPECT_THAT(reason, HasSubstr("b:0: node is not connected"));
}

TEST(Placement, ClosedGpuIsRefusedWithItsReason) {
  GpuView cordoned = gpu("a", 0);
  cordoned.closed = "cordoned by operator: new driver";
  const auto candidates = rank_candidates({cordoned, gpu("b", 0)}, PlacementRequest());
  EXPECT_EQ(candidates.at(0).place, Place("b", 0));
  EXPECT_FALSE(candidates.at(1).suitable);
  EXPECT_FALSE(candidates.at(1).passing);
  EXPECT_THAT(candidates.at(1).reasons, Contains("cordoned by operator: new driver"));
}

TEST(Placement, TemporaryObstaclesAreMarked) {
  PlacementRequest request;
  request.memory_bytes = 3 * kGiB;
  GpuView away = gpu("a", 0);
  away.connected = false;
  GpuView full = gpu("b", 0);
  full.free_bytes = 0;
  GpuView small = gpu("c", 0);
  small.free_bytes = small.total_bytes = 2 * kGiB;
  GpuView promised = gpu("d", 0);
  promised.promised_bytes = 8 * kGiB;
  for (const Candidate& candidate : rank_candidates({away, full, small, promised}, request)) {
    EXPECT_FALSE(candidate.suitable);
    EXPECT_EQ(candidate.passing, candidate.place.node != "c") << candidate.place.node;
  }
}

TEST(Placement, ASuspectGpuIsTemporarilyRefused) {
  GpuView suspect = gpu("a", 0);
  suspect.suspect = "suspect until 10:58:25Z: Xid 94";
  const Candidate candidate = rank_candidates({suspect}, PlacementRequest()).at(0);
  EXPECT_FALSE(candidate.suitable);
  EXPECT_TRUE(candidate.passing);
  EXPECT_EQ(candidate.cause, "suspect");
}

TEST(Placement, SameModelIsRequiredOnlyOnRequest) {
  GpuView other = gpu("a", 0);
  other.model = "model-2";
  PlacementRequest request;
  request.preferred_model = "model-1";
  EXPECT_TRUE(rank_candidates({other}, request).at(0).suitable);
  request.same_model = true;
  EXPECT_FALSE(rank_candidates({other}, request).at(0).suitable);
}

TEST(Placement, EqualGpusAreOrderedByNodeAndNumber) {
  std::vector<Place> places;
  for (const Candidate& candidate :
       rank_candidates({gpu("b", 0), gpu("a", 1), gpu("b", 1), gpu("a", 0)}, PlacementRequest()))
    places.push_back(candidate.place);
  EXPECT_EQ(places, (std::vector<Place>{{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}}));
}

TEST(Placement, BytesArePrintedInPowersOf1024) {
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.00 KiB");
  EXPECT_EQ(bytes_text(3 * kGiB / 2), "1.50 GiB");
  EXPECT_EQ(bytes_text(std::uint64_t{5000} << 40), "5000.00 TiB");
}

TEST(Placement, JobsAreSpreadOverGpusThenOverNodes) {
  GpuView busy = gpu("a", 0);
  busy.jobs = 1;
  busy.node_jobs = 1;
  GpuView sibling = gpu("a", 1);
  sibling.node_jobs = 1;
  GpuView empty = gpu("b", 0);
  empty.free_bytes = 7 * kGiB;
  const auto candidates = rank_candidates({busy, sibling, empty}, PlacementRequest());
  EXPECT_EQ(candidates.at(0).place, Place("b", 0));
  EXPECT_EQ(candidates.at(1).place, Place("a", 1));
  EXPECT_EQ(candidates.at(2).place, Place("a", 0));
}

// Checks one filter: the GPU is suitable except for the change that `spoil` makes, and the reason names that
// change.
void expect_filtered(const std::function<void(GpuView&, PlacementRequest&)>& spoil,
                     const std::string& reason) {
  GpuView view = gpu("b", 0);
  view.moves_processes = true;
  view.driver = "580.65.06";
  PlacementRequest request;
  request.not_here = Place("a", 0);
  request.preferred_model = view.model;
  request.driver = "580.1";
  request.same_model = request.host_process = true;
  request.memory_bytes = kGiB;
  EXPECT_TRUE(rank_candidates({view}, request).at(0).suitable);
  spoil(view, request);
  const Candidate candidate = rank_candidates({view}, request).at(0);
  EXPECT_FALSE(candidate.suitable) << reason;
  EXPECT_THAT(candidate.reasons, ::testing::ElementsAre(HasSubstr(reason)));
}

TEST(PlacementFilter, EachFilterReportsItsReason) {
  using View = GpuView;
  using Request = PlacementRequest;
  expect_filtered([](View&, Request& r) { r.node = "c"; }, "not requested");
  expect_filtered([](View& v, Request&) { v.connected = false; }, "not connected");
  expect_filtered([](View& v, Request& r) { r.not_here = v.place; }, "there already");
  expect_filtered([](View& v, Request&) { v.healthy = false; }, "unhealthy");
  expect_filtered([](View& v, Request&) { v.closed = "cordoned: fan"; }, "cordoned: fan");
  expect_filtered([](View& v, Request&) { v.recovery_action = 4; }, "recovery action 4");
  expect_filtered([](View& v, Request&) { v.remap_pending = true; }, "must be reset");
  expect_filtered([](View& v, Request&) { v.remap_failed = true; }, "could not be remapped");
  expect_filtered([](View& v, Request&) { v.mig = true; }, "MIG");
  expect_filtered([](View& v, Request&) { v.model = "model-2"; }, "model model-2");
  expect_filtered([](View& v, Request&) { v.driver = "575.57.08"; }, "but the job needs branch 580");
  expect_filtered([](View& v, Request&) { v.moves_processes = false; }, "host processes");
  expect_filtered([](View&, Request& r) { r.own_namespaces = true; }, "no namespaces of its own");
  expect_filtered([](View&, Request& r) { r.memory_bytes = 9 * kGiB; }, "but the job needs 9.00 GiB");
  expect_filtered(
      [](View& v, Request& r) {
        v.networks = {{"lab", "10.0.1.2", wire::LaneTransport::kUcxTrusted}};
        r.networks = {{"data", "10.0.0.1", wire::LaneTransport::kTls}};
      },
      "the nodes have no common network: the target has lab (ucx-trusted), but the source has data (tls)");
}

TEST(SharedNetwork, SharedNetworkIsTheFirstSourceNetworkThatTheTargetHas) {
  using wire::LaneTransport;
  const DataNetworks source = {{"fast", "10.0.2.1", LaneTransport::kUcxTrusted},
                               {"data", "10.0.0.1", LaneTransport::kTls},
                               {"old", "10.0.3.1", LaneTransport::kTls}};
  const DataNetworks target = {{"old", "10.0.3.2", LaneTransport::kTls},
                               {"data", "10.0.0.2", LaneTransport::kTls}};
  EXPECT_EQ(shared_network(source, target, "").value().name, "data");
  EXPECT_EQ(shared_network(source, target, "old").value().name, "old");
  EXPECT_THAT(shared_network(source, target, "fast").error().message(),
              HasSubstr("network fast is not on both"));
  const DataNetworks other_transport = {{"data", "10.0.0.2", LaneTransport::kUcxTrusted}};
  EXPECT_FALSE(shared_network(source, other_transport, ""));
  EXPECT_TRUE(shared_network({}, target, ""));  // an older agent names no networks
}

TEST(SharedNetwork, AddressesArePairedByPosition) {
  const auto network = [](std::vector<std::string> addresses) {
    wire::DataNetwork made("data", addresses.front(), wire::LaneTransport::kTls);
    made.more_addresses.assign(addresses.begin() + 1, addresses.end());
    return DataNetworks{made};
  };
  const std::vector<AddressPair> two = {{"10.0.0.1", "10.0.0.2"}, {"10.1.0.1", "10.1.0.2"}};
  const auto three_addresses = network({"10.0.0.1", "10.1.0.1", "10.2.0.1"});
  EXPECT_EQ(shared_network(three_addresses, network({"10.0.0.2", "10.1.0.2"}), "").value().paths, two);
  const std::vector<std::string> many(20, "10.0.0.3");  // addresses that a peer claims
  EXPECT_EQ(shared_network(network(many), network(many), "").value().paths.size(),
            wire::DataNetwork::kMaxAddresses);
}

TEST(PlacementFilter, JobThatStaysOnItsNodeNeedsNoProcessMigration) {
  GpuView view = gpu("a", 1);
  view.moves_processes = false;
  PlacementRequest request;
  request.host_process = true;
  request.not_here = Place("a", 0);
  EXPECT_TRUE(objections(view, request).empty());
  request.not_here.reset();  // the job comes from an image
  EXPECT_THAT(objections(view, request), Contains(HasSubstr("host processes")));
}

TEST(PlacementFilter, OnlyTheRequestedGpuOfTheRequestedNodePasses) {
  PlacementRequest request;
  request.node = "a";
  request.gpu = 1;
  EXPECT_TRUE(objections(gpu("a", 1), request).empty());
  EXPECT_EQ(objections(gpu("a", 0), request), std::vector<std::string>{"not requested"});
  EXPECT_EQ(objections(gpu("b", 1), request), std::vector<std::string>{"not requested"});
}

TEST(PlacementFilter, ACooperativeJobMayMoveToAnyDriver) {
  GpuView view = gpu("b", 0);
  view.driver = "575.2";
  PlacementRequest request;
  request.driver = "580.1";
  EXPECT_TRUE(objections(view, request).empty());
}

TEST(PlacementFilter, UnhealthyGpuHasASingleReason) {
  GpuView sick = gpu("a", 0);
  sick.healthy = false;
  sick.recovery_action = 1;
  sick.health_reason = "The driver requests recovery action 1";
  EXPECT_EQ(objections(sick, PlacementRequest()).size(), 1U);
}

TEST(PlacementFilter, AnUnknownDriverIsNotAnObstacle) {
  GpuView view = gpu("b", 0);
  PlacementRequest request;
  request.preferred_model = view.model;
  request.same_model = true;
  request.driver = "580.1";
  EXPECT_TRUE(objections(view, request).empty());
  view.driver = "575.2";
  request.driver.clear();
  EXPECT_TRUE(objections(view, request).empty());
  EXPECT_EQ(driver_branch("580.65.06"), "580");
  EXPECT_EQ(driver_branch("580"), "580");
}

TEST(PlacementFilter, ReasonNamesTheOriginOfTheMemoryNeed) {
  PlacementRequest request;
  request.memory_bytes = 9 * kGiB;
  request.memory_reason = "it held 9.00 GiB at noon";
  EXPECT_THAT(objections(gpu("a", 0), request), Contains(HasSubstr("(it held 9.00 GiB at noon)")));
}

TEST(PlacementFilter, TemporaryReasonsAreMarked) {
  GpuView full = gpu("a", 0);
  full.free_bytes = 0;
  GpuView away = gpu("a", 1);
  away.connected = false;
  GpuView closed = gpu("a", 2);
  closed.closed = "cordoned";
  PlacementRequest request;
  request.memory_bytes = kGiB;
  for (const Candidate& candidate : rank_candidates({full, away, closed}, request))
    EXPECT_EQ(candidate.passing, candidate.place.gpu != 2) << to_text(candidate.place);
}

// Checks one term of the score: `better` makes the second GPU preferred to its equal, which otherwise comes
// first.
void expect_preferred(const std::function<void(std::vector<GpuView>&, PlacementRequest&)>& better,
                      const std::string& reason) {
  std::vector<GpuView> gpus{gpu("a", 0), gpu("a", 1), gpu("a", 2)};
  PlacementRequest request;
  request.not_here = Place("a", 0);
  request.near = {Place("a", 0)};
  EXPECT_EQ(rank_candidates(gpus, request).at(0).place, Place("a", 1));
  better(gpus, request);
  const Candidate best = rank_candidates(gpus, request).at(0);
  EXPECT_EQ(best.place, Place("a", 2)) << reason;
  EXPECT_THAT(best.reasons, Contains(HasSubstr(reason)));
}

PeerView peer(std::uint32_t index, unsigned nvlinks, unsigned ancestor) {
  PeerView view;
  view.gpu = index;
  view.nvlinks = nvlinks;
  view.common_ancestor = ancestor;
  return view;
}

TEST(PlacementScore, EachScoreTermPrefersItsGpu) {
  using Views = std::vector<GpuView>;
  using Request = PlacementRequest;
  expect_preferred([](Views& v, Request&) { v[2].peers = {peer(0, 4, 50)}; }, "4 NVLink(s) to a:0");
  expect_preferred([](Views& v, Request&) { v[0].fabric = v[2].fabric = "f/1"; },
                   "in the NVLink domain of a:0");
  expect_preferred([](Views& v, Request&) { v[0].numa_node = v[2].numa_node = 1; },
                   "at NUMA node 1, like a:0");
  expect_preferred([](Views& v, Request&) { v[2].peers = {peer(0, 0, 10)}; }, "one PCI switch with a:0");
  expect_preferred([](Views& v, Request&) { v[0].rack = v[2].rack = "r7"; }, "in rack r7 as a:0");
  expect_preferred([](Views& v, Request&) { v[1].jobs = 1; }, "0 job(s) on the GPU");
  expect_preferred([](Views& v, Request&) { v[1].node_jobs = 1; }, "0 on the node");
  expect_preferred([](Views& v, Request&) { v[1].free_bytes /= 2; }, "8.00 GiB free of 8.00 GiB");
  expect_preferred([](Views& v, Request&) { v[1].promised_bytes = kGiB; }, "8.00 GiB free of 8.00 GiB");
  expect_preferred([](Views& v, Request&) { v[1].node_migrations = 1; }, "0 job(s)");
  expect_preferred(
      [](Views& v, Request& r) {
        r.preferred_model = "model-2";
        v[2].model = "model-2";
      },
      "same model");
}

TEST(PlacementScore, UnknownTopologyIsNotScoredAsEqual) {
  std::vector<GpuView> gpus{gpu("a", 0), gpu("a", 1), gpu("b", 0)};
  PlacementRequest request;
  request.near = {Place("a", 0)};
  for (const ScoreTerm& term : score_terms(gpus[1], request, gpus))
    EXPECT_THAT(term.reason, ::testing::Not(HasSubstr("like a:0")));
  // The topology of one node's GPUs does not count for another node's GPUs.
  gpus[2].peers = {peer(0, 4, 10)};
  gpus[0].numa_node = gpus[2].numa_node = 0;
  for (const ScoreTerm& term : score_terms(gpus[2], request, gpus))
    EXPECT_THAT(term.reason, ::testing::Not(HasSubstr("a:0")));
}

TEST(PlacementScore, NearestOfSeveralGpusIsScored) {
  std::vector<GpuView> gpus{gpu("a", 0), gpu("a", 1), gpu("a", 2), gpu("b", 0)};
  gpus[2].peers = {peer(0, 0, 40), peer(1, 0, 10)};
  PlacementRequest request;
  request.near = {Place("a", 0), Place("a", 1)};
  const auto terms = score_terms(gpus[2], request, gpus);
  EXPECT_THAT(terms.at(0).reason, HasSubstr("one PCI switch with a:1"));
  gpus[3].peers = {peer(1, 0, 10)};
  for (const ScoreTerm& term : score_terms(gpus[3], request, gpus))
    EXPECT_THAT(term.reason, ::testing::Not(HasSubstr("with a:")));  // the peer is GPU 1 of node b itself
}

TEST(PlacementScore, GpusAcrossTheMachineAreNotScoredAsNear) {
  std::vector<GpuView> gpus{gpu("a", 0), gpu("a", 1)};
  gpus[1].peers = {peer(0, 0, 50)};
  PlacementRequest request;
  request.near = {Place("a", 0)};
  for (const ScoreTerm& term : score_terms(gpus[1], request, gpus))
    EXPECT_THAT(term.reason, ::testing::Not(HasSubstr("a:0")));
}

TEST(PlacementScore, NoModelIsPreferredWithoutARequest) {
  GpuView view = gpu("a", 0);
  view.model.clear();  // a GPU without a model name is not preferred either
  for (const ScoreTerm& term : score_terms(view, PlacementRequest(), {view}))
    EXPECT_NE(term.reason, "same model");
}

// All other terms together do not outweigh a job on the GPU.
TEST(PlacementScore, SpreadOutweighsProximity) {
  std::vector<GpuView> gpus{gpu("a", 0), gpu("a", 1), gpu("b", 0)};
  gpus[0].numa_node = gpus[1].numa_node = 0;
  gpus[0].rack = gpus[1].rack = "r1";
  gpus[1].peers = {peer(0, 18, 0)};
  gpus[1].jobs = 1;
  gpus[1].model = "model-2";
  gpus[2].free_bytes = kGiB;
  PlacementRequest request;
  request.not_here = Place("a", 0);
  request.near = {Place("a", 0)};
  request.preferred_model = "model-2";
  request.memory_bytes = kGiB;
  EXPECT_EQ(rank_candidates(gpus, request).at(0).place, Place("b", 0));
  gpus[1].jobs = 0;
  EXPECT_EQ(rank_candidates(gpus, request).at(0).place, Place("a", 1));
}

TEST(Placement, ExplanationCoversOnlyTheRequestedGpu) {
  PlacementRequest request;
  request.node = "b";
  request.gpu = 1;
  request.memory_bytes = 100 * kGiB;
  const auto candidates = rank_candidates({gpu("a", 0), gpu("b", 0), gpu("b", 1)}, request);
  const std::string reason = why_none(candidates, request);
  EXPECT_THAT(reason, HasSubstr("b:1: too small: 8.00 GiB in total"));
  EXPECT_THAT(reason, ::testing::Not(HasSubstr("a:0")));
  EXPECT_THAT(reason, ::testing::Not(HasSubstr("b:0")));
  EXPECT_EQ(why_none({}, PlacementRequest()), "there is no GPU");
}

TEST(Placement, CausesAreCountedAndADifferentCauseIsListedFirst) {
  std::vector<GpuView> gpus{gpu("a", 0), gpu("a", 1), gpu("b", 0), gpu("b", 1), gpu("c", 0)};
  gpus[0].closed = "cordoned by operator";
  gpus[1].closed = "cordoned by operator";
  gpus[2].free_bytes = 0;
  gpus[3].connected = false;
  gpus[4].closed = "cordoned by operator";
  PlacementRequest wanted;
  wanted.memory_bytes = 1;
  const auto candidates = rank_candidates(gpus, wanted);
  const auto drained = [](const Place& place) {
    return std::string(place.node == "c" ? "being drained" : "");
  };
  EXPECT_EQ(causes_text(candidates, drained), "2 cordoned, 1 full, 1 not connected, 1 being drained");
  EXPECT_EQ(obstacles_of(candidates)[0], "a:0: cordoned by operator");
  EXPECT_EQ(causes_text({}, drained), "there is no GPU");
}

TEST(Placement, ARefusalListsTwoGpusAndCountsFurtherCauses) {
  PlacementRequest wanted;
  wanted.memory_bytes = 9 * kGiB;
  std::vector<GpuView> gpus{gpu("a", 0), gpu("a", 1), gpu("b", 0)};
  gpus[2].closed = "cordoned by operator";
  EXPECT_EQ(why_none(rank_candidates(gpus, wanted), wanted), "2 too small, 1 cordoned");
  wanted.node = "a";
  EXPECT_THAT(why_none(rank_candidates(gpus, wanted), wanted),
              HasSubstr("a:1: too small: 8.00 GiB in total, but the job needs 9.00 GiB"));
}

}  // namespace
}  // namespace ckpt::coordinator
