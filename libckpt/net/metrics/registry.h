// SPDX-License-Identifier: Apache-2.0
// The metrics that a daemon exports to Prometheus. There are two kinds. Counters and Histograms count events
// where they occur. Other metrics are read from tables whenever the page is requested (observe): a row that
// no longer exists is not on the page. Every name has a help text and fixed label names. Label values are
// from small sets (states, results, nodes, GPUs), never from jobs or migrations.
// Threads: the daemon's event loop; nothing here is called per chunk. Ownership: the daemon owns the
// registry; families must not outlive the registry. Errors: none; a label value that is not UTF-8 is shown
// with '?'.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace prometheus {
class Counter;
class Histogram;
class Registry;
struct MetricFamily;
template <typename T>
class Family;
}  // namespace prometheus

namespace ckpt::metrics {

enum class Kind : std::uint8_t { kCounter = 1, kGauge, kHistogram };
[[nodiscard]] std::string_view to_string(Kind kind) noexcept;

using Names = std::vector<std::string>;
using Values = std::vector<std::string>;  // the values of the labels, in the order of their names

struct Descriptor {
  std::string name;
  Kind kind = Kind::kGauge;
  std::string help;
  Names labels;
};

// One metric name with all its series. A series begins at 0 with the first call for its values.
class Counters {
 public:
  Counters(prometheus::Family<prometheus::Counter>& family, Names labels)
      : family_(&family), labels_(std::move(labels)) {}
  void add(const Values& values = {}, double by = 1);

 private:
  prometheus::Family<prometheus::Counter>* family_;
  Names labels_;
};

class Histograms {
 public:
  Histograms(prometheus::Family<prometheus::Histogram>& family, Names labels, std::vector<double> bounds)
      : family_(&family), labels_(std::move(labels)), bounds_(std::move(bounds)) {}
  void add(const Values& values, double what);
  void prepare(const Values& values);  // shows the series before its first event

 private:
  prometheus::Family<prometheus::Histogram>* family_;
  Names labels_;
  std::vector<double> bounds_;
};

// The series of one metric, which a Read function fills.
class Series {
 public:
  Series(prometheus::MetricFamily& family, const Descriptor& descriptor)
      : family_(family), descriptor_(descriptor) {}
  void add(const Values& values, double value);
  void add(double value) { add({}, value); }

 private:
  prometheus::MetricFamily& family_;
  const Descriptor& descriptor_;
};
using Read = std::function<void(Series&)>;

class Registry {
 public:
  // Creates a registry; `always` has the labels that every series gets.
  explicit Registry(std::map<std::string, std::string> always = {});
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  Counters counter(std::string name, std::string help, Names labels = {});
  Histograms histogram(std::string name, std::string help, Names labels, std::vector<double> bounds);
  void observe(Kind kind, std::string name, std::string help, Names labels, Read read);
  void gauge(std::string name, std::string help, Names labels, Read read) {
    observe(Kind::kGauge, std::move(name), std::move(help), std::move(labels), std::move(read));
  }

  [[nodiscard]] const std::vector<Descriptor>& descriptors() const noexcept { return descriptors_; }
  // Returns all metrics as text that Prometheus reads (text format 0.0.4).
  [[nodiscard]] std::string page() const;

 private:
  struct Observed {
    Descriptor descriptor;
    Read read;
  };
  const Descriptor& describe(Kind kind, std::string name, std::string help, const Names& labels);

  std::map<std::string, std::string> always_;
  std::unique_ptr<prometheus::Registry> counted_;
  std::vector<Observed> observed_;
  std::vector<Descriptor> descriptors_;
};

}  // namespace ckpt::metrics
