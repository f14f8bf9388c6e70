// SPDX-License-Identifier: Apache-2.0
#include "agent/pauses/pause_costs.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace ckpt::agent {
namespace {

constexpr std::size_t kKeptOfASize = 5;
constexpr std::size_t kMaxSeen = 4096;
constexpr Nanos kMaxTook = Nanos{24} * 3600 * 1'000'000'000;
constexpr double kMiB = 1 << 20;
constexpr double kPriorWeight = 0.05;  // weight in the fit of each prior point, at 0 and at kPriorEndMib
constexpr double kPriorEndMib = 1024;
constexpr double kFloorNs = 5e6;  // errors of times below this value are weighted like errors at this value
constexpr Nanos kMs = kNanosPerMs;
constexpr Nanos kManyItems = 50 * kMs;  // measurements with fewer items are not used for the items' rate
constexpr std::uint32_t kMinItemsPermille = 250;
constexpr std::uint32_t kMaxItemsPermille = 20'000;

struct SeenOnFile {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  PauseKind kind = PauseKind::kCooperative;
  std::uint8_t term = 0;
  std::uint64_t bytes = 0;
  std::int64_t took = 0;
  std::int64_t items = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(kind, term, bytes, took, items);
  }
};

struct AssumedOnFile {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  PauseKind kind = PauseKind::kCooperative;
  std::uint8_t term = 0;
  wire::CostLine line;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(kind, term, line);
  }
};

struct CostsOnFile {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  std::vector<SeenOnFile> seen;  // measurements; for each size, the oldest comes first
  std::vector<AssumedOnFile> assumed;
  std::uint64_t memory_read = 0;
  std::uint64_t memory_write = 0;
  std::string rehearsed;
  std::string problem;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(seen, assumed, memory_read, memory_write, rehearsed, problem);
  }
};

wire::CostLine prior(PauseKind kind, PauseTerm term) {
  const bool process = kind == PauseKind::kProcess || kind == PauseKind::kAdoptedProcess;
  const bool adopted = kind == PauseKind::kAdoptedSwap || kind == PauseKind::kAdoptedProcess;
  const bool cooperative = kind == PauseKind::kCooperative;  // also used for the copy of device memory in
                                                             // each mode
  const Nanos device = adopted ? kMs / 4 : 0;  // the driver copies all device memory of an adopted process
  switch (term) {
    case PauseTerm::kQuiesce:
      return {2 * kMs, 0};
    case PauseTerm::kContextSave:
    case PauseTerm::kContextRestore:
      return {10 * kMs, device};
    case PauseTerm::kDump:
      return {60 * kMs, kMs};
    case PauseTerm::kFinal:
      return {4 * kMs, process ? kMs / 5 : cooperative ? kMs / 10 : 0};
    case PauseTerm::kVerify:
      return {2 * kMs, process ? kMs / 20 : 0};
    case PauseTerm::kCommit:
      return {4 * kMs, 0};
    case PauseTerm::kHostRestore:
      return {70 * kMs, kMs};
    case PauseTerm::kFill:
      return {2 * kMs, kMs / 4};
    case PauseTerm::kCommunicators:
      return {0, 0};
    case PauseTerm::kMap:
    case PauseTerm::kResume:
      break;
  }
  return {2 * kMs, 0};
}

unsigned size_class(std::uint64_t bytes) {
  return static_cast<unsigned>(std::bit_width(bytes >> 20) + 1) / 2;
}

struct Point {
  double mib;
  double ns;
  double weight;
};

wire::CostLine fit(const std::vector<Point>& points) {
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const Point& p : points) {
    w += p.weight;
    x += p.weight * p.mib;
    y += p.weight * p.ns;
    xx += p.weight * p.mib * p.mib;
    xy += p.weight * p.mib * p.ns;
  }
  const double spread = w * xx - x * x;
  double slope = spread > 0 ? (w * xy - x * y) / spread : 0;
  double base = (y - slope * x) / w;
  if (slope < 0) {
    slope = 0;
    base = y / w;
  } else if (base < 0) {
    base = 0;
    slope = xx > 0 ? xy / xx : 0;
  }
  return {static_cast<Nanos>(base), static_cast<Nanos>(slope)};
}

// Returns the line scaled to a measurement. One size does not separate base and rate. The rate changes in
// proportion to its share of the time for that size.
wire::CostLine scaled(const wire::CostLine& line, const Point& seen) {
  const auto base = static_cast<double>(line.base_ns);
  const auto rate = static_cast<double>(line.ns_per_mib);
  const double expected = std::max(1.0, base + seen.mib * rate);
  const double ratio = (seen.ns / expected + kPriorWeight) / (1 + kPriorWeight);
  const double new_rate = rate * (1 + (ratio - 1) * seen.mib * rate / expected);
  return {static_cast<Nanos>(std::max(0.0, ratio * expected - seen.mib * new_rate)),
          static_cast<Nanos>(new_rate)};
}

wire::CostLine with_items(wire::CostLine line, std::uint32_t items_permille) {
  line.items_permille = items_permille;
  return line;
}

template <class Seen>
Seen median_of(std::vector<Seen> seen) {
  std::sort(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) { return a.took < b.took; });
  return seen[(seen.size() - 1) / 2];
}

}  // namespace

std::uint32_t items_permille_of(double ratio) {
  return static_cast<std::uint32_t>(
      std::clamp(ratio * 1000, double{kMinItemsPermille}, double{kMaxItemsPermille}));
}

std::uint64_t faster(std::uint64_t known, std::uint64_t bytes, Nanos took) {
  if (known == 0 || took <= 0) return known;
  return std::max(known,
                  static_cast<std::uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(took)));
}

void PauseCosts::learn(PauseKind kind, PauseTerm term, std::uint64_t bytes, Nanos took, Nanos items) {
  if (took < 0 || took > kMaxTook || items < 0 || items > kMaxTook) return;
  auto& samples = seen_[{kind, term, size_class(bytes)}];
  samples.push_back({bytes, took, items});
  if (samples.size() > kKeptOfASize) samples.pop_front();
}

wire::CostLine PauseCosts::before(PauseKind kind, PauseTerm term) const {
  const auto at = assumed_.find({kind, term});
  return at == assumed_.end() ? prior(kind, term) : at->second;
}

// Returns the median ratio for the items of jobs with many threads. It compares the time beyond the
// unmeasured `line` with the items' cost.
std::uint32_t PauseCosts::items_permille(PauseKind kind, PauseTerm term, const wire::CostLine& line) const {
  std::vector<double> ratios;
  for (auto at = seen_.lower_bound({kind, term, 0});
       at != seen_.end() && std::get<0>(at->first) == kind && std::get<1>(at->first) == term; ++at) {
    for (const Seen& seen : at->second) {
      if (seen.items < kManyItems) continue;
      const Nanos rest = seen.took - line.at(static_cast<std::int64_t>(seen.bytes));
      ratios.push_back(static_cast<double>(std::max<Nanos>(0, rest)) / static_cast<double>(seen.items));
    }
  }
  if (ratios.empty()) return line.items_permille;
  std::sort(ratios.begin(), ratios.end());
  return items_permille_of(ratios[(ratios.size() - 1) / 2]);
}

wire::CostLine PauseCosts::line(PauseKind kind, PauseTerm term) const {
  wire::CostLine line = before(kind, term);
  line.items_permille = items_permille(kind, term, line);
  const auto weight = [&line](double mib) {
    const double scale =
        static_cast<double>(line.base_ns) + mib * static_cast<double>(line.ns_per_mib) + kFloorNs;
    return 1 / (scale * scale);
  };
  std::vector<Point> points;
  for (auto at = seen_.lower_bound({kind, term, 0});
       at != seen_.end() && std::get<0>(at->first) == kind && std::get<1>(at->first) == term; ++at) {
    std::vector<Seen> without_items(at->second.begin(), at->second.end());
    for (Seen& seen : without_items) seen.took = std::max<Nanos>(0, seen.took - line.of_items(seen.items));
    const Seen middle = median_of(std::move(without_items));
    const double mib = static_cast<double>(middle.bytes) / kMiB;
    points.push_back(
        {mib, static_cast<double>(middle.took), static_cast<double>(at->second.size()) * weight(mib)});
  }
  if (points.empty()) return line;
  if (points.size() == 1) return with_items(scaled(line, points.front()), line.items_permille);
  for (const double mib : {0.0, kPriorEndMib}) {
    const double ns = static_cast<double>(line.base_ns) + mib * static_cast<double>(line.ns_per_mib);
    points.push_back({mib, ns, kPriorWeight * weight(mib)});
  }
  return with_items(fit(points), line.items_permille);
}

PauseLines PauseCosts::lines(PauseKind kind) const {
  PauseLines lines;
  for (std::size_t term = 0; term < lines.size(); ++term)
    lines[term] = line(kind, static_cast<PauseTerm>(term));
  return lines;
}

std::vector<std::byte> PauseCosts::encode() const {
  CostsOnFile file;
  for (const auto& [key, samples] : seen_) {
    for (const Seen& one : samples) {
      SeenOnFile& entry = file.seen.emplace_back();
      entry.kind = std::get<0>(key);
      entry.term = static_cast<std::uint8_t>(std::get<1>(key));
      entry.bytes = one.bytes;
      entry.took = one.took;
      entry.items = one.items;
    }
  }
  for (const auto& [key, line] : assumed_) {
    AssumedOnFile& entry = file.assumed.emplace_back();
    entry.kind = key.first;
    entry.term = static_cast<std::uint8_t>(key.second);
    entry.line = line;
  }
  file.memory_read = memory_.read;
  file.memory_write = memory_.write;
  file.rehearsed = rehearsed_;
  file.problem = problem_;
  return wire::encode(file);
}

Result<PauseCosts> PauseCosts::decode(std::span<const std::byte> bytes) {
  CKPT_TRY(file, wire::decode<CostsOnFile>(bytes));
  if (file.seen.size() > kMaxSeen || file.assumed.size() > kMaxSeen)
    return Error(ErrorCode::kCorrupt, "It has " + std::to_string(file.seen.size()) + " measurements");
  PauseCosts costs;
  for (const SeenOnFile& entry : file.seen) {
    if (entry.term >= wire::kPauseTerms)
      return Error(ErrorCode::kCorrupt, "The file has a measurement of an unknown term");
    costs.learn(entry.kind, static_cast<PauseTerm>(entry.term), entry.bytes, entry.took, entry.items);
  }
  for (const AssumedOnFile& entry : file.assumed) {
    const auto& [kind, term, line] = std::tie(entry.kind, entry.term, entry.line);
    if (term >= wire::kPauseTerms || line.base_ns < 0 || line.base_ns > kMaxTook || line.ns_per_mib < 0 ||
        line.ns_per_mib > kMaxTook || line.items_permille > kMaxItemsPermille)
      return Error(ErrorCode::kCorrupt, "The file has an invalid line");
    costs.assume(kind, static_cast<PauseTerm>(term), line);
  }
  costs.memory_ = {file.memory_read, file.memory_write};
  costs.rehearsed_ = std::move(file.rehearsed);
  costs.problem_ = std::move(file.problem);
  return costs;
}

}  // namespace ckpt::agent
