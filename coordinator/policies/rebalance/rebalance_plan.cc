// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/rebalance/rebalance_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kMaxOrderSteps = 10'000;

using Places = std::vector<std::size_t>;  // for each job, the index of its GPU

std::uint64_t remaining(std::uint64_t available, std::uint64_t bytes) {
  return available - std::min(available, bytes);
}

Places places_now(const PackProblem& problem) {
  Places places;
  for (const PackJob& job : problem.jobs) places.push_back(job.gpu);
  return places;
}

std::vector<bool> occupied_by(const PackProblem& problem, const Places& places) {
  std::vector<bool> occupied;
  for (const PackGpu& gpu : problem.gpus) occupied.push_back(gpu.pinned);
  for (const std::size_t place : places) occupied[place] = true;
  return occupied;
}

std::size_t free_count(const PackProblem& problem, const Places& places) {
  const std::vector<bool> occupied = occupied_by(problem, places);
  std::size_t count = 0;
  for (std::size_t g = 0; g < problem.gpus.size(); ++g)
    count += problem.gpus[g].counts && !occupied[g] ? 1 : 0;
  return count;
}

// The worth of a result. More free GPUs are better, then less data to copy, then fewer moves.
struct Worth {
  Worth() = default;
  Worth(const PackProblem& problem, const Places& places) : free(free_count(problem, places)) {
    for (std::size_t j = 0; j < places.size(); ++j) {
      if (places[j] == problem.jobs[j].gpu) continue;
      cost += move_cost(problem, j, places[j]);
      ++moves;
    }
  }
  [[nodiscard]] bool better_than(const Worth& other) const {
    return std::tie(other.free, cost, moves) < std::tie(free, other.cost, other.moves);
  }
  std::size_t free = 0;
  std::uint64_t cost = 0;
  std::size_t moves = 0;
};

// An order of the moves to `places` in which each move fits.
class Order {
 public:
  Order(const PackProblem& problem, const Places& places) : problem_(problem), places_(places) {
    for (const PackGpu& gpu : problem.gpus) available_.push_back(gpu.available);
    for (std::size_t j = 0; j < places.size(); ++j) {
      if (places[j] != problem.jobs[j].gpu) waiting_.push_back(j);
    }
  }
  std::optional<std::vector<PackMove>> find() {
    if (!extend()) return std::nullopt;
    return order_;
  }

 private:
  bool extend() {
    if (order_.size() == waiting_.size()) return true;
    if (++steps_ > kMaxOrderSteps || !seen_.insert(done_).second) return false;
    for (const std::size_t j : waiting_) {
      const PackJob& job = problem_.jobs[j];
      const std::size_t to = places_[j];
      if (done_.contains(j) || available_[to] < job.bytes) continue;
      move(j, to, true);
      if (extend()) return true;
      move(j, to, false);
    }
    return false;
  }
  void move(std::size_t j, std::size_t to, bool forth) {
    const PackJob& job = problem_.jobs[j];
    if (forth) {
      available_[to] -= job.bytes;
      available_[job.gpu] += job.bytes;
      done_.insert(j);
      PackMove& move = order_.emplace_back();
      move.job = j;
      move.to = to;
    } else {
      available_[to] += job.bytes;
      available_[job.gpu] -= job.bytes;
      done_.erase(j);
      order_.pop_back();
    }
  }

  const PackProblem& problem_;
  const Places& places_;
  std::vector<std::uint64_t> available_;
  std::vector<std::size_t> waiting_;
  std::vector<PackMove> order_;
  std::set<std::size_t> done_;
  std::set<std::set<std::size_t>> seen_;
  std::size_t steps_ = 0;
};

// The best result so far, and the order of its moves.
class Best {
 public:
  explicit Best(const PackProblem& problem)
      : problem_(problem), places_(places_now(problem)), worth_(problem, places_) {}

  void consider(const Places& places) {
    const Worth worth(problem_, places);
    if (!worth.better_than(worth_)) return;
    auto order = Order(problem_, places).find();
    if (!order) return;
    places_ = places;
    worth_ = worth;
    order_ = std::move(*order);
  }
  [[nodiscard]] const Worth& worth() const { return worth_; }
  [[nodiscard]] const Places& places() const { return places_; }
  [[nodiscard]] const std::vector<PackMove>& order() const { return order_; }

 private:
  const PackProblem& problem_;
  Places places_;
  Worth worth_;
  std::vector<PackMove> order_;
};

std::vector<std::uint64_t> load_of(const PackProblem& problem) {
  std::vector<std::uint64_t> load(problem.gpus.size(), 0);
  for (const PackJob& job : problem.jobs) load[job.gpu] += job.bytes;
  return load;
}

// Returns the numbers 0..count-1, the smallest key first.
template <class Key>
std::vector<std::size_t> sorted_by(std::size_t count, Key key) {
  std::vector<std::size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  std::stable_sort(numbers.begin(), numbers.end(),
                   [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return numbers;
}

// A greedy search that empties the lightest GPUs first. All jobs of such a GPU move to GPUs with jobs, the
// largest job first, each to the GPU where it fits best.
class Greedy {
 public:
  explicit Greedy(const PackProblem& problem) : problem_(problem), places_(places_now(problem)) {
    for (const PackGpu& gpu : problem.gpus) available_.push_back(gpu.available);
    keeps_ = occupied_by(problem, places_);
    took_.resize(problem.gpus.size(), false);
  }
  const Places& run() {
    const std::vector<std::uint64_t> load = load_of(problem_);
    for (const std::size_t gpu : sorted_by(load.size(), [&](std::size_t g) { return load[g]; }))
      try_to_free(gpu);
    return places_;
  }

 private:
  void try_to_free(std::size_t gpu) {
    if (!keeps_[gpu] || took_[gpu] || problem_.gpus[gpu].pinned || !problem_.gpus[gpu].counts) return;
    const auto saved = std::tuple(places_, available_, took_);
    keeps_[gpu] = false;
    const auto by_size =
        sorted_by(problem_.jobs.size(), [&](std::size_t j) { return ~problem_.jobs[j].bytes; });
    for (const std::size_t j : by_size) {
      if (problem_.jobs[j].gpu != gpu || move_away(j)) continue;
      std::tie(places_, available_, took_) = saved;
      keeps_[gpu] = true;
      return;
    }
  }
  bool move_away(std::size_t j) {
    const PackJob& job = problem_.jobs[j];
    if (!job.obstacle.empty()) return false;
    std::optional<std::size_t> best;
    for (std::size_t g = 0; g < available_.size(); ++g) {
      const bool fits = keeps_[g] && job.may_go[g] && available_[g] >= job.bytes;
      if (fits && (!best || available_[g] < available_[*best])) best = g;
    }
    if (!best) return false;
    available_[*best] -= job.bytes;
    took_[*best] = true;
    places_[j] = *best;
    return true;
  }

  const PackProblem& problem_;
  Places places_;
  std::vector<std::uint64_t> available_;
  std::vector<bool> keeps_;
  std::vector<bool> took_;
};

// A branch-and-bound search over every place for every job.
class Search {
 public:
  Search(const PackProblem& problem, Best& best, std::size_t budget)
      : problem_(problem), best_(best), budget_(budget), places_(places_now(problem)) {
    for (const PackGpu& gpu : problem.gpus) {
      left_.push_back(gpu.available);
      jobs_on_.push_back(gpu.pinned ? 1 : 0);
    }
    const std::vector<std::uint64_t> load = load_of(problem);
    // The lightest GPU comes first, because then it is decided early whether that GPU becomes free.
    const auto key = [&](std::size_t j) {
      const PackJob& job = problem.jobs[j];
      return std::tuple(load[job.gpu], job.gpu, ~job.bytes, j);
    };
    for (const std::size_t j : sorted_by(problem.jobs.size(), key)) {
      const PackJob& job = problem.jobs[j];
      if (!job.obstacle.empty()) {
        ++jobs_on_[job.gpu];
        continue;
      }
      left_[job.gpu] += job.bytes;  // the memory counts as free until the search places the job
      undecided_bytes_ += job.bytes;
      order_.push_back(j);
    }
  }
  // Runs the search. Returns true if all combinations were examined.
  bool run() {
    decide(0);
    return steps_ <= budget_;
  }

 private:
  void decide(std::size_t at) {
    if (++steps_ > budget_) return;
    if (!promising()) return;
    if (at == order_.size()) return best_.consider(places_);
    const std::size_t j = order_[at];
    put(j, problem_.jobs[j].gpu, at);
    for (std::size_t g = 0; g < problem_.gpus.size(); ++g) {
      if (g != problem_.jobs[j].gpu && problem_.jobs[j].may_go[g]) put(j, g, at);
    }
  }
  void put(std::size_t j, std::size_t gpu, std::size_t at) {
    const PackJob& job = problem_.jobs[j];
    if (left_[gpu] < job.bytes) return;
    const bool moved = gpu != job.gpu;
    const std::uint64_t cost = moved ? move_cost(problem_, j, gpu) : 0;
    left_[gpu] -= job.bytes;
    ++jobs_on_[gpu];
    undecided_bytes_ -= job.bytes;
    cost_ += cost;
    moves_ += moved ? 1 : 0;
    places_[j] = gpu;
    decide(at + 1);
    places_[j] = job.gpu;
    moves_ -= moved ? 1 : 0;
    cost_ -= cost;
    undecided_bytes_ += job.bytes;
    --jobs_on_[gpu];
    left_[gpu] += job.bytes;
  }
  // Returns whether the decided part can still lead to a better result than the best so far.
  [[nodiscard]] bool promising() const {
    Worth bound;
    bound.free = max_free();
    bound.cost = cost_;
    bound.moves = moves_;
    return bound.better_than(best_.worth());
  }
  // Returns the number of GPUs without a job so far, minus the least number that the undecided jobs need.
  [[nodiscard]] std::size_t max_free() const {
    std::uint64_t homeless = undecided_bytes_;
    std::size_t free = 0;
    std::vector<std::uint64_t> empty;
    for (std::size_t g = 0; g < left_.size(); ++g) {
      const bool would_be_lost = jobs_on_[g] == 0 && problem_.gpus[g].counts;
      if (would_be_lost) {
        ++free;
        empty.push_back(left_[g]);
      } else {
        homeless = remaining(homeless, left_[g]);
      }
    }
    std::sort(empty.begin(), empty.end(), std::greater<>());
    for (const std::uint64_t available : empty) {
      if (homeless == 0) break;
      homeless = remaining(homeless, available);
      --free;
    }
    return free;
  }

  const PackProblem& problem_;
  Best& best_;
  std::size_t budget_;
  Places places_;
  std::vector<std::size_t> order_;
  std::vector<std::uint64_t> left_;
  std::vector<std::size_t> jobs_on_;
  std::uint64_t undecided_bytes_ = 0;
  std::uint64_t cost_ = 0;
  std::size_t moves_ = 0;
  std::size_t steps_ = 0;
};

}  // namespace

std::uint64_t move_cost(const PackProblem& problem, std::size_t job, std::size_t to) {
  const PackJob& moved = problem.jobs[job];
  const std::uint64_t bytes = std::max<std::uint64_t>(1, moved.state_bytes);
  return problem.gpus[moved.gpu].place.node == problem.gpus[to].place.node ? bytes : 2 * bytes;
}

PackPlan plan_packing(const PackProblem& problem, std::size_t budget) {
  Best best(problem);
  PackPlan plan;
  plan.free_before = best.worth().free;
  best.consider(Greedy(problem).run());
  plan.exhaustive = Search(problem, best, budget).run();
  plan.moves = best.order();
  plan.free_after = best.worth().free;
  plan.cost = best.worth().cost;
  const std::vector<bool> before = occupied_by(problem, places_now(problem));
  const std::vector<bool> after = occupied_by(problem, best.places());
  for (std::size_t g = 0; g < problem.gpus.size(); ++g) {
    if (before[g] && !after[g]) plan.freed.push_back(g);
  }
  return plan;
}

std::string why_move(const PackProblem& problem, const PackPlan& plan, std::size_t move) {
  const std::size_t from = problem.jobs[plan.moves[move].job].gpu;
  const std::string place = to_text(problem.gpus[from].place);
  if (std::find(plan.freed.begin(), plan.freed.end(), from) != plan.freed.end()) return "frees " + place;
  std::string names;
  for (std::size_t later = move + 1; later < plan.moves.size(); ++later) {
    if (plan.moves[later].to == from)
      names += (names.empty() ? "" : ", ") + problem.jobs[plan.moves[later].job].name;
  }
  return "frees space at " + place + " for " + names;
}

}  // namespace ckpt::coordinator
